using System;
using AttnC.Native;

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
  public static readonly ElementType Float16 = new ElementType(native.ATTN_DTYPE_FLOAT, 16);
  /// <summary>Arrays of ushort hold it.</summary>
  public static readonly ElementType BFloat16 = new ElementType(native.ATTN_DTYPE_BFLOAT, 16);
  /// <summary>float</summary>
  public static readonly ElementType Float32 = new ElementType(native.ATTN_DTYPE_FLOAT, 32);
  /// <summary>double</summary>
  public static readonly ElementType Float64 = new ElementType(native.ATTN_DTYPE_FLOAT, 64);
  /// <summary>int</summary>
  public static readonly ElementType Int32 = new ElementType(native.ATTN_DTYPE_INT, 32);
  /// <summary>long</summary>
  public static readonly ElementType Int64 = new ElementType(native.ATTN_DTYPE_INT, 64);
  /// <summary>bool, a byte</summary>
  public static readonly ElementType Bool = new ElementType(native.ATTN_DTYPE_BOOL, 8);

  /// <summary>What an array of this element has; 16-bit floats must be named.</summary>
  internal static ElementType Of(Type type) {
    if (type == typeof(float)) return Float32;
    if (type == typeof(double)) return Float64;
    if (type == typeof(int)) return Int32;
    if (type == typeof(long)) return Int64;
    if (type == typeof(bool)) return Bool;
    if (type == typeof(sbyte)) return new ElementType(native.ATTN_DTYPE_INT, 8);
    if (type == typeof(short)) return new ElementType(native.ATTN_DTYPE_INT, 16);
    if (type == typeof(byte)) return new ElementType(native.ATTN_DTYPE_UINT, 8);
    if (type == typeof(ushort)) return new ElementType(native.ATTN_DTYPE_UINT, 16);
    if (type == typeof(uint)) return new ElementType(native.ATTN_DTYPE_UINT, 32);
    if (type == typeof(ulong)) return new ElementType(native.ATTN_DTYPE_UINT, 64);
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

}  // namespace AttnC
