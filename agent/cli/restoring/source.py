"""The topic that is read: by an agent's HTTP, as it lies in the log, whether it is deleted or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from agent.cli import agent_http
from agent.cli.failures import Failure, Status, refused
from objectstore.batch import BatchHeader, CorruptBatch, check_crc, peek, split

BYTES_AT_ONCE: Final = 8 << 20
"""Asked for with one request; a batch may be larger."""


class Part(NamedTuple):
    """A partition's offsets: from `start` to below `end`."""

    partition: int
    start: int
    end: int


class Source(NamedTuple):
    """A topic as it is told of. `configs`: its own; `table`: as namespace.name, None for none.

    `held`: with what is held below its log starts.
    """

    http: str
    topic: str
    topic_id: str
    deleted: bool
    configs: Mapping[str, str]
    table: str | None
    parts: Sequence[Part]
    held: bool = False

    @property
    def below(self) -> str:
        """Of a query: whether what is held is asked for."""
        return "held=true" if self.held else "held=false"


def source_of(http: str, named: str, *, held: bool = False) -> Source:
    """The topic of this name, else the deleted one; or of this id. Raises Failure.

    `held`: from what is held below its log starts on.
    """
    told = agent_http.ask(http, f"/admin/restorable/{quote(named, safe='')}{'?held=true' if held else ''}")
    parts = [Part(each["partition"], each["start"], each["end"]) for each in told["partitions"]]
    return Source(
        http, told["topic"], told["topic_id"], told["deleted"], told["configs"], told["table"], parts, held
    )


async def batches(
    source: Source, partition: int, start: int, end: int
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """The batches that have offsets in [start, end), whole, in order, their CRCs checked. Raises Failure."""
    offset = start
    while offset < end:
        which = f"{source.below}&partition={partition}&offset={offset}"
        path = f"/admin/restorable/{source.topic_id}/batches?{which}"
        content = await asyncio.to_thread(agent_http.fetch, source.http, f"{path}&bytes={BYTES_AT_ONCE}")
        where = f"{source.topic}-{partition} from offset {offset}"
        if not content:
            raise refused(
                f"{where}: nothing came, and it should end at {end}: is it damaged? (floe bucket scrub)"
            )
        view = memoryview(content)
        try:
            for position, size in split(view):
                header = peek(view, position)
                if header.base_offset >= end:
                    return
                if not check_crc(view, position, position + size):
                    raise CorruptBatch(f"CRC of the batch at offset {header.base_offset}")
                if header.last_offset >= offset:
                    yield header, view[position : position + size]
                    offset = header.last_offset + 1
        except CorruptBatch as error:
            raise Failure(Status.FAILED, f"{where}: what came is damaged: {error}") from None
