"""What the terminal shows: progress bars, the pipeline's short table, the verdict's last line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from iceberg.spark.session import CATALOG
from iceberg.spark.verdict import CHANGED, DOUBLED, KINDS, MISSING, Verdict

FINDINGS_SHOWN = 10
_ALWAYS = (MISSING, DOUBLED, CHANGED)
_OTHERS = tuple(kind for kind in KINDS if kind not in _ALWAYS)


class Display:
    """Bars by name; nothing but plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=not console.is_terminal,
            disable=not console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """One line above the bars."""
        self._progress.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def bar(self, name: str, total: int) -> None:
        """A new bar at 0."""
        self._bars[name] = self._progress.add_task(name, total=total)

    def at(self, name: str, done: int) -> None:
        """Move a bar."""
        self._progress.update(self._bars[name], completed=done)


def pipeline_table(airlines: Sequence[Mapping[str, Any]], shown: int = 8) -> Table:
    """The airlines with most flights."""
    table = Table(title=f"Delays by airline (from {CATALOG}.results.delays_daily)", title_justify="left")
    columns = ("airline", "flights", "cancelled", "departure", "arrival", "late", "plane age")
    for column in columns:
        table.add_column(column, justify="left" if column == "airline" else "right")
    for row in airlines[:shown]:
        table.add_row(
            row["airline"],
            f"{row['flights']:,}",
            f"{row['cancelled']:,}",
            f"{row['mean_departure_delay']:.1f} min",
            f"{row['mean_arrival_delay']:.1f} min",
            f"{row['late_share']:.1%}",
            "" if row["plane_age_years"] is None else f"{row['plane_age_years']:.1f} y",
        )
    return table


def increment_lines(event: Mapping[str, Any]) -> Iterator[str]:
    """What the terminal and the report say of an increment."""
    ranges = ", ".join(f"{a:,} to {b:,}" for a, b in zip(event["since"], event["until"], strict=True))
    files = f"in {event['files']} of the table's {event['files_all']} files"
    yield f"flights, offsets by partition: {ranges}; {files}"
    for stage in event["stages"]:
        read = " + ".join(f"{count:,} {topic}" for topic, count in stage["read"].items() if count)
        wrote = f"wrote {stage['added']:,} rows"
        if stage["removed"]:
            wrote += f" for {stage['removed']:,} older ones"
        days = f", {stage['days']} days" if stage["days"] else ""
        yield f"{stage['name']:<10}  read {read or 'nothing'}; {wrote}{days}"


def last_line(verdict: Verdict, rejected_wanted: int, order: Sequence[str]) -> str:
    """The last line of the job. Topics are named in `order`."""
    counts = {count.topic: count for count in verdict.topics}
    rows = " + ".join(f"{counts[topic].table:,} {topic}" for topic in order if topic in counts)
    rejected = sum(count.rejected or 0 for count in verdict.topics)
    parts = [
        f"verdict: {'equal' if verdict.equal else 'unequal'}",
        f"rows {rows}",
        *(f"{kind} {verdict.counts[kind]}" for kind in _ALWAYS),
        *(f"{kind} {verdict.counts[kind]}" for kind in _OTHERS if verdict.counts[kind]),
        f"rejected {rejected} of {rejected_wanted}",
    ]
    return " · ".join(parts)
