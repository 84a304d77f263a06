using System;
using System.Runtime.InteropServices;

namespace AttnC {

/// <summary>An element type, by DLPack's code and its size in bits.</summary>
public struct ElementType : IEquatable<ElementType> {
  /// <summary>DLPack's: 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool.</summary>
  public readonly byte Code;
  /// <summary>Of an element.</summary>
  public readonly byte Bits;

  /// <summary>A type that has no name here.</summary>
  public ElementType(byte code, byte bits) {
    Code = code;
    Bits = bits;
  }

  /// <summary>Arrays of ushort hold it.</summary>
  public static readonly ElementType Float16 = new ElementType(2, 16);
  /// <summary>Arrays of ushort hold it.</summary>
  public static readonly ElementType BFloat16 = new ElementType(4, 16);
  /// <summary>float</summary>
  public static readonly ElementType Float32 = new ElementType(2, 32);
  /// <summary>double</summary>
  public static readonly ElementType Float64 = new ElementType(2, 64);
  /// <summary>int</summary>
  public static readonly ElementType Int32 = new ElementType(0, 32);
  /// <summary>long</summary>
  public static readonly ElementType Int64 = new ElementType(0, 64);
  /// <summary>bool, a byte</summary>
  public static readonly ElementType Bool = new ElementType(6, 8);

  /// <summary>What an array of this element has; 16-bit floats must be named.</summary>
  internal static ElementType Of(Type type) {
    if (type == typeof(float)) return Float32;
    if (type == typeof(double)) return Float64;
    if (type == typeof(int)) return Int32;
    if (type == typeof(long)) return Int64;
    if (type == typeof(bool)) return Bool;
    if (type == typeof(sbyte)) return new ElementType(0, 8);
    if (type == typeof(short)) return new ElementType(0, 16);
    if (type == typeof(byte)) return new ElementType(1, 8);
    if (type == typeof(ushort)) return new ElementType(1, 16);
    if (type == typeof(uint)) return new ElementType(1, 32);
    if (type == typeof(ulong)) return new ElementType(1, 64);
    throw new ArgumentException("arrays of " + type + " are no tensors");
  }

  /// <summary>The same code and size.</summary>
  public bool Equals(ElementType other) { return Code == other.Code && Bits == other.Bits; }
  /// <summary>The same code and size.</summary>
  public override bool Equals(object other) {
    return other is ElementType && Equals((ElementType)other);
  }
  /// <summary>Of code and size.</summary>
  public override int GetHashCode() { return Code << 8 | Bits; }
}

/// <summary>A strided tensor in memory of the caller: an array, which is pinned while it is an
/// argument, or any address.</summary>
public sealed class Tensor {
  internal ElementType Type;
  internal long[] Shape;
  internal long[] Strides;  // null: without memory
  internal Array Data;      // null: an address, or no memory
  internal IntPtr Address;
  internal long ByteOffset;
  internal int DeviceType = 1, DeviceId;
  internal uint Flags;

  private Tensor() {}

  /// <summary>Row-major without gaps, from the begin of an array.</summary>
  public static Tensor Of(Array data, params long[] shape) {
    return Of(ElementType.Of(data.GetType().GetElementType()), data, shape);
  }

  /// <summary>The same with a type that C# has no name for: float16 in an array of ushort.
  /// </summary>
  public static Tensor Of(ElementType type, Array data, params long[] shape) {
    return new Tensor { Type = type, Shape = shape, Strides = RowMajor(shape), Data = data };
  }

  /// <summary>Memory that the collector does not move, row-major from an address.</summary>
  public static Tensor At(ElementType type, IntPtr address, params long[] shape) {
    return new Tensor { Type = type, Shape = shape, Strides = RowMajor(shape), Address = address };
  }

  /// <summary>Memory of a span that is pinned, native or on the stack: it must not move, and must
  /// live, until the last execution that uses it has ended.</summary>
  public static unsafe Tensor OfSpan(ElementType type, Span<byte> pinned, params long[] shape) {
    fixed (byte* address = &MemoryMarshal.GetReference(pinned)) {
      return At(type, (IntPtr)address, shape);
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
    return new Tensor { Type = type, Shape = shape };
  }

  /// <summary>Elements between neighbours of each axis.</summary>
  public Tensor WithStrides(params long[] strides) {
    Strides = strides;
    return this;
  }

  /// <summary>Element (0, ...) lies so many bytes behind the begin.</summary>
  public Tensor AtByte(long offset) {
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
    Flags = 1;
    return this;
  }

  /// <summary>The same memory with another shape, whose strides stay.</summary>
  internal Tensor WithRows(long rows) {
    var copy = (Tensor)MemberwiseClone();
    copy.Shape = (long[])Shape.Clone();
    copy.Shape[2] = Math.Min(rows, Shape[2]);
    return copy;
  }

  /// <summary>Bytes from the first to behind the last that the tensor reaches in an array, and
  /// whether that lies in it.</summary>
  internal bool LiesInArray() {
    if (Data == null) return true;
    long low = ByteOffset, high = ByteOffset, size = Type.Bits / 8;
    for (int axis = 0; axis < Shape.Length; ++axis) {
      if (Shape[axis] == 0) return true;
      long reach = checked((Shape[axis] - 1) * Strides[axis] * size);
      if (reach < 0) low += reach; else high += reach;
    }
    return low >= 0 && high + size <= Buffer.ByteLength(Data);
  }

  private static long[] RowMajor(long[] shape) {
    var strides = new long[shape.Length];
    long step = 1;
    for (int axis = shape.Length; axis-- > 0;) {
      strides[axis] = step;
      step = checked(step * Math.Max(shape[axis], 1));
    }
    return strides;
  }
}

}  // namespace AttnC
