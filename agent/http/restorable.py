"""/admin/restorable/{name}: a topic as it lies in the log, also a deleted one, for `floe restore topic`.

Batches come as they were written: with transactions' markers and with what was aborted, so that whoever asks
can tell what was committed at any offset. Kafka's Fetch gives none of a deleted topic.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, number
from agent.http.asking import require
from agent.http.barrier import barrier
from agent.http.console.reading import readable
from agent.http.deleted import found_by
from agent.http.needs import ALTER, ALTER_CLUSTER, READ
from agent.http.parts import Parts
from agent.telemetry.trail import http_actor
from coordination.config_types import NAME_SHOWN_MAX
from coordination.kafka_codes import Code
from coordination.state.types import Partition, Topic

BYTES_MAX: Final = 16 << 20
"""Of one answer, about: it ends with a whole batch, and has one at least."""
READS_MAX: Final = 4
"""At once on one agent; further ones wait."""
_PROBLEMS: Final = {
    Code.CORRUPT_MESSAGE: (409, "its records are damaged there", "floe topic skip-damaged passes over them"),
    Code.OFFSET_OUT_OF_RANGE: (409, "the topic has not that offset any more", "begin anew"),
}


class RestorableRoutes:
    """Tells where a topic begins and ends, and gives its batches."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._turn = asyncio.Semaphore(READS_MAX)

    async def topic(self, request: Request) -> Response:
        """What it is: id, own configs, where each partition begins and ends; with `held=true`, where what is
        held below its log start does.
        """
        await barrier(self._parts)
        topic, deleted = self.found(request)
        held = reaches_below(request)
        state = self._parts.replica.state
        its = state.tables_by_topic.get(topic.topic_id)
        partitions = [
            {"partition": each.index, "start": first(each, held=held), "end": each.high_watermark}
            for each in topic.partitions
        ]
        return JSONResponse(
            {
                "topic": topic.name,
                "topic_id": topic.topic_id.hex(),
                "deleted": deleted,
                "configs": dict(topic.configs),
                "table": None if its is None else ".".join(its),
                "partitions": partitions,
            }
        )

    async def batches(self, request: Request) -> Response:
        """Those of `partition` from the one that holds `offset` on, `bytes` of them about; empty: the end."""
        shown = readable(self._parts)
        topic, _ = self.found(request)
        partition = _partition(topic, number(request, "partition"))
        offset, bytes_max = number(request, "offset"), number(request, "bytes", BYTES_MAX)
        async with self._turn:
            handle, most = partition.handle, min(bytes_max, BYTES_MAX)
            actor, held = http_actor.get(), reaches_below(request)
            read = await shown.as_written(actor, handle, offset, most, held=held)
        if read is None:
            raise Problem(404, f"{topic.name} is gone", "its time was over while it was read")
        code, batches = read
        if code is not Code.NONE:
            where = f"{topic.name}-{partition.index} at offset {offset}: {code.name}"
            status, what, remedy = _PROBLEMS.get(code, (503, "it cannot be read now", "try again"))
            raise Problem(status, f"{where}: {what}", remedy)
        return Response(b"".join(batches), media_type="application/octet-stream")

    def found(self, request: Request) -> tuple[Topic, bool]:
        """The topic of that name or id, and whether it is deleted. Raises Problem 403, 404, 409."""
        name, state = str(request.path_params["name"]), self._parts.replica.state
        live = state.topics.get(name) or _by_id(state.topics_by_id, name)
        if live is not None:
            require(self._parts, READ, live.name)
            if reaches_below(request):  # what somebody deleted is not for every reader
                require(self._parts, ALTER, live.name)
        else:
            require(self._parts, ALTER_CLUSTER)
        topic = live or found_by(state, name).topic
        kafka = self._parts.kafka()
        if kafka is not None and not kafka.reads_all(http_actor.get(), topic):
            raise Problem(
                403,
                f"topic {topic.name[:NAME_SHOWN_MAX]} hides fields from you (floe.redact)",
                "ask as one of redaction.cleared_principals: they would be lost",
            )
        return topic, live is None


def reaches_below(request: Request) -> bool:
    """Whether records that are held below log starts are asked for, too. Raises Problem 400."""
    text = request.query_params.get("held", "false")
    if text not in ("true", "false"):
        raise Problem(400, f"held: {text[:NAME_SHOWN_MAX]!r} is neither true nor false", "give one of them")
    return text == "true"


def first(partition: Partition, *, held: bool) -> int:
    """The first offset that is given."""
    return partition.held_start if held else partition.log_start


def _by_id(topics: dict[bytes, Topic], text: str) -> Topic | None:
    try:
        return topics.get(bytes.fromhex(text))
    except ValueError:
        return None


def _partition(topic: Topic, index: int) -> Partition:
    if index >= len(topic.partitions):
        last = len(topic.partitions) - 1
        raise Problem(404, f"{topic.name} has the partitions 0 to {last}", "name one of them")
    return topic.partitions[index]
