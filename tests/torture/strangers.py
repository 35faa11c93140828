"""Strangers at an agent's second listener: half-open connections, logins that fail, frames that are none.

Honest clients come by the first one; what strangers take of the agent they must not miss.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest

AT_ONCE = 200
"""Strangers; the agent holds HELD_MAX of them (limits.stranger_connections_max)."""
HELD_MAX = 150
HALF_OPEN_S = 1.0
REFUSED_S_MAX = 30.0
LISTENER: dict[str, object] = {
    "name": "DOOR",
    "host": "127.0.0.1",
    "protocol": "SASL_PLAINTEXT",
    "sasl_mechanisms": "PLAIN",
}
SETTINGS: dict[str, dict[str, object]] = {
    "sasl": {"admin_user": "admin", "admin_password": "nobody-knows", "failed_delay_ms": 100},
    "limits": {"stranger_connections_max": HELD_MAX},
}


def framed(name: str, request: object) -> bytes:
    """A request as it is sent."""
    api = BY_NAME[name]
    header = encode_request_header(api, 1, 1, "stranger")
    return bytes(frame_request(header, api.codec().encode_request(request, 1)))


HANDSHAKE = framed("SaslHandshake", SaslHandshakeRequest(mechanism="PLAIN"))
GUESS = framed("SaslAuthenticate", SaslAuthenticateRequest(auth_bytes=b"\0admin\0guess"))
SAID = (
    (b"", HALF_OPEN_S),
    (HANDSHAKE[:7], HALF_OPEN_S),
    (HANDSHAKE, HALF_OPEN_S),
    (HANDSHAKE + GUESS, REFUSED_S_MAX),
    (HANDSHAKE + GUESS, REFUSED_S_MAX),
    ((1 << 30).to_bytes(4, "big") + bytes(60), REFUSED_S_MAX),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", REFUSED_S_MAX),
)
"""Nothing, a piece, half of a login, a login that fails, a frame beyond all bounds, a TLS hello; and how long
who says it stays. The last ones stay until the agent has ended them, which on a busy machine takes it longer
than the first ones wait: 200 who all went before that were a flood that was never turned away.
"""


class Flood:
    """Against one agent. `begin` and `end` are called in the loop that it is to run in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ended_by_agent = 0
        """Connections that the agent closed or cut."""
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """So many strangers come, and come again."""
        self._tasks = [asyncio.ensure_future(self._stranger(number)) for number in range(AT_ONCE)]

    def end(self) -> None:
        """They are gone."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def _stranger(self, number: int) -> None:
        rng = random.Random(number)
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.1)  # the agent is not there
                continue
            try:
                said, stays_s = rng.choice(SAID)
                writer.write(said)
                with suppress(TimeoutError):
                    async with asyncio.timeout(stays_s):
                        while await reader.read(1024):
                            pass
                        self.ended_by_agent += 1
            except ConnectionError:
                self.ended_by_agent += 1
            finally:
                writer.transport.abort()
