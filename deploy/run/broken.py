"""Records that must be refused: what is wrong with each, and what the refusal has to name."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from deploy.run.source import TOPICS, Message, Topic, encoder, rows

UNKNOWN_SCHEMA = 999_999


@dataclass(frozen=True, slots=True)
class Broken:
    """One record that Floe must answer with INVALID_RECORD, its reason containing `named`."""

    topic: str
    what: str
    named: str
    key: bytes | None
    value: bytes | None


def confluent(schema_id: int, payload: bytes, indexes: Sequence[int] = (0,)) -> bytes:
    """A payload in Confluent's wire format. `indexes` is the path to its message in the .proto file."""
    zigzag = bytes(number << 1 for number in (len(indexes), *indexes))  # small numbers: one byte each
    path = b"\x00" if tuple(indexes) == (0,) else zigzag
    return b"\x00" + struct.pack(">i", schema_id) + path + payload


def broken_records(schema_ids: Mapping[str, int], key_schema_ids: Mapping[str, int]) -> list[Broken]:
    """One of each kind. The ids are those of the topics' value and key bindings."""
    good = {topic.name: _first(topic) for topic in TOPICS}
    return [
        *_badly_framed_flights(good["flights"], schema_ids["flights"]),
        *_bad_flights(good["flights"], schema_ids["flights"]),
        *_bad_plain(good),
        *_bad_keys(good["planes"], schema_ids["planes"], key_schema_ids["planes"]),
    ]


def _first(topic: Topic) -> Message:
    return encoder(topic)(next(islice(rows(topic), 1)))


def _badly_framed_flights(flight: Message, schema_id: int) -> list[Broken]:
    payload = flight.value
    unknown = confluent(UNKNOWN_SCHEMA, payload)
    return [
        Broken("flights", "no frame", "no Confluent frame", flight.key, payload),
        Broken("flights", "unknown schema id", f"schema {UNKNOWN_SCHEMA}", flight.key, unknown),
        Broken("flights", "another message's index", "[1]", flight.key, confluent(schema_id, payload, (1,))),
        Broken("flights", "a frame of three bytes", "3 bytes", flight.key, b"\x00\x00\x00"),
    ]


def _bad_flights(flight: Message, schema_id: int) -> list[Broken]:
    def flights(what: str, named: str, payload: bytes) -> Broken:
        return Broken("flights", what, named, flight.key, confluent(schema_id, payload))

    return [
        flights("cut off inside a field", "scheduled_hour", flight.value[:-3]),
        flights("a field that the message lacks", "99", flight.value + b"\x98\x06\x01"),
        flights("text that is not UTF-8", "carrier", flight.value.replace(b"\x02UA", b"\x02U\xff")),
        Broken("flights", "no value", "null", flight.key, None),
    ]


def _bad_plain(good: Mapping[str, Message]) -> list[Broken]:
    weather, airport = good["weather"], good["airports"]
    wrong_type = b"\x0a\x03JFK\x1d\x00\x00\x80\x3f"  # temperature_f as a 32-bit number
    return [
        Broken("weather", "a frame where none belongs", "0x00", weather.key, confluent(1, weather.value)),
        Broken("weather", "noise", "varint", weather.key, b"\xff" * 24),
        Broken("weather", "another wire type", "temperature_f", weather.key, wrong_type),
        Broken("airports", "JSON", "length", airport.key, b'{"code": "JFK", "name": "John F Kennedy Intl"}'),
    ]


def _bad_keys(plane: Message, schema_id: int, key_schema_id: int) -> list[Broken]:
    value = confluent(schema_id, plane.value, (1,))
    assert plane.key is not None
    cut = confluent(key_schema_id, plane.key[:-2])
    return [
        Broken("planes", "a key without its frame", "key:", b"N10156", value),
        Broken("planes", "a key cut off", "tail_number", cut, value),
    ]
