"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agent.telemetry.printable import printable

if TYPE_CHECKING:  # imported when used: most commands print plain lines
    from rich.console import Console
    from rich.progress import Progress

_LINES = "\n\t"
_BEYOND_ASCII = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and terminals obey."""


def results() -> Console:
    """Standard output, made when asked for so that redirections count."""
    return _console(stderr=False)


def remarks() -> Console:
    """Standard error: hints, progress."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """One that prints names as text, whatever is in them."""
    from rich.console import Console

    class Plain(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            shown = (printable(each, _LINES) if isinstance(each, str) else each for each in objects)
            super().print(*shown, **options)

    return Plain(stderr=stderr, highlight=False, soft_wrap=True, markup=False)


def print_json(value: object) -> None:
    """One JSON value on one line, for programs."""
    text = json.dumps(value, ensure_ascii=False)
    print(_BEYOND_ASCII.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns; folded to the width of a terminal, never folded in a pipe."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for line in (columns, *cells):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in cells:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def progress() -> Progress:
    """A progress bar on standard error, shown only on a terminal and gone when done."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=remarks(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
