"""Answers in one shape: JSON, errors as `{"error": {"status", "message", "remedy"}}`."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from coordination.kafka_codes import Code
from coordination.state.types import Refused
from iceberg import rest_body

BODY_STILL_S_MAX: Final = 30.0
"""For how long nothing of a body may come, seconds: a request that waits for it has a place."""
BODY_BYTES_PER_S_MIN: Final = 32 * 1024
"""Bytes a second: a body has BODY_STILL_S_MAX, and as long as the largest that is taken needs at this."""
NOT_FOUND = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.RESOURCE_NOT_FOUND})


class Problem(Exception):
    """A request that is answered with an error: HTTP status, what is wrong, what to do."""

    def __init__(self, status: int, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.remedy = remedy

    def response(self) -> JSONResponse:
        """The error as an answer."""
        error = {"status": self.status, "message": self.message, "remedy": self.remedy}
        headers = {"Retry-After": "1"} if self.status == 503 else None
        return JSONResponse({"error": error}, self.status, headers=headers)


def refused(result: Refused) -> Problem:
    """What the log refused: 404 for what does not exist, 409 otherwise."""
    status = 404 if result.code in NOT_FOUND else 409
    return Problem(status, f"{result.code.name}: {result.message}")


def number(request: Request, name: str, default: int | None = None) -> int:
    """A whole number from 0 on of the query. Raises Problem 400, also where neither it nor a default is."""
    given = request.query_params.get(name)
    if given is None and default is not None:
        return default
    if given is None or not (given.isascii() and given.isdigit() and len(given) < 20):
        raise Problem(400, f"{name}={given!r} is no whole number from 0 on", f"?{name}=0")
    return int(given)


def flag(request: Request, name: str) -> bool:
    """Whether the query says `name=true`; false unless given. Raises Problem 400 for anything else."""
    given = request.query_params.get(name, "false")
    if given not in ("true", "false"):
        raise Problem(400, f"{name}={given!r} is neither true nor false", f"?{name}=true")
    return given == "true"


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The whole body. Raises Problem 413 above `bytes_max`, before more than that is held, and 408, upon
    which the connection ends (agent/http/guard.py), when it does not come."""
    declared = request.headers.get("content-length", "0")
    too_large = Problem(413, f"the body is larger than {bytes_max} bytes", "raise http.body_bytes_max")
    if declared.isdigit() and int(declared) > bytes_max:
        raise too_large
    body, now = bytearray(), asyncio.get_running_loop().time
    until = now() + BODY_STILL_S_MAX + bytes_max / BODY_BYTES_PER_S_MIN
    try:
        async with asyncio.timeout(BODY_STILL_S_MAX) as bound:
            async for part in request.stream():
                body += part
                if len(body) > bytes_max:
                    raise too_large
                bound.reschedule(min(now() + BODY_STILL_S_MAX, until))
    except TimeoutError:
        why = f"the body stopped for {BODY_STILL_S_MAX:g} s, or came too slowly: {len(body)} bytes are here"
        raise Problem(408, why, "send it without a pause") from None
    except ClientDisconnect:
        raise Problem(400, "the client closed the connection before its body was complete") from None
    return bytes(body)


def parse_json(body: bytes) -> object:
    """A JSON body. Raises Problem 400 with line and column."""
    try:
        return rest_body.parsed(body)
    except UnicodeDecodeError:
        raise Problem(400, "the body is not JSON in UTF-8", "send a JSON object") from None
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {error}", "send a JSON object") from None
