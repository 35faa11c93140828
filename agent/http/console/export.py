"""Records that are looked at, as a file: JSON lines or CSV, streamed, within bounds of its own.

It holds what its reader would be shown on the page, text by text; how it ended stands in its last line.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from agent.http.admin import topic_of
from agent.http.answers import Problem
from agent.http.console.decoding import Decoder
from agent.http.console.listing import word
from agent.http.console.looking import Asked, asked, begin
from agent.http.console.reading import readable, require_partition
from agent.http.console.searching import Budget, Found, Look, Places, Search
from agent.http.console.shell import HEADERS
from agent.http.console.words import moment
from agent.http.parts import KafkaShown, Parts
from coordination.state.types import Topic

FORMATS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
STEP_ROWS: Final = 200
"""Written at once."""
STEP_RECORDS: Final = 2_000
STEP_BYTES: Final = 1 << 20
PROBLEMS_TOLD_MAX: Final = 50
"""In the last line."""
FORMULAS: Final = "=+-@\t\r"
"""What a cell of a table begins with that programs would compute."""
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(slots=True)
class _Left:
    """Of one export. `following`: by partition, where it is to be gone on."""

    records: int
    read_bytes: int
    written_bytes: int
    following: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0
    """Beyond PROBLEMS_TOLD_MAX."""

    def note(self, problems: Iterable[str]) -> None:
        """What is missing. Where a partition ends by a problem it is met twice."""
        for each in problems:
            if each in self.problems:
                continue
            if len(self.problems) < PROBLEMS_TOLD_MAX:
                self.problems.append(each)
            else:
                self.more_problems += 1

    def told(self, ended: str) -> str:
        """How the export ended, by the bound `ended` or by none."""
        more = [f"and {self.more_problems} more"] if self.more_problems else []
        problems = "; ".join((*self.problems, *more))
        if ended:
            return f"stopped by {ended}; {problems}" if problems else f"stopped by {ended}"
        return f"incomplete: {problems}" if problems else "complete"

    @property
    def over(self) -> str:
        """Which bound ended it; empty for none so far."""
        spent = {"records": self.records, "bytes": min(self.read_bytes, self.written_bytes)}
        return next((f"console.export_{name}_max" for name, left in spent.items() if left <= 0), "")


class Export:
    """Makes the file."""

    def __init__(self, parts: Parts, places: Places) -> None:
        self._parts, self._places = parts, places

    async def answer(self, request: Request) -> Response:
        """Of a topic that may be read; the query is that of the page of records."""
        kafka, topic, look = readable(self._parts), topic_of(self._parts, request), asked(request)
        kind = word(request, "format") or "jsonl"
        if kind not in FORMATS:
            raise Problem(400, f"format={kind!r} is none of {', '.join(FORMATS)}", "?format=jsonl")
        if look.partition is not None:
            require_partition(topic, look.partition)
        written = self._written(kafka, topic, look, _json_lines if kind == "jsonl" else _csv)
        name = f'attachment; filename="{topic.name}.{kind}"'
        headers = {**HEADERS, "Cache-Control": "no-store", "Content-Disposition": name}
        self._places.__enter__()
        most_s = self._parts.config.console.export_ms_max / 1000
        return _Streamed(written, self._places, 2 * most_s, media_type=FORMATS[kind], headers=headers)

    async def _written(
        self, kafka: KafkaShown, topic: Topic, look: Asked, write: _Write
    ) -> AsyncIterator[bytes]:
        """Piece by piece; the last one says how it ended."""
        console = self._parts.config.console
        left = _Left(console.export_records_max, console.export_bytes_max, console.export_bytes_max)
        decode = Decoder(self._parts, topic).text
        search = Search(self._parts, kafka, topic.name, decode, look.wanted, console.export_ms_max)
        indexes = range(len(topic.partitions)) if look.partition is None else [look.partition]
        yield write(topic.name, (), "", left)
        for index in indexes:
            if left.over or search.left_s <= 0:
                break
            budget = Budget(look.rows, left.records, left.read_bytes)
            at = await begin(kafka, topic, index, look, budget, search.left_s)
            if isinstance(at, Look):
                left.note(f"partition {index}: {each}" for each in at.problems)
                continue
            async for piece in self._partition(search, index, at, left, write, topic.name):
                yield piece
        ended = left.over or ("console.export_ms_max" if search.left_s <= 0 else "")
        yield write(topic.name, (), left.told(ended), left)

    async def _partition(
        self, search: Search, index: int, at: int, left: _Left, write: _Write, name: str
    ) -> AsyncIterator[bytes]:
        """From an offset to the end that it has when it is first looked at."""
        end: int | None = None
        left.following[index] = at
        while not left.over and search.left_s > 0:
            budget = Budget(STEP_ROWS, min(STEP_RECORDS, left.records), min(STEP_BYTES, left.read_bytes))
            look = await search.partition(index, at, budget)
            end = look.end if end is None else end
            left.records -= look.looked_at
            left.read_bytes -= look.read_bytes
            rows = [each for each in look.rows if each.offset < end]
            if rows:
                piece = await asyncio.to_thread(write, name, rows, "", left)
                left.written_bytes -= len(piece)
                yield piece
            left.note(f"partition {index}: {each}" for each in look.problems)
            stuck, at = look.following <= at, look.following
            left.following[index] = at
            if stuck or at >= end:
                return


class _Streamed(StreamingResponse):
    """Gives its place back, whether it was sent or not; a client that does not read it is cut off."""

    def __init__(self, content: AsyncIterator[bytes], places: Places, most_s: float, **more: object) -> None:
        super().__init__(content, **more)  # type: ignore[arg-type]  # as Starlette has them
        self._places, self._most_s = places, most_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See StreamingResponse."""
        try:
            async with asyncio.timeout(self._most_s):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            return  # an answer without its end is one that was cut
        finally:
            self._places.__exit__()


_Write = Callable[[str, Sequence[Found], str, _Left], bytes]
"""A topic's name, records, how the export ended (empty: not yet), and what is left."""


def _json_lines(topic: str, rows: Sequence[Found], ended: str, left: _Left) -> bytes:
    lines: list[dict[str, object]] = [dict(zip(COLUMNS, _cells(topic, each), strict=True)) for each in rows]
    if ended:
        lines.append({"export": ended, "next_offsets": {str(n): at for n, at in left.following.items()}})
    return b"".join(json.dumps(each, ensure_ascii=False).encode(errors="replace") + b"\n" for each in lines)


def _csv(topic: str, rows: Sequence[Found], ended: str, left: _Left) -> bytes:
    """The first piece, without rows, is the head."""
    cells: Iterable[Sequence[object]] = [_cells(topic, each) for each in rows]
    if ended:
        told = ", ".join(f"{number} at {at}" for number, at in left.following.items())
        cells = [(f"# export {ended}; next offsets: {told}",)]
    elif not rows:
        cells = [COLUMNS]
    out = io.StringIO(newline="")
    csv.writer(out).writerows([_safe(each) for each in row] for row in cells)
    return out.getvalue().encode(errors="replace")


def _cells(topic: str, one: Found) -> tuple[object, ...]:
    text = one.text
    return topic, one.partition, one.offset, moment(one.timestamp), text.key, text.value, text.headers


def _safe(cell: object) -> object:
    """A text that would be computed, as text."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple(FORMULAS)) else cell
