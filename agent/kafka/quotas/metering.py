"""What happens around a handler while there are quotas (KIP-219).

The answer leaves at once and says for how long its connection is not read (`throttle_time_ms`); that
begins with it, for Produce with the request. A consumer that may have
none now gets an answer without records, by the handler of Fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from struct import pack
from typing import Any, Final

from agent.kafka.quotas.quotas import Charge
from agent.kafka.quotas.spent import Spent
from agent.net.wire.api import APIS, PRODUCE, Codec, Encoded
from agent.net.wire.primitives import Buffer
from coordination.state import quotas as keys

FETCH: Final = 1
LOGINS: Final = frozenset((17, 36))  # SaslHandshake, SaslAuthenticate: nobody is known yet
THROTTLE_BYTES: Final = 4


class Metering:
    """Around one request. `mute`: stops reading its connection for so many seconds."""

    __slots__ = ("_charge", "_codec", "_key", "_mute", "_now", "_throttle_ms", "_version")

    def __init__(
        self,
        charge: Charge,
        api_key: int,
        version: int,
        codec: Codec,
        now: Callable[[], float],
        mute: Callable[[float], None],
    ) -> None:
        self._charge, self._key, self._version, self._codec = charge, api_key, version, codec
        self._now, self._mute = now, mute
        self._throttle_ms = 0

    def begin(self, request: Any, size: int) -> None:
        """Before the handler. `size`: of the request, bytes."""
        if self._key == PRODUCE:
            self._charge.take(keys.PRODUCE, size)
            self._throttle()  # now: those behind it overlap, and are read before this one is answered
        elif self._key == FETCH and (most := self._charge.fetch_bytes_max()) is not None:
            request.max_bytes = min(request.max_bytes, most)
            request.min_bytes = min(request.min_bytes, most)

    async def handle(self, work: Coroutine[Any, Any, Any], unanswered: bool) -> list[Buffer] | None:
        """The answer's body. `unanswered`: of acks=0, whose time does not count, as in Kafka."""
        if self._key in LOGINS or unanswered or self._charge.limit(keys.REQUEST) is None:
            return self._answer(await work)
        spent = Spent(self._now)
        response = await spent.on(work)
        self._charge.spent(spent.seconds)
        begun = self._now()
        body = self._answer(response)
        self._charge.spent(self._now() - begun, throttle=False)
        return body

    def _answer(self, response: Any) -> list[Buffer] | None:
        if response is None:
            self._throttle()
            return None
        throttle_ms = self._throttle()
        if isinstance(response, Encoded):
            return _patched(response.buffers, throttle_ms, self._key, self._version)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return self._codec.encode_response(response, self._version)

    def _throttle(self) -> int:
        """Stop reading for what was taken since; gives what the answer says of all."""
        throttle_ms = self._charge.settle()
        if throttle_ms:
            self._mute(throttle_ms / 1000)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        return self._throttle_ms


def _patched(body: list[Buffer], throttle_ms: int, key: int, version: int) -> list[Buffer]:
    """A body that was encoded before the time was known."""
    if not throttle_ms or not _comes_first(key, version):
        return body
    whole = b"".join(body)
    return [pack(">i", throttle_ms), memoryview(whole)[THROTTLE_BYTES:]]


@cache
def _comes_first(key: int, version: int) -> bool:
    """Whether a response of this kind begins with `throttle_time_ms`."""
    codec = APIS[key].codec()
    message = getattr(codec, f"{APIS[key].name}Response")
    with_it, without = (
        b"".join(codec.encode_response(message(throttle_time_ms=time), version))[:THROTTLE_BYTES]
        for time in (1, 0)
    )
    return with_it == pack(">i", 1) and without == pack(">i", 0)
