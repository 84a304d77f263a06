using System;
using AttnC.Native;

namespace AttnC {

/// <summary>Options of a context. What is left out is the default.</summary>
public sealed class ContextOptions {
  /// <summary>The number of a CUDA device; null is the CPU.</summary>
  public int? CudaDevice { get; set; }
  /// <summary>CPU: threads that one execute may use; 0 is all that the process may.</summary>
  public int ThreadCount { get; set; }
  public string SimdLevel { get; set; }
  public string Engine { get; set; }
  public string DriverPath { get; set; }
  public string NvrtcPath { get; set; }
  public string CacheFolder { get; set; }
  public ulong CacheLimitBytes { get; set; }
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
  /// <summary>Gives memory for scratch.</summary>
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

  public int DeviceType { get; }
  public int DeviceId { get; }
  public int ThreadCount { get; }
  public string DeviceName { get; }
  public string Architecture { get; }
  public string SimdLevel { get; }
  public string[] SimdLevels { get; }
  public string[] Engines { get; }
  public string DriverVersion { get; }
  public string DriverPath { get; }
  public string NvrtcVersion { get; }
  public string NvrtcPath { get; }
  public string CacheFolder { get; }
  public string Uuid { get; }
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

  public ulong PlansCreated { get; }
  public ulong PlanCacheHits { get; }
  public ulong PlansLive { get; }
  public ulong OpsLive { get; }
  public ulong SessionsLive { get; }
  public ulong BindingsLive { get; }
  public ulong Executions { get; }
  public ulong ScratchAllocations { get; }
  public ulong ScratchBytes { get; }
  public ulong KernelCompiles { get; }
  public ulong DiskCacheHits { get; }
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

  public uint Bits { get; }
  public long Batch { get; }
  public long Value { get; }
  public string Label { get; }
  public string Words { get; }
}

/// <summary>One order of executions; one thread at a time.</summary>
public sealed class Session : IDisposable {
  internal readonly SessionHandle Handle;

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

  public void Dispose() { Handle.Dispose(); }
}

}  // namespace AttnC
