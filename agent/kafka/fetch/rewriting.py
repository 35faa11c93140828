"""What is fetched is rewritten where its reader may not, or would not, read it as it is stored.

Two things ask for that: fields that are not for everybody (redacted.py) and frames (frames.py). Both are done
in one pass over a batch; the redacted record is what is framed anew. Batches that neither asks about are not
opened, and one of whose records none is changed is sent as it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

from agent.kafka.fetch.driver import Fetched
from agent.kafka.fetch.frames import Frames
from agent.kafka.fetch.redacted import Redaction
from agent.telemetry.logs import logger
from coordination.kafka_codes import Code
from coordination.state.schemas import spans_between
from coordination.state.types import Partition
from objectstore import tasks
from objectstore.batch import Buffer, CorruptBatch, peek, split
from objectstore.opening import opened
from objectstore.revalued import Change, Changed, hollow, revalued
from schema.enveloping import Form
from schema.redaction.marks import Marks

if TYPE_CHECKING:
    from coordination.replica import Replica

_log = logger("fetch")

INLINE_BYTES_MAX = 4 << 10
"""Uncompressed batches up to this many bytes are rewritten on the event loop (about 0.1 ms)."""

LOOKS_MAX = 64
"""Times that schemas are looked up for one batch."""

SIDE_BY_SIDE_MAX = 2
"""Partitions of one agent that are rewritten at once: each has a thread, and a copy of what is answered."""


class Judge(Protocol):
    """Says what becomes of a batch's records, each in turn (objectstore.revalued.Change)."""

    hides: ClassVar[bool]
    """Whether a batch that cannot be gone through is shown to nobody."""

    @property
    def missing(self) -> object:
        """What nobody has looked up; if anything, nothing that was said counts."""
        ...

    @property
    def slow(self) -> bool:
        """Whether a batch is too much for the event loop however small."""
        ...

    def again(self) -> None:
        """A batch is gone through, maybe once more."""
        ...

    async def learn(self) -> None:
        """Look up what is missing. Raises OSError."""
        ...

    def count(self) -> None:
        """The batch is done."""
        ...

    def count_hidden(self, records: int) -> None:
        """A batch of so many records was shown to nobody."""
        ...

    def __call__(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Buffer, /
    ) -> Changed | None: ...


@dataclass(frozen=True, slots=True)
class Reader:
    """Who fetches: by which listener, whether cleared for all fields, and how many bytes it takes."""

    listener: str
    client_id: str | None
    cleared: bool
    bytes_max: int


class Rewriting:
    """Rewrites what is fetched. One of an agent."""

    def __init__(self, replica: Replica, redaction: Redaction, frames: Frames) -> None:
        self._replica = replica
        self.redaction = redaction
        self._frames = frames
        self._turns = asyncio.Semaphore(SIDE_BY_SIDE_MAX)

    async def apply(self, fetched: Sequence[Fetched], reader: Reader) -> None:
        """Rewrite what this reader does not get as it is stored.

        A partition whose schemas cannot be had answers that alone. Framed records are longer: batches that
        are too many then are left for the next Fetch.
        """
        grown = False
        for each in fetched:
            partition = each.planned.wanted.partition
            if not each.records or not isinstance(partition, Partition):
                continue
            wanted = self._frames.wanted(reader.listener, reader.client_id, partition.topic)
            marks = None if reader.cleared else self.redaction.marks(partition.topic)
            if marks is None and wanted is None:
                continue
            before = sum(map(len, each.records))
            await self._rewrite(each, partition, marks, wanted)
            grown |= sum(map(len, each.records)) > before
        if grown:
            cut(fetched, reader.bytes_max)

    async def _rewrite(
        self, each: Fetched, partition: Partition, marks: Marks | None, wanted: Form | None
    ) -> None:
        topic = partition.topic
        first = peek(each.records[0]).base_offset
        last = peek(each.records[-1], split(each.records[-1])[-1][0]).last_offset
        spans = spans_between(self._replica.state, partition, first, last + 1)
        found = (
            None if marks is None else self.redaction.judge(marks, spans),
            None if wanted is None else self._frames.judge(wanted, topic, spans),
        )
        judges: list[Judge] = [judge for judge in found if judge is not None]
        if not judges:
            return
        async with self._turns:
            try:
                views = [view[at : at + size] for view in each.records for at, size in split(view)]
                each.records = [memoryview(await rewritten(view, judges)) for view in views]
            except OSError:  # the compiler works in a temporary folder
                _refuse(each, Code.KAFKA_STORAGE_ERROR)
            except Exception as error:  # a defect: it concerns no other topic, nor the connection
                _log.error("records cannot be rewritten for their reader", topic=topic.name)
                tasks.tell("rewrite records", error)
                _refuse(each, Code.UNKNOWN_SERVER_ERROR)


def _refuse(each: Fetched, code: Code) -> None:
    each.records = []
    each.planned = replace(each.planned, code=code)


async def rewritten(view: memoryview, judges: Sequence[Judge]) -> Buffer:
    """The one batch as these judges say; the second is told what the first made of a record.

    Raises OSError.
    """
    header = peek(view)
    if header.control or not header.record_count:
        return view
    change = judges[0] if len(judges) == 1 else partial(_in_turn, judges[0], judges[1])
    for _ in range(LOOKS_MAX):
        slow = header.attributes & 0x07 or any(each.slow for each in judges)
        inline = 0 if slow else INLINE_BYTES_MAX
        try:
            found = await opened(partial(changed, judges, change), view, inline)
        except CorruptBatch:
            break
        missing = [each for each in judges if each.missing]
        if not missing:
            for each in judges:
                each.count()
            return found
        for each in missing:
            await each.learn()
    hiding = [each for each in judges if each.hides]
    for each in hiding:
        each.count_hidden(header.record_count)
    return hollow(view) if hiding else view


def changed(judges: Sequence[Judge], change: Change, batch: memoryview, decoded_bytes_max: int) -> Buffer:
    """One try at a batch. Raises CorruptBatch."""
    for each in judges:
        each.again()
    return revalued(batch, change, decoded_bytes_max)


def _in_turn(
    one: Judge, other: Judge, offset: int, key: bytes | None, value: bytes | None, headers: Buffer
) -> Changed | None:
    first = one(offset, key, value, headers)
    if first is None:
        return other(offset, key, value, headers)
    if first.headers:  # withheld
        return first
    return other(offset, first.key, first.value, headers) or first


def cut(fetched: Sequence[Fetched], bytes_max: int) -> None:
    """Leave what does not fit any more, in whole batches; the first of all is sent however large (KIP-74)."""
    room, nothing_yet = bytes_max, True
    for each in fetched:
        left = min(room, each.planned.wanted.bytes_max)
        kept: list[memoryview] = []
        for one in (view[at : at + size] for view in each.records for at, size in split(view)):
            if len(one) > left and not nothing_yet:
                break
            kept.append(one)
            left, room, nothing_yet = left - len(one), room - len(one), False
        each.records = kept
