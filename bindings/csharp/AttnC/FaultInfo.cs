using AttnC.Native;

namespace AttnC {

/// <summary>The faults of a session.</summary>
public sealed class FaultInfo {
  internal FaultInfo(attn_fault_info info) {
    Bits = info.bits;
    Batch = info.batch;
    Value = info.value;
    Label = info.label;
    Words = info.text;
  }

  /// <summary>All faults since the last clear, for Library.FaultText; 0 is none.</summary>
  public uint Bits { get; }
  /// <summary>The batch row of the first fault.</summary>
  public long Batch { get; }
  /// <summary>The value that broke the rule.</summary>
  public long Value { get; }
  /// <summary>The label of the first fault's operator.</summary>
  public string Label { get; }
  /// <summary>The rules in words.</summary>
  public string Words { get; }
}

}  // namespace AttnC
