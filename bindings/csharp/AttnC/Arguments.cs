using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;
using AttnC.Native;

namespace AttnC {

/// <summary>The tensors of a call by slot. Arrays are pinned until it is disposed, and until the
/// last binding that holds it has gone.</summary>
public sealed class Arguments : IDisposable {
  internal readonly ArgumentList Inputs = new ArgumentList();
  internal readonly ArgumentList Outputs = new ArgumentList();
  private readonly List<GCHandle> pins_ = new List<GCHandle>();
  private readonly Dictionary<Array, IntPtr> pinned_ = new Dictionary<Array, IntPtr>();
  private int users_ = 1;
  private int disposed_;

  /// <summary>The tensor of an input.</summary>
  public Arguments Input(uint slot, Tensor tensor) {
    Add(Inputs, slot, tensor);
    return this;
  }

  /// <summary>The tensor of an output.</summary>
  public Arguments Output(uint slot, Tensor tensor) {
    Add(Outputs, slot, tensor);
    return this;
  }

  /// <summary>An output without memory whose shape follows: for queries and plans.</summary>
  public Arguments Want(uint slot) {
    Outputs.add_name(slot);
    return this;
  }

  /// <summary>One tensor as an output and as the input whose memory it may share: a cache in place.
  /// `rows` are what the input's axis 2 says, where it is shorter than the buffer.</summary>
  public Arguments InPlace(uint input, uint output, Tensor tensor, long? rows = null) {
    Add(Inputs, input, rows.HasValue ? tensor.WithRows(rows.Value) : tensor);
    Add(Outputs, output, tensor);
    if (tensor.Strides == null) Outputs.add_alias(input, output);
    return this;
  }

  private void Add(ArgumentList list, uint slot, Tensor tensor) {
    if (tensor.Strides == null) {
      if (list.add_shape(slot, 0, 0, tensor.Type.Code, tensor.Type.Bits, tensor.Shape)) return;
      throw new ArgumentException("a tensor has at most 8 axes");
    }
    if (tensor.Strides.Length != tensor.Shape.Length) {
      throw new ArgumentException("a tensor needs a stride for each axis");
    }
    if (!tensor.LiesInArray()) throw new ArgumentException("a tensor does not lie in its array");
    IntPtr begin = tensor.Data == null ? tensor.Address : Pinned(tensor.Data);
    ulong address = (ulong)(begin.ToInt64() + tensor.ByteOffset);
    if (!list.add_memory(slot, tensor.Flags, tensor.DeviceType, tensor.DeviceId, tensor.Type.Code,
                         tensor.Type.Bits, tensor.Shape, tensor.Strides, address)) {
      throw new ArgumentException("a tensor has at most 8 axes");
    }
  }

  private IntPtr Pinned(Array array) {
    IntPtr address;
    if (pinned_.TryGetValue(array, out address)) return address;
    var pin = GCHandle.Alloc(array, GCHandleType.Pinned);
    pins_.Add(pin);
    pinned_[array] = address = pin.AddrOfPinnedObject();
    return address;
  }

  /// <summary>A binding holds the memory, or lets go of it.</summary>
  internal void Hold() { Interlocked.Increment(ref users_); }

  internal void LetGo() {
    if (Interlocked.Decrement(ref users_) != 0) return;
    foreach (var pin in pins_) pin.Free();
    pins_.Clear();
    Inputs.Dispose();
    Outputs.Dispose();
  }

  /// <summary>Lets go of arrays that no binding holds.</summary>
  public void Dispose() {
    if (Interlocked.Exchange(ref disposed_, 1) != 0) return;
    LetGo();
    GC.SuppressFinalize(this);
  }

  /// <summary>Nobody can reach it any more, a binding included.</summary>
  ~Arguments() {
    foreach (var pin in pins_) pin.Free();
  }
}

}  // namespace AttnC
