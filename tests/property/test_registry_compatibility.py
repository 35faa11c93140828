"""Schemas that the checker calls compatible decode each other's records, whatever is in them.

Pairs of schemas are drawn: the second is the first with some changes, good and bad. Of pairs that pass,
records at random are written with one and read with the other: nothing is refused, and fields that both have
alike keep their values.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from schema.registry.rules import differences

SEEDS = range(2_000)
RECORDS = 5
SCALARS: list[Any] = [number for number in Field.Type.values() if number not in (10, 11, 14)]
NEAR: dict[int, list[Any]] = {
    one: [other for other in SCALARS if other in group]
    for group in (
        (3, 4, 5, 8, 13, 17, 18),
        (6, 7, 15, 16),
        (9, 12),
        (1, 2),
    )
    for one in group
}  # kinds that are mistaken for one another
NAMES = ("A", "B", "C")


def drawn(draw: random.Random) -> descriptor_pb2.FileDescriptorProto:
    """A file of proto2 or proto3 with three messages that hold one another, lists, maps and a oneof."""
    file = descriptor_pb2.FileDescriptorProto(name="s.proto", package="p", syntax=draw.choice(("", "proto3")))
    enum = file.enum_type.add(name="E")
    for number in range(3):
        enum.value.add(name=f"E{number}", number=number)
    for name in NAMES:
        message = file.message_type.add(name=name)
        for number in draw.sample(range(1, 9), draw.randrange(1, 6)):
            add(draw, file, message, number)
        members = [field for field in message.field if field.label == 1 and draw.random() < 0.5]
        if len(members) > 1:
            message.oneof_decl.add(name="o")
            for field in members:
                field.oneof_index = 0
    return file


def add(draw: random.Random, file: Any, message: Any, number: int) -> None:
    """A field of any kind."""
    field = message.field.add(name=f"f{number}", number=number)
    choice = draw.randrange(10)
    field.type = 14 if choice == 0 else 11 if choice in (1, 2, 3) else draw.choice(SCALARS)
    field.label = draw.choice((1, 1, 3))
    if not file.syntax and draw.random() < 0.1:
        field.label = (
            Field.LABEL_REQUIRED if field.type != 11 else Field.LABEL_OPTIONAL
        )  # a message that needs itself cannot be written
    if field.type == 14:
        field.type_name = ".p.E"
    if field.type == 11:
        field.type_name = f".p.{draw.choice(NAMES)}"
    if choice == 3:
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=draw.choice((3, 5, 9)))
        value = entry.field.add(name="value", number=2, label=1, type=draw.choice((9, 12, 5, 11)))
        if value.type == 11:
            value.type_name = f".p.{draw.choice(NAMES)}"
        field.label, field.type_name = 3, f".p.{message.name}.{entry.name}"


def changed(draw: random.Random, file: Any) -> Any:
    """The file with one to three changes."""
    made = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString())
    for _ in range(draw.randrange(1, 4)):
        message = draw.choice(made.message_type)
        plain = [f for f in message.field if not f.type_name.endswith("Entry")]
        what = draw.randrange(7)
        if what == 0 or not plain:
            add(draw, made, message, draw.randrange(9, 1000))
            continue
        field = draw.choice(plain)
        if what == 1:
            message.field.remove(field)
        elif what in (2, 3) and field.type not in (11, 14):
            field.type = draw.choice(NEAR[field.type])
        elif what == 4 and not field.HasField("oneof_index"):
            field.label = draw.choice((Field.LABEL_OPTIONAL, Field.LABEL_REPEATED))
        elif what == 5:
            field.ClearField("oneof_index")
        elif what == 6 and field.label == 1 and message.oneof_decl:
            field.oneof_index = 0
        if message.oneof_decl and not any(one.HasField("oneof_index") for one in message.field):
            del message.oneof_decl[:]
    return made


def linked(file: Any) -> FileDescriptor | None:
    pool = descriptor_pool.DescriptorPool()
    try:
        return pool.AddSerializedFile(file.SerializeToString())
    except TypeError:
        return None


def value(draw: random.Random, field: FieldDescriptor) -> Any:
    """At random, of a scalar field."""
    kind = FieldDescriptor
    if field.type == kind.TYPE_BOOL:
        return draw.random() < 0.5
    if field.type == kind.TYPE_STRING:
        return draw.choice(("", "x", "ä\U0001f600", "y" * 200))
    if field.type == kind.TYPE_BYTES:
        return draw.randbytes(draw.randrange(5))
    if field.type in (kind.TYPE_FLOAT, kind.TYPE_DOUBLE):
        return float(draw.randrange(-4, 4))
    if field.type == kind.TYPE_ENUM:
        return draw.randrange(3)
    wide = field.cpp_type in (kind.CPPTYPE_INT64, kind.CPPTYPE_UINT64)
    bits = draw.choice((1, 7, 31, 63 if wide else 31))
    signed = field.cpp_type in (kind.CPPTYPE_INT32, kind.CPPTYPE_INT64)
    return draw.getrandbits(bits) * (draw.choice((1, -1)) if signed else 1)


def fill(draw: random.Random, message: Any, depth: int = 0) -> None:
    """Set fields at random; required ones always."""
    for field in message.DESCRIPTOR.fields:
        if draw.random() < 0.4 and not field.is_required:
            continue
        held = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, of = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
            for _ in range(draw.randrange(3)):
                if of.message_type is None:
                    held[value(draw, key)] = value(draw, of)
                elif depth < 3:
                    fill(draw, held[value(draw, key)], depth + 1)
                else:
                    continue
        elif field.message_type is not None:
            for _ in range(draw.randrange(3) if depth < 3 else 0):
                inner = held.add() if field.is_repeated else held
                inner.SetInParent()
                fill(draw, inner, depth + 1)
                if not field.is_repeated:
                    break
        elif field.is_repeated:
            held.extend(value(draw, field) for _ in range(draw.randrange(3)))
        else:
            setattr(message, field.name, value(draw, field))


def comparable(field: Any, known: Any, written: Any) -> bool:
    """Whether the value must come out as it went in: numbers that both types have, text, bytes, enums."""
    if field.message_type is not None or not written:
        return False
    values = list(written) if field.is_repeated else [written]
    if field.type == known.type or known.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return True
    return all(isinstance(one, int) and 0 <= one < (2 if _narrow(known) else 1 << 31) for one in values)


def _narrow(field: Any) -> bool:
    """Of few values: one that is none of them is kept elsewhere, or becomes another."""
    return field.type in (FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM)


def expected(field: Any, known: Any, written: Any) -> Any:
    """What the reader has of it: a list is one value to who reads one, the last."""
    values = [
        one.encode() if isinstance(one, str) else one for one in (written if field.is_repeated else [written])
    ]
    if known.is_repeated:
        return values
    return values[-1]


def found_in(message: Any, known: Any) -> Any:
    held = getattr(message, known.name)
    plain = [one.encode() if isinstance(one, str) else one for one in (held if known.is_repeated else [held])]
    return plain if known.is_repeated else plain[0]


def test_what_is_called_compatible_is_read() -> None:
    passed = refused = 0
    for seed in SEEDS:
        draw = random.Random(seed)
        first = drawn(draw)
        old, new = linked(first), linked(changed(draw, first))
        if old is None or new is None:
            continue
        for writer, reader in ((old, new), (new, old)):
            if differences(reader, writer):
                refused += 1
                continue
            passed += 1
            read_all(draw, writer, reader)
    assert min(passed, refused) > len(SEEDS) // 5


def read_all(draw: random.Random, writer: FileDescriptor, reader: FileDescriptor) -> None:
    """Records of every message of the writer, read by the reader."""
    for name, descriptor in writer.message_types_by_name.items():
        written_by = message_factory.GetMessageClass(descriptor)
        read_by = message_factory.GetMessageClass(reader.message_types_by_name[name])
        for _ in range(RECORDS):
            record = written_by()
            fill(draw, record)
            if not record.IsInitialized():
                continue
            found = read_by.FromString(record.SerializeToString())
            assert found.IsInitialized()
            for field in descriptor.fields:
                known = found.DESCRIPTOR.fields_by_number.get(field.number)
                written = getattr(record, field.name)
                if known is None or not comparable(field, known, written):
                    continue
                assert found_in(found, known) == expected(field, known, written), (name, field.number)


@pytest.mark.parametrize("seed", range(20))
def test_a_schema_goes_with_itself(seed: int) -> None:
    file = linked(drawn(random.Random(seed)))
    assert file is None or differences(file, file) == []
