namespace AttnC {

/// <summary>Numbers as the native layer takes them.</summary>
internal static class Sequence {
  /// <summary>The same with their number in front.</summary>
  internal static long[] Counted(long[] values) {
    var counted = new long[values.Length + 1];
    counted[0] = values.Length;
    values.CopyTo(counted, 1);
    return counted;
  }

  /// <summary>The same with their number in front.</summary>
  internal static double[] Counted(double[] values) {
    var counted = new double[values.Length + 1];
    counted[0] = values.Length;
    values.CopyTo(counted, 1);
    return counted;
  }
}

}  // namespace AttnC
