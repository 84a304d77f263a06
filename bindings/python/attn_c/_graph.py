"""Streams and graphs by the plugin's own help, for programs that bring none."""

import contextlib
from typing import Any, Iterator, Optional

from . import native
from ._streams import handle_of
from ._values import Uncopied
from .errors import Error, InvalidArgument


class Stream(Uncopied):
    """A stream of a context; the CPU's is the null stream. A context manager: leaving it waits and
    gives the stream back. Threads: any. Made by Context.stream."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self._handle: Optional[int] = native.attn_host_stream_create(context.handle) or None
        self._open = True

    @property
    def handle(self) -> Optional[int]:
        """The cudaStream_t, None for the null stream. Raises InvalidArgument once it is closed."""
        if not self._open:
            raise InvalidArgument("stream: expected an open one; got one that is closed")
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle or 0

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

    def synchronize(self) -> None:
        """Waits until everything in the stream has ended."""
        native.attn_host_stream_synchronize(self.context.handle, self.handle)

    def close(self) -> None:
        """Waits for what is in the stream, and gives it back."""
        if self._open:
            self._open = False
            native.attn_host_stream_synchronize(self.context.handle, self._handle)
            self.context.sessions.rest(self._handle)
            native.attn_host_stream_release(self.context.handle, self._handle)


class Graph(Uncopied):
    """Captured executions, to be launched again and again; the memory that they use must stay. A
    context manager. Threads: one at a time. Made by Context.capture."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __enter__(self) -> "Graph":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def launch(self, stream: Any = None) -> None:
        """Runs everything that was captured, in the order of the stream."""
        if self._handle is None:
            raise InvalidArgument("the graph is closed, or its capture has not ended")
        native.attn_host_graph_launch(self._handle, handle_of(stream))

    def close(self) -> None:
        """Gives the graph back."""
        self._handle = None


@contextlib.contextmanager
def capture(context: Any, stream: Any) -> Iterator[Graph]:
    """Captures what the block executes in the stream; see Context.capture."""
    handle = handle_of(stream)
    graph = Graph()
    native.attn_host_graph_begin_capture(context.handle, handle)
    try:
        yield graph
    except BaseException:
        with contextlib.suppress(Error):  # the capture may be spoiled, and is given up
            native.attn_host_graph_end_capture(context.handle, handle)
        raise
    finally:
        context.sessions.forget(handle)
    graph._handle = native.attn_host_graph_end_capture(context.handle, handle)
