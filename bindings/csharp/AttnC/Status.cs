
namespace AttnC {

/// <summary>What a call failed with: the statuses of attn_c.h.</summary>
public enum Status {
  /// <summary>It did what was asked.</summary>
  Ok = 0,
  /// <summary>The caller's mistake.</summary>
  InvalidArgument = 1,
  /// <summary>A legal request that no engine serves.</summary>
  Unsupported = 2,
  /// <summary>An interface or a struct that is newer than the library.</summary>
  Version = 3,
  /// <summary>No driver, device or compiler library.</summary>
  Unavailable = 4,
  /// <summary>No plan fits the call: prepare first.</summary>
  NotPrepared = 5,
  /// <summary>Not possible while the stream captures.</summary>
  Capture = 6,
  /// <summary>A one-at-a-time object is in use elsewhere.</summary>
  Busy = 7,
  /// <summary>Memory could not be had.</summary>
  OutOfMemory = 8,
  /// <summary>A kernel did not compile.</summary>
  Compile = 9,
  /// <summary>The driver or the device reported an error.</summary>
  Device = 10,
  /// <summary>The session is poisoned by a device fault.</summary>
  Fault = 11,
  /// <summary>A defect of the library.</summary>
  Internal = 12
}

}  // namespace AttnC
