"""A topic as it was, into a new one. Start reading at `restored`.

Each partition is read three times: to see where it is cut and what was committed by then, to be written
behind what the new topic has of it already, and the new one to be compared. What was there at the point is a
matter of the source alone, so the n-th record of the new partition is always the n-th that was there: a run
that died is gone on with where the new partition ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agent.cli.failures import refused, told, usage
from agent.cli.restoring.cutting import Cut, Cutting
from agent.cli.restoring.digest import Digest
from agent.cli.restoring.point import Point, point_of
from agent.cli.restoring.rows import Older, older_of, rows
from agent.cli.restoring.source import Part, Source, batches, source_of
from agent.cli.restoring.target import begun, finish, made, mark_of
from agent.cli.restoring.writing import RANGES_MAX, Ranges, Writer
from agent.cli.session import session
from objectstore.batch import BatchHeader, CorruptBatch, Record
from objectstore.compression import Compression

_T = TypeVar("_T")

AT_ONCE: Final = 4
"""Partitions that are read or written at once: as many as one agent gives batches of at once."""
ROW_CODEC: Final = Compression.ZSTD
"""Of batches made of a table's rows, which do not say how the records were compressed."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What is asked. `without`: configs that the new topic shall not have; `with_table`: rows of the topic's
    table, too, of records that left the log; `with_held`: records below log starts that are held.
    """

    topic: str
    name: str
    at: str
    bootstrap: str
    http: str
    dry_run: bool = False
    without: Sequence[str] = ()
    with_table: bool = False
    with_held: bool = False


@dataclass(slots=True)
class Restored:
    """Of one partition: offsets [start, cut) of the source, what was kept, and what the new one has.

    `older`: what the table has below the log start; `rows` of it were taken, and `unreadable` ones, which
    stand for batches that nobody can open, left out. `closed`: such batches of the log, left out likewise:
    first offset and that behind the last, of RANGES_MAX; `closed_more` are not told.
    """

    partition: int
    start: int
    cut: int
    end: int
    left_out: int
    digest: Digest = field(default_factory=Digest)
    ranges: Ranges = field(default_factory=Ranges)
    found: Digest | None = None
    older: Older | None = None
    rows: int = 0
    unreadable: int = 0
    closed: list[tuple[int, int]] = field(default_factory=list)
    closed_more: int = 0

    def leave_out(self, header: BatchHeader) -> None:
        """A batch that nobody can open."""
        if len(self.closed) < RANGES_MAX:
            self.closed.append((header.base_offset, header.last_offset + 1))
        else:
            self.closed_more += 1

    def take(self, one: Record) -> None:
        """The next record that was there."""
        self.ranges.add(one.offset, self.digest.count)
        self.digest.add(one)

    @property
    def equal(self) -> bool:
        """Whether both have the same records, in the same order."""
        return self.found is not None and (self.found.count, self.found.text()) == (
            self.digest.count,
            self.digest.text(),
        )


@dataclass(frozen=True, slots=True)
class Report:
    """`left`: configs that the new topic did not get; None: it is marked still."""

    source: Source
    partitions: Sequence[Restored]
    left: Sequence[str] | None

    @property
    def equal(self) -> bool:
        """Whether all of it was found equal."""
        return all(each.equal for each in self.partitions)


Advance = Callable[[int], None]


async def restored(given: Restoring, advance: Advance) -> Report:
    """Restore it, or with `dry_run` see what that would be. `advance`: told of offsets. Raises Failure."""
    source = await asyncio.to_thread(source_of, given.http, given.topic, held=given.with_held)
    if source.topic == given.name and not source.deleted:
        raise usage(f"--as {given.name!r} is the topic itself: give the new one another name")
    async with session(given.bootstrap) as kafka:
        at = await begun(kafka, source, given.name, given.at) or given.at
    point = point_of(at)
    point.require_known(source.topic, [each.partition for each in source.parts])
    older = await _older(source) if given.with_table else {}
    cuts = await _each(source, lambda part: _cut(source, part, older.get(part.partition), point, advance))
    done = [
        Restored(part.partition, cut.start, cut.end, part.end, cut.left_out, older=older.get(part.partition))
        for part, cut in zip(source.parts, cuts, strict=True)
    ]
    there: list[int] | None = None
    if not given.dry_run:
        async with session(given.bootstrap) as kafka:
            there = await made(kafka, source, given.name, mark_of(source, given.at, cuts))

    async def copy(part: Part) -> None:
        index = part.partition
        ends = None if there is None else there[index]
        await _copy(given, source, cuts[index], done[index], ends, advance)

    await _each(source, copy)
    if given.dry_run:
        return Report(source, done, None)
    await _compare(given, done, advance)
    report = Report(source, done, None)
    if not report.equal:
        return report
    async with session(given.bootstrap) as kafka:
        return Report(source, done, await finish(kafka, source, given.name, given.without))


async def _each(source: Source, work: Callable[[Part], Awaitable[_T]]) -> list[_T]:
    """The work of each partition, some at once. Raises a Failure of what failed; the others end with it."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(part: Part) -> _T:
        async with turn:
            return await work(part)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(part)) for part in source.parts]
    except ExceptionGroup as ended:
        raise told(ended) from None
    return [each.result() for each in tasks]


async def _older(source: Source) -> dict[int, Older]:
    """What the table has of records that left the log, by partition. Raises Failure."""
    if source.table is None:
        raise refused(f"{source.topic} has no table: restore it without --with-table")
    return await asyncio.to_thread(older_of, source)


async def _cut(source: Source, part: Part, older: Older | None, point: Point, advance: Advance) -> Cut:
    """Where the partition is cut. Raises Failure."""
    wanted, start = part.end, part.start if older is None else older.start
    if point.offsets is not None:
        wanted = point.offsets.get(part.partition, -1)
        if not start <= wanted <= part.end:
            has = f"{source.topic}-{part.partition} has the offsets {start} to {part.end}"
            raise refused(
                f"--at names {'no offset' if wanted < 0 else wanted}: {has}; name an offset of each partition"
            )
    cutting = Cutting(start, wanted, point.time_ms, part.start)
    if older is not None and point.time_ms is not None:
        async with aclosing(rows(source, older)) as found:
            async for some in found:
                advance(len(some))
                if not cutting.take_rows([each.record for each in some]):
                    return cutting.done()
    async for header, batch in batches(source, part.partition, part.start, wanted):
        advance(header.last_offset_delta + 1)
        if not cutting.take(header, batch):
            break
    return cutting.done()


async def _copy(
    given: Restoring, source: Source, cut: Cut, row: Restored, there: int | None, advance: Advance
) -> None:
    """Write what was there behind what the new partition has of it. Raises Failure.

    `there`: how many records it has; None: only look.
    """
    if there is None:
        await _written(source, cut, row, None, advance)
        return
    async with session(given.bootstrap) as kafka:
        writer = Writer(kafka, given.name, row.partition, there)
        await _written(source, cut, row, writer, advance)
        await writer.flush()
        writer.require_not_beyond()


async def _written(source: Source, cut: Cut, row: Restored, writer: Writer | None, advance: Advance) -> None:
    if row.older is not None:
        await _from_table(source, row.older, cut, row, writer, advance)
    async for header, batch in batches(source, row.partition, cut.log_start, cut.end):
        try:
            there = cut.kept(header, batch)
        except CorruptBatch:
            row.leave_out(header)
            there = []
        for each in there:
            row.take(each)
            if writer is not None:
                await writer.add(each, header.compression)
        advance(header.last_offset_delta + 1)


async def _from_table(
    source: Source, older: Older, cut: Cut, row: Restored, writer: Writer | None, advance: Advance
) -> None:
    """Its rows below the log start and the cut."""
    async with aclosing(rows(source, older)) as found:
        async for some in found:
            for one, unreadable in some:
                if one.offset >= cut.end:
                    return
                row.rows, row.unreadable = row.rows + (not unreadable), row.unreadable + unreadable
                if unreadable:
                    continue
                row.take(one)
                if writer is not None:
                    await writer.add(one, ROW_CODEC)
            advance(len(some))


async def _compare(given: Restoring, done: Sequence[Restored], advance: Advance) -> None:
    """Read all of the new topic, and count and digest it. Raises Failure."""
    new = await asyncio.to_thread(source_of, given.http, given.name)

    async def read(part: Part) -> None:
        whole, digest = Cut(0, part.end, []), Digest()
        async for header, batch in batches(new, part.partition, part.start, part.end):
            for each in whole.kept(header, batch):
                digest.add(each)
            advance(header.last_offset_delta + 1)
        done[part.partition].found = digest

    await _each(new, read)
