"""/admin/topics/{name}/held: records below the log start that can come back; bringing them back, letting go.

Kafka's protocol has no request for this. What is done are commands of the log (coordination/state/held.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.admin import topic_of
from agent.http.answers import Problem, refused
from agent.http.barrier import barrier, submit
from agent.http.deleted import asked
from agent.http.parts import Parts
from agent.telemetry.logs import logger
from coordination.commands import PurgeRecords, UndeleteRecords, command
from coordination.state.held import ALL, PARTITIONS_AT_ONCE_MAX, grace_ms, held_bytes
from coordination.state.types import Done, Partition, Refused, Topic

_log = logger("held records")

_OFFSET_MAX: Final = (1 << 63) - 1


class Which(BaseModel):
    """Of one partition or of all; with `offset` up to there, which is of one partition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: int | None = Field(default=None, ge=0)
    offset: int | None = Field(default=None, ge=0, le=_OFFSET_MAX)


class HeldRoutes:
    """Tells what partitions hold, brings it back, lets go of it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, request: Request) -> Response:
        """What each partition of the topic holds below its log start, as of now."""
        await barrier(self._parts)
        topic = topic_of(self._parts, request)
        return JSONResponse(
            {
                "topic": topic.name,
                "grace_ms": grace_ms(self._parts.replica.state, topic),
                "partitions": [_shown(each) for each in topic.partitions if each.held],
            }
        )

    async def undelete(self, request: Request) -> Response:
        """Move log starts back to `offset`, or to the oldest record that is held; answers with them."""
        topic, chosen, offset = await self._asked(request)
        for some in _portions([each for each in chosen if each.held or offset != ALL]):
            handles, offsets = [each.handle for each in some], [offset] * len(some)
            result = await submit(self._parts, command(UndeleteRecords(partition=handles, offset=offsets)))
            if isinstance(result, Refused):
                raise refused(result)
        starts = [{"partition": each.index, "start": each.log_start} for each in chosen]
        _log.info("records are there again", topic=topic.name, partitions=starts[:20])
        return JSONResponse({"topic": topic.name, "partitions": starts})

    async def purge(self, request: Request) -> Response:
        """Let go of what is held below `offset`, or of all, for good; answers with how many offsets."""
        topic, chosen, offset = await self._asked(request)
        gone = 0
        for some in _portions([each for each in chosen if each.held]):
            handles, offsets = [each.handle for each in some], [offset] * len(some)
            result = await submit(self._parts, command(PurgeRecords(partition=handles, offset=offsets)))
            if isinstance(result, Refused):
                raise refused(result)
            gone += result.value if isinstance(result, Done) and isinstance(result.value, int) else 0
        _log.warning("held records are let go of", topic=topic.name, offsets=gone)
        return JSONResponse({"topic": topic.name, "purged_offsets": gone})

    async def _asked(self, request: Request) -> tuple[Topic, Sequence[Partition], int]:
        """The topic, which of its partitions, and up to where."""
        which = await asked(self._parts, request, Which)
        topic = topic_of(self._parts, request)
        chosen = topic.partitions if which.partition is None else topic.partitions[which.partition :][:1]
        if not chosen:
            last = len(topic.partitions) - 1
            raise Problem(404, f"{topic.name} has the partitions 0 to {last}", "name one of them")
        if which.offset is not None and len(chosen) > 1:
            what = f"offset {which.offset} is of one partition, {topic.name} has {len(chosen)}"
            raise Problem(400, what, "name the partition")
        return topic, tuple(chosen), ALL if which.offset is None else which.offset


def _portions(some: Sequence[Partition]) -> list[Sequence[Partition]]:
    most = PARTITIONS_AT_ONCE_MAX
    return [some[at : at + most] for at in range(0, len(some), most)]


def _shown(partition: Partition) -> dict[str, object]:
    return {
        "partition": partition.index,
        "held_start": partition.held_start,
        "start": partition.log_start,
        "held_bytes": held_bytes(partition),
        "size_bytes": partition.size_bytes,
        "ranges": [{"from": start, "below": end, "until_ms": until} for start, end, until in partition.held],
    }
