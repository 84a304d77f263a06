using AttnC.Native;

namespace AttnC {

/// <summary>What a plan is asked to serve beyond the tensors; zeros are defaults.</summary>
public sealed class PrepareOptions {
  /// <summary>A sequence's result does not depend on its batch.</summary>
  public bool BatchInvariant { get; set; }
  /// <summary>CUDA: float32 products may be rounded to TF32.</summary>
  public bool AllowTf32 { get; set; }
  /// <summary>CUDA: lengths on the device are checked by the host: slow.</summary>
  public bool CheckOnHost { get; set; }
  /// <summary>Forced by name; null is the context's choice.</summary>
  public string Engine { get; set; }
  /// <summary>The range that the plan serves; 0 is what the tensors have.</summary>
  public long MaxBatch { get; set; }
  /// <summary>New tokens of one sequence.</summary>
  public long MaxQueryLength { get; set; }
  /// <summary>Keys of one sequence.</summary>
  public long MaxTotalLength { get; set; }

  internal attn_prepare_desc Desc() {
    return new attn_prepare_desc {
      flags = (BatchInvariant ? native.ATTN_PREPARE_BATCH_INVARIANT : 0) |
              (AllowTf32 ? native.ATTN_PREPARE_ALLOW_TF32 : 0) |
              (CheckOnHost ? native.ATTN_PREPARE_CHECK_ON_HOST : 0),
      engine = Text.In(Engine, "PrepareOptions.Engine"),
      max_batch = MaxBatch,
      max_query_length = MaxQueryLength,
      max_total_length = MaxTotalLength
    };
  }
}

}  // namespace AttnC
