"""Records looked through natively and by the codec, its oracle: what the one takes, the other does too."""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

import pytest

from objectstore import batch
from objectstore.batch import HEADER_BYTES, CorruptBatch, NewRecord, build, look_through, peek, seal

ROUNDS = 20_000
ATTRIBUTES = bytes([12, 0x80, 0, 0, 1, 2, 0])
"""A record whose attributes have a bit that aiokafka takes for the first of two bytes. Kafka uses none."""
LONG = bytes([22, 0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x80, 0, 1, 0])
"""A record whose key is null by a number of six bytes; Java's reader takes five."""
STRICTER = ("attributes", "offset", "key", "value", "length", "headers", "header")
"""What may be refused that the codec takes: numbers and attributes that other readers do not."""

LOOKS: list[Any] = [batch._look] if batch.NATIVE else []
"""The native walk, where it was compiled."""
native = pytest.mark.parametrize("look", LOOKS)


def test_where_a_compiler_is_batches_are_looked_through_natively() -> None:
    assert batch.NATIVE or shutil.which("cc") is None


def record(rng: Random) -> NewRecord:
    key = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(12))
    value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(40))
    headers = [
        (f"h{rng.randrange(9)}", None if rng.random() < 0.3 else rng.randbytes(rng.randrange(5)))
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]
    return NewRecord(rng.randrange(1, 10**12), key, value, headers)


def damaged(rng: Random, raw: bytes) -> bytes:
    """The batch as it is, or with bits, bytes or ends of its records changed."""
    out, at = bytearray(raw), rng.randrange(HEADER_BYTES, len(raw))
    match rng.randrange(6):
        case 0 | 1:
            out[at] = rng.choice((out[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0x80, 0xFF, 0))
        case 2:
            del out[at:]
        case 3:
            out[at:at] = rng.randbytes(rng.randrange(1, 4))
        case 4:
            del out[at : at + rng.randrange(1, 3)]
    return bytes(out)


def by_codec(raw: bytes, *, dense: bool) -> str | None:
    try:
        batch._look_by_codec(raw, dense=dense)
    except CorruptBatch as error:
        return str(error)
    return None


@native
@pytest.mark.parametrize("dense", [False, True])
def test_what_is_taken_natively_can_be_read_by_the_codec(look: Any, dense: bool) -> None:
    rng, taken, refused, stricter = Random(7), 0, 0, 0
    for _ in range(ROUNDS):
        raw = damaged(rng, build([record(rng) for _ in range(rng.randrange(1, 6))]))
        count = peek(raw[:HEADER_BYTES] + bytes(4_000)).record_count
        found, oracle = look(raw, HEADER_BYTES, count, dense), by_codec(raw, dense=dense)
        assert found is not None or oracle is None, (raw.hex(), oracle)
        if found is not None and oracle is None:
            assert any(word in found for word in STRICTER), (raw.hex(), found)
            stricter += 1
        taken, refused = taken + (found is None), refused + (found is not None)
    assert taken > ROUNDS / 5
    assert refused > ROUNDS / 5
    assert stricter < ROUNDS / 500


@native
@pytest.mark.parametrize("odd", [ATTRIBUTES, LONG])
def test_what_other_readers_do_not_take_is_refused(look: Any, odd: bytes) -> None:
    header = peek(build([NewRecord(1, None, b"v")]))
    look_through(seal(header, bytes([12, 0, 0, 0, 1, 0, 0])))  # sound but for that
    with pytest.raises(CorruptBatch):
        look_through(seal(header, odd))


@native
def test_any_octets_end_in_a_reason(look: Any) -> None:
    rng = Random(3)
    for _ in range(ROUNDS):
        raw = rng.randbytes(rng.randrange(60))
        for count in (0, 1, 3, 1 << 31):
            found = look(raw, 0, count, False)
            assert found is not None or (count == 0 and not raw) or len(raw) >= 7 * count


@native
def test_records_that_are_not_there_are_no_crash(look: Any) -> None:
    for position, count in ((-1, 1), (62, 1), (0, -1)):
        with pytest.raises(ValueError, match="records from byte"):
            look(bytes(61), position, count, False)
    with pytest.raises(TypeError):
        look(bytes(61), 0, 1)
    with pytest.raises(TypeError):
        look("text", 0, 1, False)
