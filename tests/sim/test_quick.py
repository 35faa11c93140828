"""What is made quick says the same as what it stands for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pkgutil import iter_modules
from random import Random
from typing import Any

import pytest
from aiokafka import protocol
from aiokafka.protocol import types
from aiokafka.protocol.struct import Struct

from tests.sim import quick

RANGES = {kind: struct.Struct(f">{code}") for kind, code in quick._NUMBERS.items()}


def _kinds(base: type[Struct] = Struct) -> Iterator[type[Struct]]:
    """Every message of aiokafka's."""
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _value(field: Any, random: Random) -> Any:
    """One that the field can hold."""
    if field in RANGES:
        numbers = RANGES[field]
        return numbers.unpack(random.randbytes(numbers.size) if field is not types.Float64 else bytes(8))[0]
    if isinstance(field, types.Schema):
        return tuple(_value(each, random) for each in field.fields)
    if isinstance(field, types.Array):
        return [_value(field.array_of, random) for _ in range(random.choice((0, 1, 3)))]
    if isinstance(field, types.String):
        return random.choice(("", "a", "größer", None if type(field) is types.String else "b"))
    if field is types.TaggedFields:
        return {}
    return random.randbytes(random.choice((0, 1, 200)))


def _all_kinds() -> list[type[Struct]]:
    for each in iter_modules(protocol.__path__):
        import_module(f"{protocol.__name__}.{each.name}")
    return [kind for kind in _kinds() if kind.__module__.startswith(protocol.__name__) and kind.SCHEMA.fields]


def _filled(kind: type[Struct], random: Random) -> Any:
    message: Any = object.__new__(kind)
    values = (_value(field, random) for field in kind.SCHEMA.fields)
    message.__dict__.update(zip(kind.SCHEMA.names, values, strict=True))
    return message


def test_every_message_is_written_and_read_as_by_aiokafka() -> None:
    kinds, random = _all_kinds(), Random(3)
    assert len(kinds) > 100
    for kind in kinds:
        for _ in range(5):
            message = _filled(kind, random)
            data = quick._encoded(message)
            assert quick._encode(message) == data, kind
            if "__init__" in kind.__dict__:
                continue  # a header of requests, which is never read
            stream = BytesIO(b"before" + data + b"behind")
            stream.seek(6)
            assert vars(quick._decode(kind, stream)) == vars(quick._decoded(kind, data)), kind
            assert stream.read() == b"behind", kind


def test_what_is_cut_off_is_refused_as_by_aiokafka() -> None:
    random = Random(4)
    for kind in [each for each in _all_kinds() if "__init__" not in each.__dict__]:
        data = quick._encoded(_filled(kind, random))
        for cut in {random.randrange(len(data)) for _ in range(5)} if data else ():
            whole: Any = _outcome(quick._decoded, kind, data[:cut])
            assert _outcome(quick._decode, kind, data[:cut]) == whole, (kind, cut)


def _outcome(decode: Any, kind: type[Struct], data: bytes) -> Any:
    try:
        return vars(decode(kind, data))
    except (ValueError, struct.error) as error:
        return type(error), str(error).partition(":")[0]


def test_what_cannot_be_written_is_refused_as_by_aiokafka() -> None:
    kind = next(each for each in _all_kinds() if each.SCHEMA.fields[0] is types.Int32)
    message = _filled(kind, Random(5))
    message.__dict__[kind.SCHEMA.names[0]] = 1 << 40
    with pytest.raises(ValueError, match="convert value"):
        quick._encode(message)
