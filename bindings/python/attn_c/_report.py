"""What the commands print: tables and progress by rich where it is installed and the output is a
terminal, plain text otherwise; JSON."""

import json
import sys
from types import TracebackType
from typing import Any, Iterable, Optional, Sequence


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]],
          left: Sequence[str] = ()) -> None:
    """Prints a table; the columns named in `left` hold texts, the others numbers."""
    cells = [[str(cell) for cell in row] for row in rows]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        _plain(title, heads, cells)
        return
    made = Table(title=title)
    for head in heads:
        # Texts may be wrapped, numbers never.
        made.add_column(head, justify="left" if head in left else "right",
                        overflow="fold", no_wrap=head not in left)
    for row in cells:
        made.add_row(*row)
    Console(highlight=False, markup=False).print(made)


def _plain(title: str, heads: Sequence[str], cells: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *cells)]
    print(title)
    for row in (heads, *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def as_json(value: Any) -> None:
    """Prints a value as JSON."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


class Progress:
    """A bar on the terminal's error output; nothing where that is a file, or rich is missing."""

    def __init__(self, title: str, total: int) -> None:
        self._bar: Any = None
        self._task: Any = None
        if not sys.stderr.isatty():
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn
        except ImportError:
            return
        self._bar = Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                        TextColumn("{task.fields[now]}"), console=Console(stderr=True),
                        transient=True)
        self._task = self._bar.add_task(title, total=total, now="")

    def __enter__(self) -> "Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, text: str = "") -> None:
        """One more is done; `text` is what comes next or was done."""
        if self._bar is not None:
            self._bar.update(self._task, advance=1, now=text)
