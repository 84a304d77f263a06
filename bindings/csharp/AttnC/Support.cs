using AttnC.Native;

namespace AttnC {

/// <summary>The claim gate's answer.</summary>
public sealed class Support {
  internal Support(attn_support answer) {
    Supported = answer.supported != 0;
    Status = (Status)answer.status;
    CaptureFlags = answer.capture_flags;
    Reason = answer.reason;
  }

  /// <summary>It would run.</summary>
  public bool Supported { get; }
  /// <summary>What prepare would fail with.</summary>
  public Status Status { get; }
  /// <summary>ATTN_CAPTURE_... of attn_c.h.</summary>
  public uint CaptureFlags { get; }
  /// <summary>Argument, what came, what is accepted; empty when supported.</summary>
  public string Reason { get; }
}

/// <summary>What an output will be.</summary>
public sealed class Inferred {
  internal Inferred(attn_tensor tensor, bool depends) {
    Type = new ElementType(tensor.dtype.code, tensor.dtype.bits);
    Shape = new long[tensor.ndim];
    for (int axis = 0; axis < Shape.Length; ++axis) Shape[axis] = tensor.extent(axis);
    DependsOnValue = depends;
  }

  /// <summary>Its element type.</summary>
  public ElementType Type { get; }
  /// <summary>Sizes; -1 where a value decides.</summary>
  public long[] Shape { get; }
  /// <summary>A value that is not there decides a size.</summary>
  public bool DependsOnValue { get; }
}

}  // namespace AttnC
