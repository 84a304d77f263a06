using System;
using System.Runtime.InteropServices;
using AttnC.Native;

namespace AttnC {

/// <summary>A strided tensor in memory of the caller: an array, which is pinned while it is an
/// argument, memory of a device, which is held, or any address. Where its memory is of a known
/// size, the library refuses what reaches beyond.</summary>
public sealed class Tensor {
  internal ElementType Type;
  internal long[] Shape;
  internal long[] Strides;  // null: without memory
  internal Array Data;      // null: memory of a device, an address, or no memory
  internal DeviceMemory Memory;
  internal IntPtr Address;
  internal long Bytes = -1;  // of the memory; below 0 is unknown
  internal long ByteOffset;
  internal int DeviceType = native.ATTN_DEVICE_CPU, DeviceId;
  internal uint Flags;

  private Tensor() {}

  /// <summary>Row-major without gaps, from the begin of an array.</summary>
  public static Tensor Of(Array data, params long[] shape) {
    return Of(ElementType.Of(Need.Of(data, nameof(data)).GetType().GetElementType()), data, shape);
  }

  /// <summary>The same with a type that C# has no name for: float16 in an array of ushort.
  /// </summary>
  public static Tensor Of(ElementType type, Array data, params long[] shape) {
    Type element = Need.Of(data, nameof(data)).GetType().GetElementType();
    if (!element.IsPrimitive) {
      throw new ArgumentException("arrays of " + element + " are no tensors", nameof(data));
    }
    Tensor made = RowMajor(type, shape);
    made.Data = data;
    made.Bytes = Buffer.ByteLength(data);
    return made;
  }

  /// <summary>Memory that the collector does not move, row-major from an address. Its size is not
  /// known, so nothing beyond is refused.</summary>
  public static Tensor At(ElementType type, IntPtr address, params long[] shape) {
    Tensor made = RowMajor(type, shape);
    made.Address = address;
    return made;
  }

  /// <summary>Row-major from the begin of memory of a device.</summary>
  internal static Tensor In(DeviceMemory memory, ElementType type, long[] shape) {
    Tensor made = RowMajor(type, shape);
    made.Memory = memory;
    made.Bytes = memory.Bytes;
    return made;
  }

  /// <summary>Memory of a span that is pinned, native or on the stack: it must not move, and must
  /// live, until the last execution that uses it has ended.</summary>
  public static unsafe Tensor OfSpan(ElementType type, Span<byte> pinned, params long[] shape) {
    fixed (byte* address = &MemoryMarshal.GetReference(pinned)) {
      Tensor made = At(type, (IntPtr)address, shape);
      made.Bytes = pinned.Length;
      return made;
    }
  }

  /// <summary>Such memory of float.</summary>
  public static Tensor OfSpan(Span<float> pinned, params long[] shape) {
    return OfSpan(ElementType.Float32, MemoryMarshal.AsBytes(pinned), shape);
  }

  /// <summary>Such memory of int.</summary>
  public static Tensor OfSpan(Span<int> pinned, params long[] shape) {
    return OfSpan(ElementType.Int32, MemoryMarshal.AsBytes(pinned), shape);
  }

  /// <summary>A type and a shape without memory, -1 for any size: for queries.</summary>
  public static Tensor Described(ElementType type, params long[] shape) {
    return new Tensor { Type = type, Shape = Need.Of(shape, nameof(shape)) };
  }

  /// <summary>Elements between neighbours of each axis.</summary>
  public Tensor WithStrides(params long[] strides) {
    Strides = Need.Of(strides, nameof(strides));
    return this;
  }

  /// <summary>Element (0, ...) lies so many bytes behind the begin, 0 or more.</summary>
  public Tensor AtByte(long offset) {
    if (offset < 0) {
      throw new ArgumentOutOfRangeException(nameof(offset), offset,
                                            "a tensor lies 0 or more bytes behind the begin");
    }
    ByteOffset = offset;
    return this;
  }

  /// <summary>On a device: ATTN_DEVICE_... and its number.</summary>
  public Tensor On(int type, int id) {
    DeviceType = type;
    DeviceId = id;
    return this;
  }

  /// <summary>It may not be bound as an output.</summary>
  public Tensor ReadOnly() {
    Flags = native.ATTN_TENSOR_READ_ONLY;
    return this;
  }

  /// <summary>The same memory with another shape, whose strides stay.</summary>
  internal Tensor WithRows(long rows) {
    if (Shape.Length < 3) {
      throw new ArgumentException("rows count on axis 2, which a tensor of the shape " +
                                  Text.Of(Shape) + " has not", nameof(rows));
    }
    var copy = (Tensor)MemberwiseClone();
    copy.Shape = (long[])Shape.Clone();
    copy.Shape[2] = Math.Min(rows, Shape[2]);
    return copy;
  }

  private static Tensor RowMajor(ElementType type, long[] shape) {
    var strides = new long[Need.Of(shape, nameof(shape)).Length];
    long step = 1;
    for (int axis = shape.Length; axis-- > 0;) {
      strides[axis] = step;
      long size = Math.Max(shape[axis], 1);
      if (step > long.MaxValue / size) {
        throw new ArgumentException("the shape " + Text.Of(shape) +
                                    " has more elements than 64 bits count", nameof(shape));
      }
      step *= size;
    }
    return new Tensor { Type = type, Shape = shape, Strides = strides };
  }
}

}  // namespace AttnC
