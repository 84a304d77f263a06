using System;
using AttnC.Native;

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

/// <summary>Counters of a context since its creation, and of what lives now.</summary>
public sealed class ContextStats {
  internal ContextStats(attn_context_stats stats) {
    PlansCreated = stats.plans_created;
    PlanCacheHits = stats.plan_cache_hits;
    PlansLive = stats.plans_live;
    OpsLive = stats.ops_live;
    SessionsLive = stats.sessions_live;
    BindingsLive = stats.bindings_live;
    Executions = stats.executions;
    ScratchAllocations = stats.scratch_allocations;
    ScratchBytes = stats.scratch_bytes;
    KernelCompiles = stats.kernel_compiles;
    DiskCacheHits = stats.disk_cache_hits;
    DiskCacheMisses = stats.disk_cache_misses;
  }

  /// <summary>Prepares that made a plan.</summary>
  public ulong PlansCreated { get; }
  /// <summary>Prepares that found one.</summary>
  public ulong PlanCacheHits { get; }
  /// <summary>Plans that live now, those of the cache included.</summary>
  public ulong PlansLive { get; }
  /// <summary>Operators that live now.</summary>
  public ulong OpsLive { get; }
  /// <summary>Sessions that live now.</summary>
  public ulong SessionsLive { get; }
  /// <summary>Bindings that live now.</summary>
  public ulong BindingsLive { get; }
  /// <summary>Executions that succeeded.</summary>
  public ulong Executions { get; }
  /// <summary>Times that scratch of any session grew.</summary>
  public ulong ScratchAllocations { get; }
  /// <summary>Scratch that is held now.</summary>
  public ulong ScratchBytes { get; }
  /// <summary>CUDA: kernels that were compiled.</summary>
  public ulong KernelCompiles { get; }
  /// <summary>CUDA: kernels that were read from disk.</summary>
  public ulong DiskCacheHits { get; }
  /// <summary>CUDA: kernels that were looked for there in vain.</summary>
  public ulong DiskCacheMisses { get; }
}

/// <summary>A device with its options and caches; any threads at once. Operators, sessions, plans
/// and bindings keep what they need, so it may be disposed before them.</summary>
public sealed class Context : IDisposable {
  internal readonly ContextHandle Handle;

  /// <summary>Opens a device; null is the CPU with defaults.</summary>
  public Context(ContextOptions options = null) {
    options = options ?? new ContextOptions();
    using (var callbacks = new Callbacks(options))
    using (var desc = new attn_context_desc()) {
      desc.device_type = options.CudaDevice.HasValue ? 2 : 1;
      desc.device_id = options.CudaDevice ?? 0;
      desc.thread_count = options.ThreadCount;
      desc.flags = (options.IgnoreEnvironment ? 1u : 0u) | (options.NoDiskCache ? 2u : 0u);
      desc.simd_level = options.SimdLevel;
      desc.engine = options.Engine;
      desc.driver_path = options.DriverPath;
      desc.nvrtc_path = options.NvrtcPath;
      desc.cache_folder = options.CacheFolder;
      desc.cache_limit_bytes = options.CacheLimitBytes;
      desc.native_context = options.NativeContext;
      callbacks.Set(desc);
      IntPtr made;
      native.attn_context_create(desc, out made);
      callbacks.GiveAway();
      Handle = new ContextHandle(made);
    }
  }

  /// <summary>What the context runs on.</summary>
  public ContextInfo Info {
    get {
      using (var info = new attn_context_info()) {
        native.attn_context_get_info(Handle, info);
        var copied = new ContextInfo(info);
        GC.KeepAlive(this);  // the texts live as long as the context
        return copied;
      }
    }
  }

  /// <summary>Counters; each is exact, together they are no snapshot.</summary>
  public ContextStats Stats {
    get {
      using (var stats = new attn_context_stats()) {
        native.attn_context_get_stats(Handle, stats);
        return new ContextStats(stats);
      }
    }
  }

  /// <summary>Frees cached plans that nobody holds and scratch of idle sessions.</summary>
  public void Trim() { native.attn_context_trim(Handle); }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { Handle.Dispose(); }
}

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

/// <summary>One order of executions; one thread at a time.</summary>
public sealed class Session : IDisposable {
  internal readonly SessionHandle Handle;

  /// <summary>Creates an order of executions; `label` is for messages.</summary>
  public Session(Context context, string label = null) {
    using (var desc = new attn_session_desc()) {
      desc.label = label;
      IntPtr made;
      native.attn_session_create(context.Handle, desc, out made);
      Handle = new SessionHandle(made);
    }
  }

  /// <summary>The faults that reached the host so far, without synchronising.</summary>
  public FaultInfo PollFaults() {
    using (var info = new attn_fault_info()) {
      native.attn_session_poll_faults(Handle, info);
      return new FaultInfo(info);
    }
  }

  /// <summary>Ends a poisoning, in the order of a stream.</summary>
  public void ClearFaults(IntPtr stream = default(IntPtr)) {
    native.attn_session_clear_faults(Handle, stream);
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { Handle.Dispose(); }
}

}  // namespace AttnC
