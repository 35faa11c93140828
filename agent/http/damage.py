"""/admin/topics/{name}/damaged and …/skipped: find damaged records in the store, decide to go on without.

Kafka's protocol has no request for this. A decision is a command of the log (coordination/state/skipped.py).
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.admin import topic_of
from agent.http.answers import Problem, number, parse_json, read_body, refused
from agent.http.barrier import barrier, submit
from agent.http.parts import Parts
from agent.telemetry.logs import logger
from coordination.commands import SkipDamaged, command
from coordination.state.skipped import BY_LENGTH_MAX, RANGES_MAX
from coordination.state.types import Partition, Refused, Topic
from objectstore.offset_ranges import covered
from objectstore.store import StoreError
from objectstore.verification import Verification

_log = logger("damage")

BYTES_PER_LOOK = 32 << 20  # of records that one request looks through, about


class Skip(BaseModel):
    """What somebody asks to pass over: offset ranges [start, end) of a partition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: int = Field(ge=0)
    ranges: list[tuple[int, int]] = Field(min_length=1, max_length=RANGES_MAX)
    by: str = Field(min_length=1, max_length=BY_LENGTH_MAX)


class DamageRoutes:
    """Looks through partitions, one at a time, and reads and changes what is passed over."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._one_at_a_time = asyncio.Lock()

    async def damaged(self, request: Request) -> Response:
        """What is damaged from offset `from` of `partition` on; go on at `to` until that is `end`."""
        index, start = number(request, "partition"), number(request, "from", 0)
        await barrier(self._parts)
        handle = self._partition(topic_of(self._parts, request), index).handle

        def look() -> Partition:
            found = self._parts.replica.state.partitions[handle]
            if found is None:
                raise Problem(404, "the topic was deleted meanwhile")
            return found

        async with self._one_at_a_time:
            look_through = Verification(self._parts.store, look, lambda: barrier(self._parts))
            try:
                done = await look_through.run(start, BYTES_PER_LOOK)
            except (StoreError, TimeoutError) as error:
                raise Problem(503, f"records cannot be read: {error!r}", "see /status, try again") from None
        partition = look()
        damaged = [
            {
                "from_offset": each.start,
                "to_offset": each.end,
                "reason": each.reason,
                "skipped": covered(each.start, each.end, partition.skipped),
            }
            for each in done.damaged
        ]
        bounds = {"from": done.start, "to": done.end, "end": partition.high_watermark}
        return JSONResponse({"topic": partition.topic.name, "partition": index, **bounds, "damaged": damaged})

    async def skipped(self, request: Request) -> Response:
        """The ranges of every partition of the topic that are passed over, as of now."""
        await barrier(self._parts)
        topic = topic_of(self._parts, request)
        rows = [row for partition in topic.partitions for row in _shown(partition)]
        return JSONResponse({"topic": topic.name, "skipped": rows})

    async def skip(self, request: Request) -> Response:
        """Pass over damage in these ranges; answers with all of the partition after it."""
        wanted = _wanted(await read_body(request, self._parts.config.http.body_bytes_max))
        await barrier(self._parts)
        partition = self._partition(topic_of(self._parts, request), wanted.partition)
        message = SkipDamaged(
            partition=partition.handle,
            start=[start for start, _ in wanted.ranges],
            end=[end for _, end in wanted.ranges],
            by=wanted.by,
        )
        result = await submit(self._parts, command(message))
        if isinstance(result, Refused):
            raise refused(result)
        partition = self._partition(topic_of(self._parts, request), wanted.partition)
        named = {"topic": partition.topic.name, "partition": partition.index}
        _log.warning("damage is passed over", **named, ranges=wanted.ranges[:20], by=wanted.by)
        return JSONResponse({**named, "skipped": _shown(partition)})

    def _partition(self, topic: Topic, index: int) -> Partition:
        if index >= len(topic.partitions):
            raise Problem(
                404, f"topic {topic.name!r} has no partition {index}: it has {len(topic.partitions)}"
            )
        return topic.partitions[index]


def _shown(partition: Partition) -> list[dict[str, object]]:
    return [
        {
            "partition": partition.index,
            "from_offset": each.start,
            "to_offset": each.end,
            "since_ms": each.since_ms,
            "by": each.by,
        }
        for each in partition.skipped
    ]


def _wanted(body: bytes) -> Skip:
    try:
        wanted = Skip.model_validate(parse_json(body))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise Problem(400, f"{place}: {first['msg']}", f"fields are {', '.join(Skip.model_fields)}") from None
    bound = 1 << 63
    if any(not -bound <= offset < bound for pair in wanted.ranges for offset in pair):
        raise Problem(400, "ranges: an offset has at most 63 bits", "give [first, behind the last] offsets")
    return wanted
