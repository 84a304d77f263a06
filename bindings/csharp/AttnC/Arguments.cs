using System;
using System.Collections.Generic;
using AttnC.Native;

namespace AttnC {

/// <summary>The lists of a call and what their tensors lie in, until nobody uses them.</summary>
internal sealed class ArgumentsHandle : ObjectHandle {
  internal readonly ArgumentList Inputs, Outputs;
  internal readonly HeldMemory Memory = new HeldMemory();

  internal ArgumentsHandle(ArgumentList inputs, ArgumentList outputs) : base((IntPtr)1) {
    Inputs = inputs;
    Outputs = outputs;
  }

  protected override bool ReleaseHandle() {
    Memory.LetGo();
    Inputs.Dispose();
    Outputs.Dispose();
    return true;
  }
}

/// <summary>The tensors of a call by slot; one thread at a time while tensors are added. Arrays are
/// pinned, and memory of a device is held, until it is disposed or collected and no binding uses
/// them.</summary>
public sealed class Arguments : IDisposable {
  private readonly ArgumentsHandle handle_ =
      new ArgumentsHandle(new ArgumentList(), new ArgumentList());
  private Dictionary<Array, PinHandle> pinned_ = new Dictionary<Array, PinHandle>();

  internal ArgumentsHandle Handle {
    get {
      handle_.Check(this);
      return handle_;
    }
  }

  /// <summary>The tensor of an input.</summary>
  public Arguments Input(uint slot, Tensor tensor) {
    Add(false, slot, Need.Of(tensor, nameof(tensor)));
    return this;
  }

  /// <summary>The tensor of an output.</summary>
  public Arguments Output(uint slot, Tensor tensor) {
    Add(true, slot, Need.Of(tensor, nameof(tensor)));
    return this;
  }

  /// <summary>An output without memory whose shape follows: for queries and plans.</summary>
  public Arguments Want(uint slot) {
    using (new Held(Handle)) handle_.Outputs.add_name(slot);
    return this;
  }

  /// <summary>One tensor as an output and as the input whose memory it may share: a cache in place.
  /// `rows` are what the input's axis 2 says, where it is shorter than the buffer.</summary>
  public Arguments InPlace(uint input, uint output, Tensor tensor, long? rows = null) {
    Need.Of(tensor, nameof(tensor));
    using (new Held(Handle)) {
      Tensor first = rows.HasValue ? tensor.WithRows(rows.Value) : tensor;
      CheckForm(Words(true, output), tensor);  // both or none
      Add(false, input, first);
      Add(true, output, tensor);
      if (tensor.Strides == null) handle_.Outputs.add_alias(input, output);
    }
    return this;
  }

  private static string Words(bool output, uint slot) {
    return (output ? "output " : "input ") + slot + ": ";
  }

  /// <summary>What the layer below cannot say to the library, which checks the rest.</summary>
  private static void CheckForm(string words, Tensor tensor) {
    if (tensor.Shape.Length > native.ATTN_MAX_RANK) {
      throw new ArgumentException(words + "a tensor has at most " + native.ATTN_MAX_RANK +
                                  " axes; got " + tensor.Shape.Length + ", " +
                                  Text.Of(tensor.Shape));
    }
    if (tensor.Strides == null) return;
    if (tensor.Strides.Length != tensor.Shape.Length) {
      throw new ArgumentException(words + "a tensor needs a stride for each axis; got strides " +
                                  Text.Of(tensor.Strides) + " for the shape " +
                                  Text.Of(tensor.Shape));
    }
    // Zero bytes would mean that the size is unknown.
    if (tensor.Bytes == 0 && Array.IndexOf(tensor.Shape, 0) < 0) {
      throw new ArgumentException(words + "a tensor of the shape " + Text.Of(tensor.Shape) +
                                  " has elements; its memory has 0 bytes");
    }
  }

  private void Add(bool output, uint slot, Tensor tensor) {
    CheckForm(Words(output, slot), tensor);
    using (new Held(Handle)) {
      ArgumentList list = output ? handle_.Outputs : handle_.Inputs;
      if (tensor.Strides == null) {
        list.add_shape(slot, 0, 0, tensor.Type.Code, tensor.Type.Bits, tensor.Shape);
        return;
      }
      IntPtr begin = Begin((output ? HeldMemory.Output : 0) + slot, tensor);
      list.add_memory(slot, tensor.Flags, tensor.DeviceType, tensor.DeviceId, tensor.Type.Code,
                      tensor.Type.Bits, tensor.Shape, tensor.Strides, (ulong)begin.ToInt64());
      list.place_last((ulong)tensor.ByteOffset, (ulong)Math.Max(tensor.Bytes, 0));
    }
  }

  /// <summary>Where a tensor's memory begins; it is held from now on.</summary>
  private IntPtr Begin(long slot, Tensor tensor) {
    if (tensor.Memory != null) {
      IntPtr begin = tensor.Memory.Address;
      handle_.Memory.Add(slot, tensor.Memory.Handle);
      return begin;
    }
    if (tensor.Data == null) return tensor.Address;
    PinHandle pin;
    if (pinned_.TryGetValue(tensor.Data, out pin)) {
      handle_.Memory.Add(slot, pin);
      return pin.Address;
    }
    using (pin = PinHandle.Of(tensor.Data)) handle_.Memory.Add(slot, pin);
    pinned_[tensor.Data] = pin;
    return pin.Address;
  }

  /// <summary>Lets go of arrays and memory that no binding holds.</summary>
  public void Dispose() {
    handle_.Dispose();
    pinned_ = new Dictionary<Array, PinHandle>();  // whoever else is here has the old one
  }
}

}  // namespace AttnC
