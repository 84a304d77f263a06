using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

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

}  // namespace AttnC
