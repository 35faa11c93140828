"""What aiokafka and the metrics do for each message, in less time and with the same outcome.

aiokafka's codec calls several functions for each number of a message. Here the fields of a message become one
function, made once, that reads neighbouring numbers together. Metrics guard every figure by a lock, and a run
has one thread.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import groupby
from typing import Any, TypeVar

from aiokafka.protocol import types
from aiokafka.protocol.struct import Struct
from prometheus_client import Counter, Histogram
from prometheus_client.values import MutexValue

from tests.sim.thaw import thaw

Reader = Callable[[bytes, int], tuple[Any, int]]
"""A value of the bytes from a place on, and the place behind it. Raises struct.error or IndexError."""
Writer = Callable[[Any, list[bytes]], None]
"""Adds a value's bytes."""
T = TypeVar("T")

_NUMBERS = {
    types.Int8: "b",
    types.Int16: "h",
    types.Int32: "i",
    types.UInt32: "I",
    types.Int64: "q",
    types.Float64: "d",
    types.Boolean: "?",
}
_LENGTH_16, _LENGTH_32 = struct.Struct(">h"), struct.Struct(">i")
_decoded: Callable[[Any, BytesIO | bytes], Any] = Struct.decode.__func__  # of a class method
_encoded: Callable[[Any], bytes] = Struct.encode
"""aiokafka's own: they say what is wrong with bytes or values that are."""
_initialised = Struct.__init__


def quicken() -> None:
    """From here on, in this process."""
    Struct.decode = classmethod(_decode)
    Struct.encode = _encode
    MutexValue.inc = _inc  # type: ignore[method-assign]  # without its lock
    Counter.inc = _count  # type: ignore[method-assign, assignment]  # no metric here has exemplars
    Histogram.observe = _observe  # type: ignore[method-assign, assignment]  # likewise
    thaw()


class _NoPandas:
    """Finds no pandas. That it is None among the modules would be an error to Arrow, once."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            raise ModuleNotFoundError("no agent has pandas", name=name)


def without_pandas() -> None:
    """From here on this process has none, as no agent has: Arrow would load it, which takes a second."""
    sys.meta_path.insert(0, _NoPandas)  # it finds nothing, so it loads nothing


def _inc(value: Any, amount: float) -> None:
    value._value += amount


def _count(counter: Any, amount: float = 1, exemplar: object = None) -> None:
    del exemplar
    counter._value._value += amount


def _observe(histogram: Any, amount: float, exemplar: object = None) -> None:
    """In the first bucket whose bound is not below it; the last one has none."""
    del exemplar
    histogram._sum._value += amount
    histogram._buckets[bisect_left(histogram._upper_bounds, amount)]._value += 1


def _decode(kind: Any, data: BytesIO | bytes) -> Any:
    whole, begin = (data, 0) if isinstance(data, bytes) else (data.getvalue(), data.tell())
    try:
        values, end = _made(kind, "_reader", _reader_of_fields)(whole, begin)
    except (struct.error, IndexError, ValueError):
        return _decoded(kind, data)
    if not isinstance(data, bytes):
        data.seek(end)
    if kind.__init__ is not _initialised:
        return kind(*values)
    message = object.__new__(kind)
    message.__dict__.update(zip(kind.SCHEMA.names, values, strict=True))
    return message


def _encode(message: Any) -> bytes:
    parts: list[bytes] = []
    given = message.__dict__
    values = [given[name] for name in message.SCHEMA.names]
    try:
        _made(type(message), "_writer", _writer_of_fields)(values, parts)
    except (struct.error, TypeError, ValueError, AttributeError):
        return _encoded(message)
    return b"".join(parts)


def _made(kind: Any, name: str, make: Callable[[Sequence[Any]], T]) -> T:
    """What was made for just this class, or is made now."""
    made: T | None = kind.__dict__.get(name)
    if made is None:
        made = make(kind.SCHEMA.fields)
        setattr(kind, name, made)
    return made


def _runs(fields: Sequence[Any]) -> list[tuple[bool, list[Any]]]:
    """The fields, neighbouring numbers together."""
    return [
        (numbers, list(run)) for numbers, run in groupby(fields, lambda field: _number(field) is not None)
    ]


def _number(field: Any) -> str | None:
    return _NUMBERS.get(field) if isinstance(field, type) else None


def _together(fields: Sequence[Any]) -> struct.Struct:
    return struct.Struct(">" + "".join(_NUMBERS[field] for field in fields))


# Reading.


def _reader_of_fields(fields: Sequence[Any]) -> Reader:
    """Of a tuple."""
    readers = [_numbers_reader(run) if numbers else _field_reader(run) for numbers, run in _runs(fields)]
    if len(readers) == 1:
        return readers[0]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values: tuple[Any, ...] = ()
        for each in readers:
            more, at = each(data, at)
            values += more
        return values, at

    return read


def _numbers_reader(fields: Sequence[Any]) -> Reader:
    numbers = _together(fields)
    unpack, size = numbers.unpack_from, numbers.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at), at + size

    return read


def _field_reader(fields: Sequence[Any]) -> Reader:
    readers = [_reader(field) for field in fields]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        for each in readers:
            value, at = each(data, at)
            values.append(value)
        return tuple(values), at

    return read


def _reader(field: Any) -> Reader:
    if isinstance(field, types.Schema):
        return _reader_of_fields(field.fields)
    if type(field) is types.Array:  # there are others below it, of the newer requests
        return _array_reader(field.array_of)
    if type(field) is types.String:
        return _string_reader(field.encoding)
    if field is types.Bytes:
        return _bytes_reader

    def read(data: bytes, at: int) -> tuple[Any, int]:
        rest = BytesIO(data)
        rest.seek(at)
        return field.decode(rest), rest.tell()

    return read


def _array_reader(inner: Any) -> Reader:
    number = _number(inner)
    each = None if number is not None else _reader(inner)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        (length,) = _LENGTH_32.unpack_from(data, at)
        at += 4
        if length == -1:
            return None, at
        if each is None:
            numbers = struct.Struct(f">{max(length, 0)}{number}")
            return list(numbers.unpack_from(data, at)), at + numbers.size
        values = []
        for _ in range(length):
            value, at = each(data, at)
            values.append(value)
        return values, at

    return read


def _string_reader(encoding: str) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        (length,) = _LENGTH_16.unpack_from(data, at)
        at += 2
        if length < 0:
            return None, at
        if at + length > len(data):
            raise IndexError(at)
        return data[at : at + length].decode(encoding), at + length

    return read


def _bytes_reader(data: bytes, at: int) -> tuple[Any, int]:
    (length,) = _LENGTH_32.unpack_from(data, at)
    at += 4
    if length < 0:
        return None, at
    if at + length > len(data):
        raise IndexError(at)
    return data[at : at + length], at + length


# Writing.


def _writer_of_fields(fields: Sequence[Any]) -> Writer:
    """Of a sequence of as many values."""
    writers: list[tuple[int, int, Writer]] = []
    at = 0
    for numbers, run in _runs(fields):
        if numbers:
            writers.append((at, at + len(run), _numbers_writer(run)))
        else:
            writers += [(at + n, -1, _writer(field)) for n, field in enumerate(run)]
        at += len(run)
    count = at

    def write(values: Any, parts: list[bytes]) -> None:
        if len(values) != count:
            raise ValueError("as many values as fields")
        for first, last, each in writers:
            each(values[first] if last < 0 else values[first:last], parts)

    return write


def _numbers_writer(fields: Sequence[Any]) -> Writer:
    pack = _together(fields).pack

    def write(values: Any, parts: list[bytes]) -> None:
        parts.append(pack(*values))

    return write


def _writer(field: Any) -> Writer:
    if _number(field) is not None:
        pack = _together([field]).pack
        return lambda value, parts: parts.append(pack(value))
    if isinstance(field, types.Schema):
        return _writer_of_fields(field.fields)
    if type(field) is types.Array:
        return _array_writer(_writer(field.array_of))
    return lambda value, parts: parts.append(field.encode(value))


def _array_writer(each: Writer) -> Writer:
    def write(values: Any, parts: list[bytes]) -> None:
        if values is None:
            parts.append(_LENGTH_32.pack(-1))
            return
        parts.append(_LENGTH_32.pack(len(values)))
        for value in values:
            each(value, parts)

    return write
