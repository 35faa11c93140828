"""The registry: which APIs the codecs know, in which versions, and where their module is.

What an agent *advertises* is the list of its handlers, which may be shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, cast

from agent.net.wire.generated import TABLE
from agent.net.wire.primitives import Buffer

API_VERSIONS: Final = 18
PRODUCE: Final = 0


class Codec(Protocol):
    """A generated module, seen by code that does not know which message it holds."""

    def decode_request(self, buf: Buffer, version: int) -> Any:
        """Decode the body of a request. Raises WireError."""

    def encode_request(self, message: Any, version: int) -> list[Buffer]:
        """Encode the body of a request."""

    def decode_response(self, buf: Buffer, version: int) -> Any:
        """Decode the body of a response. Raises WireError."""

    def encode_response(self, message: Any, version: int) -> list[Buffer]:
        """Encode the body of a response."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response's body that a handler encoded itself, where most of it was ready."""

    buffers: list[Buffer]


@dataclass(frozen=True, slots=True)
class Api:
    """One API: key, Kafka's name, the closed range of versions, the first flexible version (or -1)."""

    key: int
    name: str
    min: int
    max: int
    flexible_from: int
    module: str

    def flexible(self, version: int) -> bool:
        """Whether this version uses compact lengths and tagged fields (KIP-482)."""
        return 0 <= self.flexible_from <= version

    def request_header(self, version: int) -> int:
        """Version of the request's header."""
        return 2 if self.flexible(version) else 1

    def response_header(self, version: int) -> int:
        """Version of the response's header. Of ApiVersions always 0: its client cannot know yet (KIP-511)."""
        return 1 if self.flexible(version) and self.key != API_VERSIONS else 0

    def codec(self) -> Codec:
        """The generated module, imported when first asked for."""
        return cast(Codec, import_module(f"agent.net.wire.generated.{self.module}"))


APIS: Final[dict[int, Api]] = {row[0]: Api(*row) for row in TABLE}
BY_NAME: Final[dict[str, Api]] = {api.name: api for api in APIS.values()}
