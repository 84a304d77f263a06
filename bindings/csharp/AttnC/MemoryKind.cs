using AttnC.Native;

namespace AttnC {

/// <summary>Where memory lies.</summary>
public enum MemoryKind : uint {
  /// <summary>The host's.</summary>
  Host = native.ATTN_MEMORY_HOST,
  /// <summary>The device's.</summary>
  Device = native.ATTN_MEMORY_DEVICE,
  /// <summary>The host's, pinned for the device.</summary>
  Pinned = native.ATTN_MEMORY_PINNED
}

}  // namespace AttnC
