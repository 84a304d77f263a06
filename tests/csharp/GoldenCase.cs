using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text;
using AttnC;

/// <summary>Memory of a call, aligned to 64 bytes, and what it held before.</summary>
sealed class Block : IDisposable {
  public readonly int Bytes;
  public readonly IntPtr Address;
  public readonly byte[] Before;
  private readonly IntPtr memory_;

  public Block(byte[] contents) {
    Bytes = contents.Length;
    Before = contents;
    memory_ = Marshal.AllocHGlobal(Bytes + 64);
    Address = (IntPtr)((memory_.ToInt64() + 63) / 64 * 64);
    Marshal.Copy(contents, 0, Address, Bytes);
  }

  public byte[] Now() {
    var bytes = new byte[Bytes];
    Marshal.Copy(Address, bytes, 0, Bytes);
    return bytes;
  }

  public void Dispose() { Marshal.FreeHGlobal(memory_); }
}

/// <summary>A tensor of the call.</summary>
sealed class Argument {
  public readonly uint Slot;
  public readonly ElementType Type;
  public readonly long[] Shape, Strides;
  public readonly int Block;
  public readonly long ByteOffset;

  public Argument(Dictionary<string, object> json) {
    Slot = (uint)(double)json["slot"];
    Type = new ElementType((byte)(double)json["code"], (byte)(double)json["bits"]);
    Shape = Longs(json["shape"]);
    Strides = Longs(json["strides"]);
    Block = (int)(double)json["memory"];
    ByteOffset = (long)(double)json["byte_offset"];
  }

  private static long[] Longs(object list) {
    return ((List<object>)list).Select(number => (long)(double)number).ToArray();
  }

  public int Size { get { return Type.Bits / 8; } }
  public long Elements { get { return Shape.Aggregate(1L, (product, size) => product * size); } }

  /// <summary>Bytes from the block's begin to element number `linear` in row-major order.</summary>
  public int Position(long linear) {
    long offset = 0;
    for (int axis = Shape.Length; axis-- > 0; linear /= Shape[axis]) {
      offset += linear % Shape[axis] * Strides[axis];
    }
    return (int)(ByteOffset + offset * Size);
  }

  /// <summary>A floating-point element.</summary>
  public double Value(byte[] data, long linear) {
    int at = Position(linear);
    if (Type.Bits == 64) {
      var one = new double[1];
      Buffer.BlockCopy(data, at, one, 0, 8);
      return one[0];
    }
    if (Type.Bits == 32) return BitConverter.ToSingle(data, at);
    ushort half = BitConverter.ToUInt16(data, at);
    if (Type.Code == 2) return Float16(half);
    return BitConverter.ToSingle(BitConverter.GetBytes((uint)half << 16), 0);
  }

  private static double Float16(ushort bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0    ? fraction * Math.Pow(2, -24)
                  : exponent == 31 ? (fraction == 0 ? double.PositiveInfinity : double.NaN)
                                   : (fraction + 1024) * Math.Pow(2, exponent - 25);
    return bits >> 15 == 1 ? -size : size;
  }
}

/// <summary>A golden case with its memory; docs/golden-cases.md has the format.</summary>
sealed class GoldenCase : IDisposable {
  public readonly Dictionary<string, object> Json;
  public readonly List<Block> Blocks = new List<Block>();
  public readonly Argument[] Inputs, Outputs;
  private readonly byte[] data_;

  public GoldenCase(string path) {
    Json = (Dictionary<string, object>)global::Json.Parse(File.ReadAllText(path));
    data_ = File.ReadAllBytes(Path.ChangeExtension(path, ".bin"));
    if ((double)Json["format"] != 1) throw new FormatException("its format is not 1");
    foreach (var one in Items("memory")) {
      var contents = new byte[(int)(double)one["bytes"]];
      if (one.ContainsKey("fill")) {
        for (int i = 0; i < contents.Length; ++i) contents[i] = (byte)(double)one["fill"];
      } else {
        Array.Copy(data_, (int)(double)one["offset"], contents, 0, contents.Length);
      }
      Blocks.Add(new Block(contents));
    }
    Inputs = Items("inputs").Select(one => new Argument(one)).ToArray();
    Outputs = Items("outputs").Select(one => new Argument(one)).ToArray();
  }

  public IEnumerable<Dictionary<string, object>> Items(string name) {
    object list;
    if (!Json.TryGetValue(name, out list)) return new Dictionary<string, object>[0];
    return ((List<object>)list).Cast<Dictionary<string, object>>();
  }

  public Dictionary<string, object> Object(string name) {
    object found;
    return Json.TryGetValue(name, out found) ? (Dictionary<string, object>)found : null;
  }

  public Tensor TensorOf(Argument argument) {
    return Tensor.At(argument.Type, Blocks[argument.Block].Address, argument.Shape)
        .WithStrides(argument.Strides)
        .AtByte(argument.ByteOffset);
  }

  /// <summary>What is wrong with what a call returned and left in memory; null is nothing.
  /// </summary>
  public string Check(int status, string message) {
    var error = Object("error");
    int wanted = error == null ? 0 : (int)(double)error["status"];
    if (status != wanted) return "status " + status + ", expected " + wanted + ": " + message;
    if (error != null && !message.StartsWith((string)error["message"], StringComparison.Ordinal)) {
      return "the message is: " + message;
    }
    foreach (var result in Items("results")) {
      string wrong = CheckResult(result);
      if (wrong != null) return wrong;
    }
    return CheckMemory(status == 0);
  }

  private double[] Numbers(Dictionary<string, object> span) {
    var numbers = new double[(int)(double)span["count"]];
    Buffer.BlockCopy(data_, (int)(double)span["offset"], numbers, 0, numbers.Length * 8);
    return numbers;
  }

  private string CheckResult(Dictionary<string, object> result) {
    var output = Outputs.First(one => one.Slot == (uint)(double)result["slot"]);
    byte[] now = Blocks[output.Block].Now();
    if (result.ContainsKey("bytes")) {
      var span = (Dictionary<string, object>)result["bytes"];
      int offset = (int)(double)span["offset"], count = (int)(double)span["count"];
      for (int i = 0; i < count; ++i) {
        if (now[output.Position(i / output.Size) + i % output.Size] == data_[offset + i]) continue;
        return "output " + output.Slot + ": element " + i / output.Size + " has other bits";
      }
      return null;
    }
    double[] values = Numbers((Dictionary<string, object>)result["values"]);
    double[] bounds = Numbers((Dictionary<string, object>)result["bounds"]);
    int width = (int)(double)result["row"];
    double whole = 0;
    for (int row = 0; row < bounds.Length - 1; ++row) {
      double sum = 0;
      for (int i = row * width; i < (row + 1) * width; ++i) {
        double got = output.Value(now, i);
        if (!double.IsNaN(values[i]) && got != values[i]) {
          sum += (got - values[i]) * (got - values[i]);
        }
      }
      whole += sum;
      if (!(Math.Sqrt(sum) <= bounds[row])) {
        return "output " + output.Slot + ": row " + row + " is off by " + Math.Sqrt(sum);
      }
    }
    if (Math.Sqrt(whole) <= bounds[bounds.Length - 1]) return null;
    return "output " + output.Slot + " is off by " + Math.Sqrt(whole);
  }

  /// <summary>Bytes that are no element of an output are as they were; all of them after a
  /// failure.</summary>
  private string CheckMemory(bool written) {
    for (int number = 0; number < Blocks.Count; ++number) {
      byte[] now = Blocks[number].Now(), before = Blocks[number].Before;
      var free = new bool[now.Length];
      foreach (var output in Outputs.Where(one => written && one.Block == number)) {
        for (long i = 0; i < output.Elements; ++i) {
          for (int k = 0; k < output.Size; ++k) free[output.Position(i) + k] = true;
        }
      }
      for (int at = 0; at < now.Length; ++at) {
        if (free[at] || now[at] == before[at]) continue;
        return "memory block " + number + " was written at byte " + at;
      }
    }
    return null;
  }

  /// <summary>FNV-1a, 64 bits, of all memory blocks in order and of the message.</summary>
  public ulong Digest(string message) {
    ulong hash = 0xcbf29ce484222325;
    foreach (var bytes in Blocks.Select(block => block.Now())
                 .Concat(new[] { Encoding.UTF8.GetBytes(message) })) {
      foreach (byte one in bytes) hash = unchecked((hash ^ one) * 0x100000001b3);
    }
    return hash;
  }

  public void Dispose() {
    foreach (var block in Blocks) block.Dispose();
  }
}
