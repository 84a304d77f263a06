using AttnC.Native;

namespace AttnC {

/// <summary>What a context runs on. What does not apply is empty.</summary>
public sealed class ContextInfo {
  internal ContextInfo(attn_context_info info) {
    DeviceType = info.device_type;
    DeviceId = info.device_id;
    ThreadCount = info.thread_count;
    DeviceName = info.device_name;
    Architecture = info.architecture;
    SimdLevel = info.simd_level;
    SimdLevels = Text.List(info.simd_levels);
    Engines = Text.List(info.engines);
    DriverVersion = info.driver_version;
    DriverPath = info.driver_path;
    NvrtcVersion = info.nvrtc_version;
    NvrtcPath = info.nvrtc_path;
    CacheFolder = info.cache_folder;
    Uuid = info.uuid;
    PciId = info.pci_id;
  }

  /// <summary>DLPack's code of the device: 1 CPU, 2 CUDA.</summary>
  public int DeviceType { get; }
  /// <summary>Its number among devices of its type.</summary>
  public int DeviceId { get; }
  /// <summary>CPU: threads of one execute.</summary>
  public int ThreadCount { get; }
  /// <summary>For people.</summary>
  public string DeviceName { get; }
  /// <summary>"x86-64", "sm_90"</summary>
  public string Architecture { get; }
  /// <summary>CPU: in use.</summary>
  public string SimdLevel { get; }
  /// <summary>CPU: all that this machine has, best first.</summary>
  public string[] SimdLevels { get; }
  /// <summary>Names that may be forced.</summary>
  public string[] Engines { get; }
  /// <summary>CUDA: "13.0"</summary>
  public string DriverVersion { get; }
  /// <summary>CUDA: libcuda, as it was opened.</summary>
  public string DriverPath { get; }
  /// <summary>CUDA: empty where none can be opened.</summary>
  public string NvrtcVersion { get; }
  /// <summary>CUDA: as it was opened.</summary>
  public string NvrtcPath { get; }
  /// <summary>CUDA: of the kernels' disk cache; empty where it is off.</summary>
  public string CacheFolder { get; }
  /// <summary>CUDA: the device's.</summary>
  public string Uuid { get; }
  /// <summary>CUDA: the device's address on the bus.</summary>
  public string PciId { get; }
}

}  // namespace AttnC
