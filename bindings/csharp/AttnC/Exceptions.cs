
namespace AttnC {

/// <summary>The caller's mistake.</summary>
public sealed class InvalidArgumentException : AttnException {
  internal InvalidArgumentException(Failure failure) : base(failure) {}
}

/// <summary>A legal request that no engine serves.</summary>
public sealed class UnsupportedException : AttnException {
  internal UnsupportedException(Failure failure) : base(failure) {}
}

/// <summary>An interface or a struct that is newer than the library.</summary>
public sealed class VersionMismatchException : AttnException {
  internal VersionMismatchException(Failure failure) : base(failure) {}
}

/// <summary>No driver, device or compiler library.</summary>
public sealed class UnavailableException : AttnException {
  internal UnavailableException(Failure failure) : base(failure) {}
}

/// <summary>No plan fits the call: prepare first.</summary>
public sealed class NotPreparedException : AttnException {
  internal NotPreparedException(Failure failure) : base(failure) {}
}

/// <summary>Not possible while the stream captures.</summary>
public sealed class CaptureConflictException : AttnException {
  internal CaptureConflictException(Failure failure) : base(failure) {}
}

/// <summary>A one-at-a-time object is in use elsewhere.</summary>
public sealed class BusyException : AttnException {
  internal BusyException(Failure failure) : base(failure) {}
}

/// <summary>Memory of the host or the device could not be had. .NET has an OutOfMemoryException
/// of its own.</summary>
public sealed class MemoryExhaustedException : AttnException {
  internal MemoryExhaustedException(Failure failure) : base(failure) {}
}

/// <summary>A kernel did not compile.</summary>
public sealed class CompileFailedException : AttnException {
  internal CompileFailedException(Failure failure) : base(failure) {}
}

/// <summary>The driver or the device reported an error.</summary>
public sealed class DeviceFailedException : AttnException {
  internal DeviceFailedException(Failure failure) : base(failure) {}
}

/// <summary>The session is poisoned by a device fault.</summary>
public sealed class FaultException : AttnException {
  internal FaultException(Failure failure) : base(failure) {}
}

/// <summary>A defect of the library.</summary>
public sealed class InternalException : AttnException {
  internal InternalException(Failure failure) : base(failure) {}
}

}  // namespace AttnC
