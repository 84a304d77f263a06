"""Exceptions: one class a status of attn_c.h, all of them `Error`."""

from . import native


class Error(Exception):
    """A call of the library failed.

    status: the attn_status. native_code, native_domain: the code of whoever failed below (1 CUDA,
    2 NVRTC, 3 errno), 0 without. sticky: the device context is lost; retrying cannot help.
    """

    status: int = native.ATTN_INTERNAL

    def __init__(self, message: str, native_code: int = 0, native_domain: int = 0,
                 sticky: bool = False) -> None:
        super().__init__(message)
        self.native_code = native_code
        self.native_domain = native_domain
        self.sticky = sticky


class InvalidArgument(Error, ValueError):
    """The caller's mistake."""

    status = native.ATTN_INVALID_ARGUMENT


class InvalidType(InvalidArgument, TypeError):
    """The caller's mistake: a value of the wrong type in Python."""


class Unsupported(Error, NotImplementedError):
    """A legal request that no engine serves."""

    status = native.ATTN_UNSUPPORTED


class VersionMismatch(Error):
    """The ABI or a struct is newer than the library."""

    status = native.ATTN_VERSION


class Unavailable(Error):
    """No driver, device or compiler library."""

    status = native.ATTN_UNAVAILABLE


class NotPrepared(Error):
    """No plan fits the call; prepare first."""

    status = native.ATTN_NOT_PREPARED


class CaptureConflict(Error):
    """Not possible while the stream captures."""

    status = native.ATTN_CAPTURE


class Busy(Error):
    """An object that serves one thread at a time is in use by another."""

    status = native.ATTN_BUSY


class OutOfMemory(Error, MemoryError):
    """Memory of the host or the device ran out."""

    status = native.ATTN_OUT_OF_MEMORY


class CompileFailed(Error):
    """A kernel did not compile."""

    status = native.ATTN_COMPILE


class DeviceFailed(Error):
    """The driver or the device reported an error."""

    status = native.ATTN_DEVICE


class Fault(Error):
    """The session is poisoned by a device fault."""

    status = native.ATTN_FAULT


class Internal(Error):
    """A defect of the library."""

    status = native.ATTN_INTERNAL


_CLASSES = {kind.status: kind for kind in (
    InvalidArgument, Unsupported, VersionMismatch, Unavailable, NotPrepared, CaptureConflict, Busy,
    OutOfMemory, CompileFailed, DeviceFailed, Fault, Internal)}


def _make(status: int, native_code: int, native_domain: int, flags: int, message: str) -> Error:
    kind = _CLASSES.get(status, Error)
    error = kind(message, native_code, native_domain, bool(flags & native.ATTN_ERROR_STICKY))
    error.status = status
    return error


native.set_error_factory(_make)
