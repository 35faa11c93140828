"""A refused record says which field and why."""

import pytest

from schema import diagnosis
from tests.unit.schema import samples

ALL = samples.message_type(samples.ZOO, "zoo.All")
NODE = samples.message_type(samples.ZOO, "zoo.Node")
ORDER = samples.message_type(samples.LEGACY, "legacy.Order")
FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x08", "field `year`: truncated varint at byte 1"),
        (b"\x08\xff\xff", "field `year`: truncated varint at byte 3"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "in field `year`: varint longer than 10 bytes before byte 11"),
        (b"\x52\x05UA", "field `carrier`: length 5 at byte 2, but 2 bytes are left"),
        (b"\x52\x02\xff\xfe", "field `carrier`: invalid UTF-8 at byte 2"),
        (b"\x31\x00\x00", "field `dep_delay`: 8 bytes needed at byte 1, 2 left"),
        (b"\x08\x01\x00\x00", "no field starts at byte 2 (bytes 0000)"),
        (b"\x08\x01\x0f", "no field starts at byte 2 (bytes 0f)"),
        (b"\x80", "truncated or overlong tag at byte 1"),
        (b"\x0c", "no field starts at byte 0 (bytes 0c)"),
        (b"\x0b", "field `year`: group without end"),
    ],
)
def test_broken_flights(payload: bytes, reason: str) -> None:
    assert diagnosis.why_unparsable(payload, FLIGHT.descriptor) == reason


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xa2\x01\x03\x0a\x05x", "field `leaf.name`: length 5 at byte 5, but 1 bytes are left"),
        (b"\xa2\x01\x03\x12\x01\xff", "field `leaf.numbers`: truncated varint at byte 6"),
        (b"\xa2\x01\x02\x0a\xff", "field `leaf.name`: truncated length at byte 5"),
        (b"\xb2\x01\x05\x12\x03\x0a\x01\xff", "field `by_name.value.name`: invalid UTF-8 at byte 7"),
    ],
)
def test_the_path_leads_to_the_field(payload: bytes, reason: str) -> None:
    assert diagnosis.why_unparsable(payload, ALL.descriptor) == reason


def test_deep_nesting_is_named() -> None:
    payload = b""
    for _ in range(120):
        size, length = len(payload), bytearray()
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        payload = b"\x12" + bytes([*length, size]) + payload
    reason = diagnosis.why_unparsable(payload, NODE.descriptor)
    assert reason.endswith("messages nested deeper than 100")


def test_packed_numbers_are_looked_into() -> None:
    assert "field `packed_numbers`: truncated varint" in diagnosis.why_unparsable(
        b"\x08\x01\x22\x02\x01\x80", ORDER.descriptor
    )


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xa0\x06\x01", "field `100`: nyc.Flight has no field number 100"),
        (b"\x0a\x01x", "field `year`: wire type length-delimited, but its type needs varint"),
        (b"\x50\x01", "field `carrier`: wire type varint, but its type needs length-delimited"),
    ],
)
def test_unknown_fields(payload: bytes, reason: str) -> None:
    assert diagnosis.why_unknown(payload, FLIGHT.descriptor) == reason


def test_closed_enums_name_the_number() -> None:
    assert diagnosis.why_unknown(b"\x08\x01\x10\x09", ORDER.descriptor) == (
        "field `size`: legacy.Size has no value 9"
    )
