"""Orders of executions, and those that calls without a session of their own take turns with."""

import contextlib
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional

from . import native
from ._streams import handle_of
from ._values import Uncopied, text
from .errors import Fault, InvalidArgument

if TYPE_CHECKING:
    from ._context import Context


class FaultInfo(NamedTuple):
    """The faults of a session; false without. `bits` and `text` are of all since the last clear,
    `label` (the op's), `batch` and `value` (that broke the rule) of the first."""

    bits: int
    text: str
    label: str = ""
    batch: int = 0
    value: int = 0

    def __bool__(self) -> bool:
        return self.bits != 0


class Session(Uncopied):
    """One order of executions: faults and scratch. Threads: one at a time (else Busy)."""

    def __init__(self, context: "Context", label: Optional[str] = None) -> None:
        desc = native.attn_session_desc()
        if label is not None:
            desc.label = text("label", label)
        self.context: "Context" = context
        self.handle: native.attn_session = native.attn_session_create(context.handle, desc)

    def poll_faults(self) -> FaultInfo:
        """The faults that reached the host so far. The CPU has none: its lengths are checked by
        execute."""
        info = native.attn_fault_info()
        native.attn_session_poll_faults(self.handle, info)
        return FaultInfo(info.bits, info.text, info.label, info.batch, info.value)

    def clear_faults(self, stream: Any = None) -> None:
        """Ends a poisoning, in the order of the stream."""
        native.attn_session_clear_faults(self.handle, handle_of(stream))


def session_handle(session: Any, of: str) -> native.attn_session:
    """The handle of what a caller gave as a session. of: the operator, for messages."""
    handle = getattr(session, "handle", None)
    if not isinstance(handle, native.attn_session):
        raise InvalidArgument(f"{of}: session: expected a Session of the context or None; "
                              f"got {type(session).__name__}")
    return handle


class Sessions:
    """The sessions of calls that bring none. Threads: any.

    A call on a device has only been launched when it returns, so its session's scratch is in use
    until its stream comes to that: a session is lent again for the same stream alone, or after the
    stream has ended.
    """

    def __init__(self, context: "Context") -> None:
        # Not the context itself: what nobody holds goes at once, without the collector's help.
        self._handle, self._on_device = context.handle, (
            context.device_type != native.ATTN_DEVICE_CPU)
        self._idle: dict[int, list[native.attn_session]] = {}
        self._rested: list[native.attn_session] = []

    def _take(self, stream: int) -> native.attn_session:
        for idle in (self._idle.get(stream), self._rested):
            try:
                if idle:
                    return idle.pop()
            except IndexError:  # another thread took it
                continue
        return native.attn_session_create(self._handle, native.attn_session_desc())

    @contextlib.contextmanager
    def lend(self, stream: Optional[int]) -> Iterator[native.attn_session]:
        """A session that nobody else uses meanwhile, for a call in this stream. Raises Fault once
        where an earlier call in the stream faulted: nothing runs, and that session is used no
        more."""
        key = stream or 0
        session = self._take(key)
        if self._on_device:
            self._check(session)
        try:
            yield session
        finally:
            self._idle.setdefault(key, []).append(session)

    def _check(self, session: native.attn_session) -> None:
        info = native.attn_fault_info()
        native.attn_session_poll_faults(session, info)
        if info.bits:
            raise Fault(f"{info.label}: an earlier call in this stream, which had no session of "
                        f"its own, faulted: {info.text} (batch row {info.batch}, value "
                        f"{info.value}); its results and those of later calls may be zeros")

    def rest(self, stream: Optional[int]) -> None:
        """The stream has ended: its sessions may serve any."""
        self._rested += self._idle.pop(stream or 0, [])

    def forget(self, stream: Optional[int]) -> None:
        """A capture of the stream has ended: what it lent is the graph's."""
        self._idle.pop(stream or 0, None)

    def clear(self) -> None:
        """Lets go of the sessions that are idle."""
        self._idle.clear()
        self._rested.clear()
