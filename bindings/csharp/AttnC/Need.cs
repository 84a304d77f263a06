using System;

namespace AttnC {

/// <summary>What has to be there.</summary>
internal static class Need {
  /// <summary>The argument itself; throws, with its name, where it is null.</summary>
  internal static T Of<T>(T argument, string name) where T : class {
    if (argument == null) throw new ArgumentNullException(name);
    return argument;
  }
}

}  // namespace AttnC
