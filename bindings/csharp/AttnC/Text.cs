using System;
using System.Runtime.InteropServices;
using System.Text;

namespace AttnC {

/// <summary>Texts between C# and C.</summary>
internal static class Text {
  internal delegate void Fetch(byte[] buffer, ulong capacity, out ulong needed);

  /// <summary>A text that goes to C as UTF-8, where a NUL would end it and half of a surrogate pair
  /// is nothing; null stays null.</summary>
  internal static string In(string text, string what) {
    for (int at = 0; text != null && at < text.Length; ++at) {
      if (text[at] == '\0') {
        throw new ArgumentException(what + " has a NUL as character " + at +
                                    ": texts end there in C");
      }
      if (!char.IsSurrogate(text[at])) continue;
      if (!char.IsSurrogatePair(text, at)) {
        throw new ArgumentException(what + " has half of a surrogate pair as character " + at);
      }
      ++at;
    }
    return text;
  }

  /// <summary>A terminated UTF-8 text.</summary>
  internal static string At(IntPtr address) {
    if (address == IntPtr.Zero) return "";
    int length = 0;
    while (Marshal.ReadByte(address, length) != 0) ++length;
    var bytes = new byte[length];
    Marshal.Copy(address, bytes, 0, length);
    return Encoding.UTF8.GetString(bytes);
  }

  /// <summary>A text by the two-call rule; it may grow between the calls.</summary>
  internal static string Fetched(Fetch fetch) {
    var buffer = new byte[256];
    while (true) {
      ulong needed;
      fetch(buffer, (ulong)buffer.Length, out needed);
      if (needed <= (ulong)buffer.Length) {
        return Encoding.UTF8.GetString(buffer, 0, needed == 0 ? 0 : (int)needed - 1);
      }
      buffer = new byte[needed];
    }
  }

  /// <summary>The parts of a list that is joined with commas.</summary>
  internal static string[] List(string joined) {
    return joined.Length == 0 ? new string[0] : joined.Split(',');
  }

  /// <summary>Numbers for a message: "[1, 3, 8]".</summary>
  internal static string Of(long[] numbers) { return "[" + string.Join(", ", numbers) + "]"; }
}

}  // namespace AttnC
