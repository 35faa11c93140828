"""Messages that a topic is bound to in turn, and what a record is by each: the truth of decoded columns.

They read the same bytes as different things: under the same numbers stand fields of other types and names.
A writer puts raw varints, texts and doubles into numbered fields. What that is by a message follows here from
the rules of protobuf.dev "Encoding" alone; no decoder of Floe's or google.protobuf's is asked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from objectstore.varint import varint
from schema import framing

F = FieldDescriptorProto
Payload = Mapping[int, int | str | float]
"""By field number what is on the wire: a varint of 64 bits, a text, or a double."""

FRAMED_AT = (0,)  # each message is the first of its file
NOBODYS = 1 << 30
"""A schema id that no cluster of the simulation comes to."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. `kind`: of descriptor.proto; one that is `optional` has presence."""

    number: int
    name: str
    kind: int
    optional: bool = False


@dataclass(frozen=True)
class Message:
    """By its full name; others may have the same one."""

    name: str
    fields: tuple[Field, ...]

    @cached_property
    def descriptor_set(self) -> bytes:
        """As BindSchema takes it."""
        package, _, name = self.name.rpartition(".")
        files = FileDescriptorSet()
        told = files.file.add(name="m.proto", package=package, syntax="proto3").message_type.add(name=name)
        for each in self.fields:
            one = told.field.add(name=each.name, number=each.number, label=F.LABEL_OPTIONAL)
            one.type = each.kind  # type: ignore[assignment]  # an enumeration to its stubs
            if each.optional:
                one.proto3_optional, one.oneof_index = True, len(told.oneof_decl)
                told.oneof_decl.add(name=f"_{each.name}")
        return files.SerializeToString()

    def shown(self, payload: Payload) -> dict[int, Any] | None:
        """What its fields are, by number, those that are null left out.

        None: a field's bytes are not of its type. Fields that it does not have are no error.
        """
        found = {}
        for each in self.fields:
            on_wire, read, default = _KINDS[each.kind]
            given = payload.get(each.number)
            if given is not None and not isinstance(given, on_wire):
                return None
            if given is not None or not each.optional:
                found[each.number] = default if given is None else read(given)
        return found

    def drawn(self, random: Random) -> dict[int, int | str | float]:
        """A payload that is one of it; most have most of its fields."""
        return {
            each.number: _DRAWN[_KINDS[each.kind][0]](random)
            for each in self.fields
            if random.random() < _SET_OF
        }


_SET_OF = 0.7


def _signed(bits: int) -> Callable[[int], int]:
    def read(raw: int) -> int:
        low = raw & ((1 << bits) - 1)
        return low - (1 << bits) if low >> (bits - 1) else low

    return read


def _zigzag(raw: int) -> int:
    low = raw & 0xFFFFFFFF
    return (low >> 1) ^ -(low & 1)


_KINDS: Mapping[int, tuple[type, Callable[[Any], Any], Any]] = {
    F.TYPE_INT32: (int, _signed(32), 0),
    F.TYPE_SINT32: (int, _zigzag, 0),
    F.TYPE_INT64: (int, _signed(64), 0),
    F.TYPE_BOOL: (int, bool, False),
    F.TYPE_STRING: (str, str, ""),
    F.TYPE_DOUBLE: (float, float, 0.0),
}
"""By type: as what it is on the wire, what that means, and what an absent one is."""


def _varint(random: Random) -> int:
    """A small one, any that is positive in 32 bits, or a negative number's."""
    return random.choice(
        (random.randrange(256), random.randrange(1 << 31), (1 << 64) - random.randint(1, 999))
    )


_DRAWN: Mapping[type, Callable[[Random], int | str | float]] = {
    int: _varint,
    str: lambda random: random.choice(("", "a", "größer", "a longer text")),
    float: lambda random: random.randint(-(1 << 20), 1 << 20) / 8,
}

MESSAGES = (
    Message("p.Order", (Field(1, "user", F.TYPE_SINT32), Field(2, "name", F.TYPE_STRING))),
    Message(
        "p.Order",
        (
            Field(1, "amount", F.TYPE_INT32),
            Field(2, "price", F.TYPE_DOUBLE),
            Field(3, "name", F.TYPE_INT64, optional=True),
        ),
    ),
    Message("q.Order", (Field(1, "user", F.TYPE_INT64), Field(2, "name", F.TYPE_STRING, optional=True))),
    Message("q.Payment", (Field(1, "paid", F.TYPE_BOOL), Field(3, "price", F.TYPE_STRING))),
)
"""The second is another version of the first; the third shares columns with it, the last has its own."""
BY_DESCRIPTOR = {each.descriptor_set: each for each in MESSAGES}


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer put into a record. No `payload`: it is no message; `frame`: the schema that it names."""

    value: bytes | None
    payload: Payload | None = None
    frame: int | None = None

    @classmethod
    def of(cls, payload: Payload, frame: int | None = None) -> Written:
        """A record of these fields."""
        before = b"" if frame is None else framing.prefix(frame, FRAMED_AT)
        return cls(before + b"".join(_encoded(*each) for each in payload.items()), payload, frame)


def _encoded(number: int, value: int | str | float) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    content = value.encode()
    return varint(number << 3 | 2) + varint(len(content)) + content
