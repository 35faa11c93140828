"""A replica's refusals say why, in each protocol's shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from agent.http.needs import TOKENS_PATH
from agent.http.shapes import forbidden
from agent.kafka.context import Client, Services
from agent.kafka.dispatch import Dispatcher
from agent.kafka.order import KINDS, METADATA, Kind
from agent.net.listening import RequestContext
from agent.net.wire.api import APIS
from agent.net.wire.frame import RequestHeader
from agent.net.wire.primitives import Buffer
from coordination.following.archived import READ_ONLY

NOT_SERVED: Final = frozenset({38, 39, 40})
"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken ask no ACL: they are not advertised."""
LOGIN: Final = frozenset({17, 36})
WRITES: Final = frozenset(
    key for key, kind in KINDS.items() if kind is not Kind.READ and kind is not Kind.POLL
)
REFUSED: Final = (WRITES - {METADATA} - LOGIN - NOT_SERVED) | {11, 14}
"""APIs that change something; the last are JoinGroup and SyncGroup."""
READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ReadOnlyDispatcher(Dispatcher):
    """Has every refusal name the remedy, where the API has room for it."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        for key in NOT_SERVED:
            del self._served[key]

    async def answer(
        self, client: Client, header: RequestHeader, body: memoryview, asked: RequestContext | None = None
    ) -> list[Buffer] | None:
        answered = await super().answer(client, header, body, asked)
        if answered is None or header.api_key not in REFUSED:
            return answered
        codec = APIS[header.api_key].codec()
        response = codec.decode_response(b"".join(answered), header.api_version)
        for row in _rows(response):
            if getattr(row, "error_code", 0) and hasattr(row, "error_message"):
                row.error_message = READ_ONLY
        return codec.encode_response(response, header.api_version)


def _rows(message: Any) -> Iterator[Any]:
    """The message and all that it is made of."""
    yield message
    for each in fields(message):
        held = getattr(message, each.name)
        for inner in held if isinstance(held, list) else (held,):
            if is_dataclass(inner):
                yield from _rows(inner)


class ReadOnlyHttp:
    """Pure ASGI middleware around the whole application: nothing that changes something comes to a route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _only_asks(scope["method"], scope["path"]):
            await self.app(scope, receive, send)
            return
        await forbidden(scope["path"], READ_ONLY)(scope, receive, send)


def _only_asks(method: str, path: str) -> bool:
    """Whether it only reads: a POST that does is a schema looked up or tried, or a token for the catalog."""
    if method != "POST":
        return method in READING_METHODS
    if path.startswith("/contexts/"):
        path = path[path.find("/", len("/contexts/")) :]
    looked_up = path.startswith("/subjects/") and not path.endswith("/versions")
    return looked_up or path.startswith("/compatibility/") or path == TOKENS_PATH
