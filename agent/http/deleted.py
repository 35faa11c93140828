"""/admin/deleted-topics: topics that were deleted and can come back; bringing one back, letting go of one.

Kafka's protocol has no request for this. What is done is one command of the log
(coordination/state/deleted.py, undeleting.py).
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, parse_json, read_body, refused
from agent.http.barrier import barrier, submit
from agent.http.parts import Parts
from agent.telemetry.logs import logger
from coordination.commands import PurgeTopics, UndeleteTopic, command
from coordination.state.deleted import WEIGHT_MAX
from coordination.state.state import State
from coordination.state.topics import TOPIC_ID_BYTES, TOPIC_NAME_LENGTH_MAX
from coordination.state.types import DeletedTopic, Refused
from coordination.state.undeleting import ids_refusal

_log = logger("deleted topics")

_LIST = "floe topic list --deleted shows them"


class Wanted(BaseModel):
    """Which deleted topic is meant: by the name that it had, or by its id in hexadecimal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str = Field(min_length=1, max_length=TOPIC_NAME_LENGTH_MAX)


class Undelete(Wanted):
    """`name`: that it is to have; empty: the one it had."""

    name: str = Field(default="", max_length=TOPIC_NAME_LENGTH_MAX)


_Body = TypeVar("_Body", bound=BaseModel)


class DeletedRoutes:
    """Lists deleted topics, brings them back, lets go of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Response:
        """All of them as of now, the oldest first, and what they take of the state."""
        await barrier(self._parts)
        state = self._parts.replica.state
        rows = [as_json(each) for each in state.deleted.values()]
        held = {"state_bytes": state.deleted_weight, "state_bytes_max": WEIGHT_MAX}
        return JSONResponse({"topics": rows, **held})

    async def undelete(self, request: Request) -> Response:
        """Bring one back; answers with its name and id."""
        wanted = await self._asked(request, Undelete)
        state = self._parts.replica.state
        found = found_by(state, wanted.topic)
        misread = ids_refusal(state, found)
        if misread is not None:
            raise refused(misread)
        message = UndeleteTopic(topic_id=found.topic.topic_id, name=wanted.name)
        result = await submit(self._parts, command(message))
        if isinstance(result, Refused):
            raise refused(result)
        told = {"topic": found.topic.name, "topic_id": found.topic.topic_id.hex()}
        _log.info("a deleted topic is there again", **told)
        return JSONResponse(told)

    async def purge(self, request: Request) -> Response:
        """Let go of one for good, whatever its time."""
        wanted = await self._asked(request, Wanted)
        found = found_by(self._parts.replica.state, wanted.topic)
        told = as_json(found)
        result = await submit(self._parts, command(PurgeTopics(topic_id=[found.topic.topic_id])))
        if isinstance(result, Refused):
            raise refused(result)
        _log.warning("a deleted topic is let go of", topic=told["topic"], topic_id=told["topic_id"])
        return JSONResponse({"purged": told})

    async def _asked(self, request: Request, body: type[_Body]) -> _Body:
        return await asked(self._parts, request, body)


async def asked(parts: Parts, request: Request, body: type[_Body]) -> _Body:
    """What the request's body says, after a read barrier. Raises Problem 400 for another body."""
    content = await read_body(request, parts.config.http.body_bytes_max)
    try:
        wanted = body.model_validate(parse_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        told = f"fields are {', '.join(body.model_fields)}"
        raise Problem(400, f"{place}: {first['msg']}", told) from None
    await barrier(parts)
    return wanted


def found_by(state: State, named: str) -> DeletedTopic:
    """By id, else by name. Raises Problem 404 for none and 409 where several had the name."""
    by_id = state.deleted.get(_topic_id(named))
    if by_id is not None:
        return by_id
    found = [each for each in state.deleted.values() if each.topic.name == named]
    if not found:
        what = f"no deleted topic is called {named[:TOPIC_NAME_LENGTH_MAX]!r} or has that id"
        raise Problem(404, what, _LIST)
    if len(found) > 1:
        ids = ", ".join(each.topic.topic_id.hex() for each in found[-5:])
        raise Problem(409, f"{len(found)} deleted topics were called {named!r}", f"give an id: {ids}")
    return found[0]


def as_json(found: DeletedTopic) -> dict[str, object]:
    """What is told of a deleted topic. `by` is empty where that is not known."""
    topic = found.topic
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partitions": len(topic.partitions),
        "size_bytes": found.size_bytes,
        "deleted_ms": found.deleted_ms,
        "until_ms": found.until_ms,
        "by": found.by,
    }


def _topic_id(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        return b""
    return found if len(found) == TOPIC_ID_BYTES else b""
