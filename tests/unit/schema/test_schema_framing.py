"""The Confluent wire format."""

import pytest

from schema import framing
from schema.framing import Frame, FramingError


def test_the_first_message_is_a_single_zero_byte() -> None:
    assert framing.prefix(258, (0,)) == b"\x00\x00\x00\x01\x02\x00"
    assert framing.parse(b"\x00\x00\x00\x01\x02\x00payload") == Frame(258, (0,), 6)


def test_a_nested_message_is_a_count_and_zigzag_numbers() -> None:
    assert framing.prefix(1, (2, 64)) == b"\x00\x00\x00\x00\x01\x04\x04\x80\x01"
    assert framing.parse(framing.prefix(1, (2, 64)) + b"x") == Frame(1, (2, 64), 9)


def test_the_long_form_of_the_first_message_is_understood() -> None:
    assert framing.parse(b"\x00\x00\x00\x00\x01\x02\x00rest") == Frame(1, (0,), 7)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\x00\x00\x00\x00\x01", "at least 6"),
        (b"\x01\x00\x00\x00\x01\x00", "begins with byte 0x01"),
        (b"\x00\x00\x00\x00\x01\x04\x02", "ends inside"),
        (b"\x00\x00\x00\x00\x01\x01\x02", "-1 message indexes"),
        (b"\x00\x00\x00\x00\x01\x02\x01", "message index -1"),
        (b"\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\x01", "longer than"),
        (b"\x00\x00\x00\x00\x01\xfe\x01" + bytes(127), "127 message indexes"),
    ],
)
def test_broken_frames_say_where(record: bytes, reason: str) -> None:
    with pytest.raises(FramingError, match=reason):
        framing.parse(record)
