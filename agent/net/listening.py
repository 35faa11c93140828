"""What is known of a listener, of a connection and of a request: what the server tells the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from agent.net.admission import UNLIMITED, ListenerLimits
from agent.net.tls import Tls
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer

_NOTHING: Final = memoryview(b"")
ANONYMOUS: Final = "ANONYMOUS"
"""Whoever did not say who they are, as Kafka calls them (`User:ANONYMOUS`)."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen. Port 0 takes a free one.

    `tls`: its certificates, where it speaks TLS. `login`: whether nobody is served before a SASL login.
    """

    name: str
    host: str
    port: int
    tls: Tls | None = None
    login: bool = False
    limits: ListenerLimits = UNLIMITED


class Place(Protocol):
    """Where the end of a request that waits without a task is told, once."""

    def answer(self, body: bytes) -> None:
        """Its answer's body."""
        ...

    def serve(self, frame: bytes) -> None:
        """It is to be dispatched after all, in the turn that it has. `frame`: without its size."""
        ...


class Parked(Protocol):
    """A request that waits without a task."""

    def cancel(self) -> None:
        """Its connection is gone: nothing is told of it any more."""
        ...


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """What is known of a connection for as long as it lives."""

    id: int
    listener: str
    peer_host: str
    software_name: str = ""
    software_version: str = ""
    only_api_versions: bool = True
    """Whether no other request has come yet: the fence of transactions v1 asks for it."""
    requests: int = 0
    """How many have been read, but for those that wait without a task."""
    session: Any = None
    """The dispatcher's own state of this connection."""
    on_lost: Callable[[], None] | None = None
    """Set by the dispatcher: called once when the connection is gone."""
    room: Callable[[], asyncio.Future[None] | None] = lambda: None
    """None, or what ends when the client has taken enough of its answers, or is gone: before that no large
    answer should be begun."""
    principal: str = ANONYMOUS
    """Whose connection it is: by the certificate, or since the login by the name there. Without `User:`."""
    stranger: bool = False
    """Whether a login is asked for that has not come: little is read of such a connection."""
    queued: int = 0
    """Requests that wait for their turn among those of strangers."""
    metered: bool = False
    """The dispatcher says: what comes is counted, so nothing is read beyond a request before it has begun."""
    mute: Callable[[float], None] = lambda seconds: None
    """Stops reading the connection for so many seconds (KIP-219)."""
    welcome: Callable[[str], None] = lambda principal: None
    """The dispatcher says: the login is done, by this principal."""
    again: Callable[[memoryview, Place], Parked | None] | None = None
    """Set by the dispatcher: asked with each frame before which nothing is unanswered. None: it is to be
    dispatched. Else the request has its turn and waits without a task."""


@dataclass(slots=True)
class RequestContext:
    """One request's surroundings."""

    connection: ConnectionInfo
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    frame: memoryview = _NOTHING
    """The whole request, without its size."""
    waited_s: float = 0.0
    """How long it has waited without a task, seconds."""
    has_turn: bool = False
    """Whether it had its turn already, in which it waited."""
    number: int = field(init=False)
    """How many of its connection have been read with it."""

    def __post_init__(self) -> None:
        self.connection.requests += 1
        self.number = self.connection.requests


Dispatch = Callable[[RequestContext, RequestHeader, memoryview], Awaitable[list[Buffer] | None]]
"""Answers one request: the buffers of the response's body, or None for no answer at all (acks=0).

Raises WireError for a body that is not the message it claims to be (the connection is closed), BadVersion
for a version that is not served.
"""
