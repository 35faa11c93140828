"""Headers: what stands before a request's body and before a response's, and the frame around both.

A frame is a 4-byte size and that many bytes. Every request begins with API key, version and correlation
id (header version 0), then the client id (1), then tagged fields (2). The client id is a plain string with
a 2-byte length even in version 2 (KIP-482).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from agent.net.wire.api import API_VERSIONS, APIS, Api
from agent.net.wire.errors import UnsupportedVersion, WireError
from agent.net.wire.generated import api_versions
from agent.net.wire.primitives import Buffer, skip_tags

SIZE_BYTES = 4
HEADER_BYTES_MIN = 8
"""API key, version and correlation id: the least that a request can be, bytes."""

UNSUPPORTED_VERSION = 35

_FIXED = Struct(">hhi")
_FIXED_AND_LENGTH = Struct(">hhih")
_RESPONSE = (Struct(">ii"), Struct(">iix"))


class RequestHeader(NamedTuple):
    """The header of a request and where its body begins, in bytes from the start of the frame's payload."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


class UnknownApi(WireError):
    """An API key that this agent does not speak."""


class BadVersion(UnsupportedVersion):
    """A known API in an unknown version. Says enough to answer ApiVersions (KIP-511)."""

    def __init__(self, api: Api, version: int, correlation_id: int) -> None:
        super().__init__(f"{api.name} v{version}: only {api.min} to {api.max} are supported")
        self.api = api
        self.correlation_id = correlation_id


def parse_request_header(payload: Buffer) -> RequestHeader:
    """Parse the header of a request, `payload` being the frame without its size.

    Raises UnknownApi, BadVersion, or WireError for a header that is cut short or malformed.
    """
    size = len(payload)
    if size < HEADER_BYTES_MIN:
        raise WireError(f"request of {size} bytes: its header alone takes {HEADER_BYTES_MIN}")
    key, version, correlation_id = _FIXED.unpack_from(payload)
    api = APIS.get(key)
    if api is None:
        raise UnknownApi(f"API key {key} (version {version}) is not supported")
    if not api.min <= version <= api.max:
        raise BadVersion(api, version, correlation_id)
    try:
        client_id, pos = _client_id(payload, size)
        if api.flexible(version):
            count = payload[pos]
            pos += 1
            if count:
                pos = skip_tags(payload, pos, count, size)
    except (ValueError, IndexError) as error:
        raise WireError(f"header of {api.name} v{version}: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id, pos)


def _client_id(payload: Buffer, size: int) -> tuple[str | None, int]:
    if size < _FIXED_AND_LENGTH.size:
        raise ValueError("the client id is missing")
    length = _FIXED_AND_LENGTH.unpack_from(payload)[3]
    pos = _FIXED_AND_LENGTH.size
    if length == -1:
        return None, pos
    end = pos + length
    if not pos <= end <= size:
        raise ValueError(f"client id of {length} bytes announced, {size - pos} left")
    # Only shown to people: bytes that are not UTF-8 do not matter, as in Kafka.
    return str(payload[pos:end], "utf-8", "replace"), end


def encode_request_header(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request, for tools and tests."""
    name = b"" if client_id is None else client_id.encode()
    head = _FIXED_AND_LENGTH.pack(api.key, version, correlation_id, -1 if client_id is None else len(name))
    return head + name + (b"\0" if api.flexible(version) else b"")


def frame_request(header: bytes, body: list[Buffer]) -> bytes:
    """A whole request frame in one piece, for tools and tests."""
    payload = b"".join((header, *body))
    return len(payload).to_bytes(SIZE_BYTES, "big") + payload


def frame_response(api: Api, version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """A response frame: size and header in front of the body's buffers, none of which is copied."""
    header = api.response_header(version)
    size = sum(map(len, body)) + SIZE_BYTES + header
    return [_RESPONSE[header].pack(size, correlation_id), *body]


def parse_response_header(api: Api, version: int, payload: Buffer) -> tuple[int, int]:
    """Correlation id of a response and where its body begins, for tools and tests. Raises WireError."""
    try:
        correlation_id = int.from_bytes(payload[:4], "big", signed=True)
        if api.response_header(version) == 0:
            return correlation_id, 4
        return correlation_id, skip_tags(payload, 5, payload[4], len(payload))
    except (ValueError, IndexError) as error:
        raise WireError(f"header of a {api.name} v{version} response: {error}") from error


def unsupported_api_versions() -> list[Buffer]:
    """The body that answers an ApiVersions request of an unknown version: version 0, error 35 (KIP-511)."""
    api = APIS[API_VERSIONS]
    spoken = api_versions.ApiVersion(api.key, api.min, api.max)
    answer = api_versions.ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[spoken])
    return api_versions.encode_response(answer, 0)
