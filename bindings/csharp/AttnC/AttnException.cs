using System;
using AttnC.Native;

namespace AttnC {

/// <summary>What native code says of a failure.</summary>
internal struct Failure {
  internal Status Status;
  internal long NativeCode;
  internal uint NativeDomain, Flags;
  internal string Message;
}

/// <summary>A call that failed; each status has a class of its own. The message names operator,
/// argument, what came and what is accepted.</summary>
public class AttnException : Exception {
  internal AttnException(Failure failure) : base(failure.Message) {
    Status = failure.Status;
    NativeCode = failure.NativeCode;
    NativeDomain = failure.NativeDomain;
    Sticky = (failure.Flags & native.ATTN_ERROR_STICKY) != 0;
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
    var failure = new Failure { Status = (Status)status, NativeCode = nativeCode,
                                NativeDomain = nativeDomain, Flags = flags,
                                Message = Text.At(message) };
    switch (failure.Status) {
      case Status.InvalidArgument: return new InvalidArgumentException(failure);
      case Status.Unsupported: return new UnsupportedException(failure);
      case Status.Version: return new VersionMismatchException(failure);
      case Status.Unavailable: return new UnavailableException(failure);
      case Status.NotPrepared: return new NotPreparedException(failure);
      case Status.Capture: return new CaptureConflictException(failure);
      case Status.Busy: return new BusyException(failure);
      case Status.OutOfMemory: return new MemoryExhaustedException(failure);
      case Status.Compile: return new CompileFailedException(failure);
      case Status.Device: return new DeviceFailedException(failure);
      case Status.Fault: return new FaultException(failure);
      case Status.Internal: return new InternalException(failure);
      default: return new AttnException(failure);
    }
  }
}

}  // namespace AttnC
