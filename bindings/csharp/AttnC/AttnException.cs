using System;
using System.Runtime.InteropServices;
using System.Text;

namespace AttnC {

/// <summary>What a call failed with: the statuses of attn_c.h.</summary>
public enum Status {
  /// <summary>It did what was asked.</summary>
  Ok = 0,
  /// <summary>The caller's mistake.</summary>
  InvalidArgument = 1,
  /// <summary>A legal request that no engine serves.</summary>
  Unsupported = 2,
  /// <summary>An interface or a struct that is newer than the library.</summary>
  Version = 3,
  /// <summary>No driver, device or compiler library.</summary>
  Unavailable = 4,
  /// <summary>No plan fits the call: prepare first.</summary>
  NotPrepared = 5,
  /// <summary>Not possible while the stream captures.</summary>
  Capture = 6,
  /// <summary>A one-at-a-time object is in use elsewhere.</summary>
  Busy = 7,
  /// <summary>Memory could not be had.</summary>
  OutOfMemory = 8,
  /// <summary>A kernel did not compile.</summary>
  Compile = 9,
  /// <summary>The driver or the device reported an error.</summary>
  Device = 10,
  /// <summary>The session is poisoned by a device fault.</summary>
  Fault = 11,
  /// <summary>A defect of the library.</summary>
  Internal = 12
}

/// <summary>A call that failed. The message names operator, argument, what came and what is
/// accepted.</summary>
public class AttnException : Exception {
  internal AttnException(Status status, long nativeCode, uint nativeDomain, uint flags,
                         string message)
      : base(message) {
    Status = status;
    NativeCode = nativeCode;
    NativeDomain = nativeDomain;
    Sticky = (flags & 2) != 0;
  }

  /// <summary>What kind of failure it is.</summary>
  public Status Status { get; }

  /// <summary>The code of the driver, the compiler or the system; 0 is none.</summary>
  public long NativeCode { get; }

  /// <summary>Whose that code is: 1 CUDA, 2 NVRTC, 3 errno.</summary>
  public uint NativeDomain { get; }

  /// <summary>The device context is lost: retrying cannot help.</summary>
  public bool Sticky { get; }

  /// <summary>The exception of a status, from what native code says.</summary>
  internal static AttnException Make(int status, long nativeCode, uint nativeDomain, uint flags,
                                     IntPtr message) {
    string text = Text.At(message);
    var kind = (Status)status;
    switch (kind) {
      case Status.InvalidArgument:
        return new InvalidArgumentException(kind, nativeCode, nativeDomain, flags, text);
      case Status.Unsupported:
        return new UnsupportedException(kind, nativeCode, nativeDomain, flags, text);
      case Status.Unavailable:
        return new UnavailableException(kind, nativeCode, nativeDomain, flags, text);
      case Status.NotPrepared:
        return new NotPreparedException(kind, nativeCode, nativeDomain, flags, text);
      case Status.Capture:
        return new CaptureException(kind, nativeCode, nativeDomain, flags, text);
      case Status.Busy:
        return new BusyException(kind, nativeCode, nativeDomain, flags, text);
      default:
        return new AttnException(kind, nativeCode, nativeDomain, flags, text);
    }
  }
}

/// <summary>The caller's mistake.</summary>
public sealed class InvalidArgumentException : AttnException {
  internal InvalidArgumentException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>A legal request that no engine serves.</summary>
public sealed class UnsupportedException : AttnException {
  internal UnsupportedException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>No driver, device or compiler library.</summary>
public sealed class UnavailableException : AttnException {
  internal UnavailableException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>No plan fits the call: prepare first.</summary>
public sealed class NotPreparedException : AttnException {
  internal NotPreparedException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>Not possible while the stream captures.</summary>
public sealed class CaptureException : AttnException {
  internal CaptureException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>A one-at-a-time object is in use elsewhere.</summary>
public sealed class BusyException : AttnException {
  internal BusyException(Status status, long code, uint domain, uint flags, string text)
      : base(status, code, domain, flags, text) {}
}

/// <summary>Texts between C# and C.</summary>
internal static class Text {
  internal delegate void Fetch(byte[] buffer, ulong capacity, out ulong needed);

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
}

/// <summary>Numbers as the native layer takes them.</summary>
internal static class Sequence {
  /// <summary>The same with their number in front.</summary>
  internal static long[] Counted(long[] values) {
    var counted = new long[values.Length + 1];
    counted[0] = values.Length;
    values.CopyTo(counted, 1);
    return counted;
  }

  internal static double[] Counted(double[] values) {
    var counted = new double[values.Length + 1];
    counted[0] = values.Length;
    values.CopyTo(counted, 1);
    return counted;
  }
}

}  // namespace AttnC
