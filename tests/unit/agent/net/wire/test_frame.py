"""Headers and frames, against kio's, and what is refused."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as Kio1
from kio.schema.request_header.v2.header import RequestHeader as Kio2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponse0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponse1
from kio.serial import entity_reader, entity_writer

from agent.net.wire.api import APIS, BY_NAME
from agent.net.wire.errors import WireError
from agent.net.wire.frame import (
    BadVersion,
    UnknownApi,
    encode_request_header,
    frame_request,
    frame_response,
    parse_request_header,
    parse_response_header,
)
from agent.net.wire.generated import TABLE

FETCH, API_VERSIONS, METADATA = BY_NAME["Fetch"], BY_NAME["ApiVersions"], BY_NAME["Metadata"]


@pytest.mark.parametrize("client_id", ["me", "", None, "ü" * 200])
@pytest.mark.parametrize(("version", "kio"), [(11, Kio1), (12, Kio2)])
def test_request_headers_agree_with_kio(version: int, kio: type, client_id: str | None) -> None:
    ours = encode_request_header(FETCH, version, 77, client_id)
    theirs, end = entity_reader(kio)(ours, 0)
    assert end == len(ours)
    assert (theirs.request_api_key, theirs.request_api_version) == (1, version)
    assert (theirs.correlation_id, theirs.client_id) == (77, client_id)
    out = io.BytesIO()
    entity_writer(kio)(out, theirs)
    assert out.getvalue() == ours
    assert parse_request_header(ours + b"body") == (1, version, 77, client_id, len(ours))


def test_unknown_tags_of_a_header_are_skipped() -> None:
    header = encode_request_header(FETCH, 12, 1, "x")[:-1] + b"\x02\x00\x03abc\x81\x01\x00"
    assert parse_request_header(memoryview(header + b"body")).body == len(header)


def test_a_client_id_that_is_not_text_is_shown_as_well_as_can_be() -> None:
    header = encode_request_header(FETCH, 11, 1, "xy").replace(b"xy", b"x\xff")
    assert parse_request_header(header).client_id == "x\ufffd"


@pytest.mark.parametrize(
    ("payload", "error", "text"),
    [
        (b"", WireError, "request of 0 bytes"),
        (b"\0\x01\0\x0b\0\0\0\x01", WireError, "client id is missing"),
        (b"\0\x01\0\x0b\0\0\0\x01\0\x05ab", WireError, "client id of 5 bytes announced, 2 left"),
        (b"\0\x01\0\x0b\0\0\0\x01\xff\xfe", WireError, "client id of -2 bytes"),
        (b"\0\x01\0\x0c\0\0\0\x01\xff\xff", WireError, "header of Fetch v12"),
        (
            b"\0\x01\0\x0c\0\0\0\x01\xff\xff\x01\x00\x05a",
            WireError,
            "tagged field 0: 5 bytes announced, 1 left",
        ),
        (b"\0\x07\0\0\0\0\0\x01", UnknownApi, "API key 7 "),
        (b"\0\x47\0\0\0\0\0\x01", UnknownApi, "API key 71 "),  # telemetry: clients that see it call it always
        (b"\0\x01\0\x03\0\0\0\x01", BadVersion, "Fetch v3: only 4 to 18"),
    ],
)
def test_bad_headers_are_refused(payload: bytes, error: type[WireError], text: str) -> None:
    with pytest.raises(error, match=text):
        parse_request_header(payload)


@pytest.mark.parametrize(("version", "kio", "size"), [(11, KioResponse0, 4), (12, KioResponse1, 5)])
def test_response_headers_agree_with_kio(version: int, kio: type, size: int) -> None:
    parts = frame_response(FETCH, version, 77, [b"bo", memoryview(b"dy")])
    frame = b"".join(parts)
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    theirs, end = entity_reader(kio)(frame[4:], 0)
    assert (theirs.correlation_id, end) == (77, size)
    assert parse_response_header(FETCH, version, frame[4:]) == (77, size)
    assert frame[4 + size :] == b"body"


def test_api_versions_answers_with_header_version_0_in_every_version() -> None:
    for version in range(API_VERSIONS.max + 1):
        assert b"".join(frame_response(API_VERSIONS, version, 1, [b"x"])) == b"\0\0\0\x05\0\0\0\x01x"


def test_sasl_handshake_is_never_flexible() -> None:
    handshake = BY_NAME["SaslHandshake"]
    assert [handshake.request_header(v) for v in range(handshake.max + 1)] == [1, 1]


def test_a_request_frame_begins_with_its_size() -> None:
    assert frame_request(b"head", [b"bo", b"dy"]) == b"\0\0\0\x08headbody"


def test_modules_are_imported_when_they_are_needed() -> None:
    assert [(api.key, api.name) for api in APIS.values()] == [row[:2] for row in TABLE]
    assert METADATA.codec().decode_request(b"\xff\xff\xff\xff", 1).topics is None
