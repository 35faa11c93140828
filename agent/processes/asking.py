"""What the watching process asks an agent, over a Unix socket that only these two know.

It needs no certificate, no login and no port: an agent answers there whatever its own HTTP asks of others.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

LIVEZ: Final = "/livez"
READYZ: Final = "/readyz"
METRICS: Final = "/metrics"
ABOUT: Final = "/about"
ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """`status` 0: none came."""

    status: int
    body: bytes = b""

    def json(self) -> Mapping[str, Any]:
        """What it says; nothing where it is no JSON object."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("agent", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """See http.client.HTTPConnection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


async def ask(path: Path, what: str, seconds: float) -> Answer:
    """GET `what` of the agent at a socket; every pause takes at most so many seconds."""
    return await asyncio.to_thread(_asked, path, what, seconds)


def _asked(path: Path, what: str, seconds: float) -> Answer:
    connection = _Connection(path, seconds)
    try:
        connection.request("GET", what)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException):
        return Answer(0)
    finally:
        connection.close()
