"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

PIPED_COLUMNS = 240
"""Width of a table that goes to a file or a program, characters."""


def results() -> Console:
    """Standard output, made when asked for so that redirections count."""
    width = None if sys.stdout.isatty() else PIPED_COLUMNS
    return Console(highlight=False, width=width, markup=False)


def remarks() -> Console:
    """Standard error: hints, progress."""
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False)


def print_json(value: object) -> None:
    """One JSON value on one line, for programs."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns on a terminal; the same without frames when piped."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    results().print(table)


def progress() -> Progress:
    """A progress bar on standard error, shown only on a terminal and gone when done."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=remarks(),
        transient=True,
    )
