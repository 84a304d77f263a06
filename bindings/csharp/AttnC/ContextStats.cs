using AttnC.Native;

namespace AttnC {

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

}  // namespace AttnC
