using System;

namespace AttnC {

/// <summary>Options of a context. What is left out is the default.</summary>
public sealed class ContextOptions {
  /// <summary>The number of a CUDA device; null is the CPU.</summary>
  public int? CudaDevice { get; set; }
  /// <summary>CPU: threads that one execute may use; 0 is all that the process may.</summary>
  public int ThreadCount { get; set; }
  /// <summary>CPU: a name of ContextInfo.SimdLevels; null is the best.</summary>
  public string SimdLevel { get; set; }
  /// <summary>Forced for every plan: a name of ContextInfo.Engines; null chooses.</summary>
  public string Engine { get; set; }
  /// <summary>CUDA: libcuda; null searches.</summary>
  public string DriverPath { get; set; }
  /// <summary>CUDA: libnvrtc; null searches.</summary>
  public string NvrtcPath { get; set; }
  /// <summary>CUDA: the kernels' disk cache; null is the default folder.</summary>
  public string CacheFolder { get; set; }
  /// <summary>CUDA: of the disk cache; 0 is 256 MiB.</summary>
  public ulong CacheLimitBytes { get; set; }
  /// <summary>CUDA: kernels are neither read from nor kept on disk.</summary>
  public bool NoDiskCache { get; set; }
  /// <summary>No ATTN_C_... variable counts.</summary>
  public bool IgnoreEnvironment { get; set; }
  /// <summary>CUDA: a CUcontext; zero is the current one, or the primary one.</summary>
  public IntPtr NativeContext { get; set; }
  /// <summary>Receives lines of the log, from any thread inside a call, from several at once. What
  /// it throws is dropped.</summary>
  public Action<Severity, string> Log { get; set; }
  /// <summary>The least that is logged; null is what ATTN_C_LOG_LEVEL says, or warnings.</summary>
  public Severity? MinimumSeverity { get; set; }
  /// <summary>Gives memory of sessions.</summary>
  public IAllocator Allocator { get; set; }
  /// <summary>CPU: runs tasks on threads of the program.</summary>
  public IExecutor Executor { get; set; }
}

}  // namespace AttnC
