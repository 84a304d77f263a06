using System;
using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

/// <summary>How to run. One object may serve many calls, of one thread at a time.</summary>
public sealed class ExecuteOptions : IDisposable {
  internal readonly attn_execute_desc Desc = new attn_execute_desc();

  /// <summary>Bindings: prepare when no plan fits, outside a capture.</summary>
  public bool Prepare { set { Set(1, value); } }

  /// <summary>A capture may fix lengths that lie in host memory.</summary>
  public bool BakeHostValues { set { Set(2, value); } }

  /// <summary>CUDA: the caller knows that the stream is not captured, and that the context's CUDA
  /// context is current.</summary>
  public bool Eager { set { Set(4, value); } }

  /// <summary>A CUstream of the context; zero is the legacy default stream.</summary>
  public IntPtr Stream { set { Desc.stream = value; } }

  /// <summary>Scratch in memory of the context's device, instead of the session's.</summary>
  public void SetWorkspace(IntPtr memory, ulong bytes) {
    Desc.workspace = memory;
    Desc.workspace_bytes = bytes;
  }

  private void Set(uint bit, bool value) {
    Desc.flags = value ? Desc.flags | bit : Desc.flags & ~bit;
  }

  /// <summary>Frees the options.</summary>
  public void Dispose() { Desc.Dispose(); }
}

/// <summary>Facts of a plan.</summary>
public sealed class PlanInfo {
  internal PlanInfo(attn_plan_info info) {
    CaptureFlags = info.capture_flags;
    WorkspaceBytes = info.workspace_bytes;
    WorkspaceAlignment = info.workspace_alignment;
    MaxBatch = info.max_batch;
    MaxQueryLength = info.max_query_length;
    MaxTotalLength = info.max_total_length;
    var baked = new List<uint>();
    for (uint at = 0; at < info.baked_slot_count; ++at) baked.Add(info.baked_slot(at));
    BakedSlots = baked;
    Reason = info.reason;
  }

  /// <summary>ATTN_CAPTURE_... of attn_c.h.</summary>
  public uint CaptureFlags { get; }
  /// <summary>Scratch of one execute, whoever gives it.</summary>
  public ulong WorkspaceBytes { get; }
  /// <summary>Of the caller's workspace, in bytes.</summary>
  public ulong WorkspaceAlignment { get; }
  /// <summary>The range that the plan serves.</summary>
  public long MaxBatch { get; }
  /// <summary>New tokens of one sequence.</summary>
  public long MaxQueryLength { get; }
  /// <summary>Keys of one sequence.</summary>
  public long MaxTotalLength { get; }
  /// <summary>Inputs in host memory whose values a capture would fix.</summary>
  public IReadOnlyList<uint> BakedSlots { get; }
  /// <summary>Why it cannot be captured, or what a capture fixes.</summary>
  public string Reason { get; }
}

/// <summary>How a shape class of an operator runs; any threads at once.</summary>
public sealed class Plan : IDisposable {
  internal readonly PlanHandle Handle;

  internal Plan(PlanHandle owned) { Handle = owned; }

  /// <summary>Workspace, capture facts and the range that it serves.</summary>
  public PlanInfo Info {
    get {
      using (var info = new attn_plan_info()) {
        native.attn_plan_get_info(Handle, info);
        return new PlanInfo(info);
      }
    }
  }

  /// <summary>JSON for people and logs.</summary>
  public string Describe() {
    return Text.Fetched((byte[] buffer, ulong capacity, out ulong needed) =>
                            native.attn_plan_describe(Handle, buffer, capacity, out needed));
  }

  /// <summary>Runs the plan. CPU: returns when done. CUDA: returns when launched; device memory
  /// must stay until the execution has ended.</summary>
  public void Execute(Session session, Arguments arguments, ExecuteOptions options = null) {
    native.attn_plan_execute(Handle, session.Handle, arguments.Inputs, arguments.Outputs,
                             options == null ? null : options.Desc);
    GC.KeepAlive(arguments);
    GC.KeepAlive(options);
  }

  /// <summary>Gives the reference back.</summary>
  public void Dispose() { Handle.Dispose(); }
}

}  // namespace AttnC
