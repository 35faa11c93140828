"""Hypothesis strategies for Kafka messages, and the two independent codecs they are compared with."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import math
import uuid
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from agent.net.wire import generate
from agent.net.wire.generator.definition import Api, Field, Message, load

APIS = load(generate.MESSAGES)
ORACLE_PRODUCE_MIN = 3  # neither oracle knows the versions of Produce that are only refused
LIST_MAX = 3

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("abc", min_size=120, max_size=140)
_INTEGERS = {
    f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.sampled_from([-1, 0, 1])
    for bits in (8, 16, 32, 64)
}
_BINARY = st.binary(max_size=8) | st.binary(min_size=120, max_size=140)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = _INTEGERS | {
    "uint16": st.integers(0, (1 << 16) - 1),
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": _TEXT,
    "bytes": _BINARY,
    "records": _BINARY.map(lambda data: memoryview(data)),  # noqa: PLW0108 - its type is generic
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
}
# kio gives these types of their own, which hold less than the integer on the wire.
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
_TIMES_MS = st.integers(0, 4_000_000_000_000)


def module(api: Api) -> Any:
    """The generated module of an API."""
    return importlib.import_module(f"agent.net.wire.generated.{api.module}")


def message_of(api: Api, kind: str) -> Message:
    """The definition of the request or the response."""
    return api.request if kind == "request" else api.response


def codecs() -> Iterator[tuple[Api, str]]:
    """Every API with each of its two messages."""
    for api in APIS:
        yield api, "request"
        yield api, "response"


def messages(api: Api, kind: str, version: int) -> st.SearchStrategy[Any]:
    """Any message that can be said in this version."""
    name = api.name + kind.capitalize()
    return _struct(module(api), name, message_of(api, kind).fields, version)


def _struct(source: ModuleType, name: str, fields: list[Field], version: int) -> st.SearchStrategy[Any]:
    made = getattr(source, name)
    present = {f.name: _field(source, f, version) for f in fields if version in f.versions}
    return st.builds(made, **present) if present else st.builds(made)


def _field(source: ModuleType, field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.struct:
        one = _struct(source, field.base, field.fields, version)
    elif field.base == "int16" and field.name.endswith("error_code"):
        one = _ERROR_CODES
    elif field.base == "int64" and field.name.endswith("_ms"):
        one = _TIMES_MS
    else:
        one = _PRIMITIVES[field.base]
    if field.array:
        return _optional(st.lists(one, max_size=LIST_MAX), version in field.nullable)
    if field.struct and field.tagged_in(version):
        # A tagged struct that says nothing is not sent by anyone else: ours is None then.
        usual = getattr(source, field.base)()
        return st.none() | one.filter(lambda value: value != usual)
    return _optional(one, version in field.nullable)


def _optional(one: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | one if nullable else one


class Kio:
    """kio's classes, generated from Kafka's own definitions."""

    def decode(self, api: Api, kind: str, version: int, data: bytes) -> Any:
        value, end = entity_reader(self._type(api, kind, version))(data, 0)
        assert end == len(data)
        return value

    def encode(self, api: Api, kind: str, version: int, value: Any) -> bytes:
        out = io.BytesIO()
        entity_writer(self._type(api, kind, version))(out, value)
        return out.getvalue()

    @staticmethod
    @cache
    def _type_of(name: str, kind: str, version: int) -> Any:
        source = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
        wanted = EntityType.request if kind == "request" else EntityType.response
        (found,) = (
            value
            for value in vars(source).values()
            if dataclasses.is_dataclass(value) and getattr(value, "__type__", None) is wanted
        )
        return found

    def _type(self, api: Api, kind: str, version: int) -> Any:
        return self._type_of(api_key_map[api.key], kind, version)

    def knows(self, api: Api) -> bool:
        return api.key in api_key_map

    def get(self, value: Any, field: Field) -> Any:
        """A field's value in our terms: kio drops `_ms` from the names whose values it gives units."""
        found = (
            getattr(value, field.name)
            if hasattr(value, field.name)
            else getattr(value, field.name.removesuffix("_ms"))
        )
        if found is None:
            return {"uuid": bytes(16), "int64": -1}.get(field.base)
        return list(map(_plain, found)) if field.array else _plain(found)


def _plain(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case None:
            return bytes(16)
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
    return value


class KafkaPython:
    """kafka-python's classes, which read Kafka's definitions when they are imported."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it finds its JSON by an old function
            rooms = [
                importlib.import_module(f"kafka.protocol.{room}")
                for room in ("admin", "consumer", "metadata", "producer", "sasl")
            ]
            self._base = importlib.import_module("kafka.protocol.api_message").ApiMessage
        found: list[Any] = [v for room in rooms for v in vars(room).values() if isinstance(v, type)]
        self._types = {
            (c.API_KEY, c.type): c for c in found if issubclass(c, self._base) and c is not self._base
        }

    def decode(self, api: Api, kind: str, version: int, data: bytes) -> Any:
        # The generic decoding: its ApiVersionsResponse reads every error as version 0, as a client must
        # that asked for too high a version; here the version is known.
        value = self._base.decode.__func__(self._types[api.key, kind], data, version=version)
        value._header = None  # what its own constructor would have set
        return value

    def encode(self, api: Api, kind: str, version: int, value: Any) -> bytes:
        return bytes(value.encode(version=version))

    def knows(self, api: Api) -> bool:
        return (api.key, "request") in self._types

    def get(self, value: Any, field: Field) -> Any:
        """A field's value in our terms."""
        found = getattr(value, field.name, None)
        if field.name.endswith("authorized_operations") and field.base == "int32":
            renamed = getattr(value, "authorized_operations", None)
            return found if isinstance(found, int) else _signed(renamed)
        if field.base == "uuid" and not field.array:
            return found.bytes if isinstance(found, uuid.UUID) else bytes(16) if found is None else found
        return list(map(_plain, found)) if field.array and found is not None else found


def _signed(bits: set[int] | None) -> int:
    """kafka-python shows bit fields as the set of their bits, and the highest alone as None."""
    number = 1 << 31 if bits is None else sum(1 << bit for bit in bits)
    return number - (number >> 31 << 32)


def difference(
    ours: Any, theirs: Any, oracle: Kio | KafkaPython, fields: list[Field], version: int
) -> str | None:
    """Where an oracle's message differs from ours, or None."""
    for field in fields:
        if version not in field.versions:
            continue
        left, right = getattr(ours, field.name), oracle.get(theirs, field)
        if field.struct and left is not None:
            pairs = zip(left, right, strict=True) if field.array else [(left, right)]
            found = next(
                filter(None, (difference(a, b, oracle, field.fields, version) for a, b in pairs)), None
            )
            if found:
                return f"{field.name}.{found}"
        elif not _equal(left, right, field, version):
            return f"{field.name}: ours {left!r}, theirs {right!r}"
    return None


def _equal(left: Any, right: Any, field: Field, version: int) -> bool:
    if left is None and field.struct and field.tagged_in(version):
        return True  # theirs is the default; that it is not sent shows on the way back
    if isinstance(left, float):
        return math.isclose(left, right)
    if isinstance(left, memoryview):
        return bytes(left) == bytes(right)
    return bool(left == right)
