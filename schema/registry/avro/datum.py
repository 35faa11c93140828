"""Binary data of an AVRO schema: are the bytes exactly one datum of it, and what does that say?

Specification 1.12, "Binary Encoding". A walk that takes no more time and memory than a fixed multiple of the
bytes, whatever the schema: what takes no bytes (null, an empty record) is left out of values, items of
nothing are counted and not made, and the values of one datum are bounded.

| type | value |
|---|---|
| null, boolean, int, long, float, double, bytes, string | None, bool, int, float, bytes, str |
| fixed, enum | bytes, the symbol |
| array, map | list, list of (key, value); of what takes no bytes, how many there are |
| union of null and one other | None, or the other's value |
| other unions | None for null, else (index of the branch, value) |
| record | a tuple: the values of the fields that take bytes (`Datum.fields`) |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from schema.registry.avro.logical import check_of
from schema.registry.avro.types import Field, Type

DEPTH_MAX = 100
"""Records, arrays and maps within one another, in a schema's data."""

VALUES_SPARE = 1_000
VALUES_PER_BYTE = 16
"""Values of one datum: so many, and so many more for each of its bytes. Most have fewer than bytes."""

_PIECE = 40  # characters of a key in a path
_PATH_STEPS_MAX = 20  # steps of a path that are told
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_INT_MAX = (1 << 31) - 1
_LONG_BYTES_MAX, _INT_BYTES_MAX = 10, 5


class BadDatum(ValueError):
    """The bytes are not the datum. `steps` lead to where, from the inside out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def __str__(self) -> str:
        steps = self.steps[: -_PATH_STEPS_MAX - 1 : -1]
        path = "".join(steps).lstrip(".") + ("…" if len(self.steps) > len(steps) else "")
        return f"field `{path}`: {self.reason}" if path else self.reason


class Look:
    """One datum while it is read: how deep the walk is, and how many values it may still make."""

    __slots__ = ("depth", "left")

    def __init__(self, size: int) -> None:
        self.depth = 0
        self.left = VALUES_SPARE + VALUES_PER_BYTE * size

    def enter(self) -> None:
        """Go one level down. Raises BadDatum."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise BadDatum(f"records, arrays and maps nested deeper than {DEPTH_MAX}")

    def make(self, count: int) -> None:
        """Account for so many values. Raises BadDatum."""
        self.left -= count
        if self.left < 0:
            raise BadDatum("more values than its bytes may have: the schema nests records of next to nothing")


Read = Callable[[bytes, int, Look], tuple[Any, int]]
"""From the bytes and where a value begins: the value, and where it ends. Raises BadDatum."""


class Datum:
    """Reads data of one schema. Thread-safe."""

    def __init__(self, top: Type) -> None:
        """CPU work of some µs for each type: in a thread. A type may hold itself."""
        self._compiler = Compiler()
        self._read = self._compiler.finished(top)

    def read(self, payload: bytes) -> Any:
        """The value (see the module). Raises BadDatum unless the bytes are exactly one datum."""
        value, end = self._read(payload, 0, Look(len(payload)))
        if end < len(payload):
            raise BadDatum(f"the datum ends at byte {end}, and {len(payload) - end} bytes are left over")
        return value

    def problem(self, payload: bytes) -> str | None:
        """Why the bytes are not exactly one datum; None: they are."""
        try:
            self.read(payload)
        except BadDatum as bad:
            return str(bad)
        return None

    def fields(self, record: Type) -> Sequence[Field]:
        """Those fields of a record that have a place in its values, in this order."""
        return self._compiler.fields(record)

    def is_nothing(self, one: Type) -> bool:
        """Whether values of the type take no bytes."""
        return self._compiler.is_nothing(one)


class Compiler:
    """Makes a function for each type. Records are filled later: they may hold themselves, in long chains."""

    def __init__(self) -> None:
        self._records: dict[int, Read] = {}
        self._waiting: list[tuple[Type, list[Read], list[str]]] = []
        self._nothing: dict[int, bool] = {}

    def finished(self, top: Type) -> Read:
        """What reads data of the type, ready for use."""
        made = self.of(top)
        self.complete()
        return made

    def complete(self) -> None:
        """Fill what `of` has begun; before it reads anything."""
        while self._waiting:
            record, steps, names = self._waiting.pop()
            for field in self.fields(record):
                steps.append(self.of(field.type))
                names.append(f".{field.name}")

    def fields(self, record: Type) -> list[Field]:
        """Those that take bytes."""
        return [field for field in record.fields if not self.is_nothing(field.type)]

    def is_nothing(self, one: Type, depth: int = 0) -> bool:
        """Whether values of the type take no bytes."""
        if one.kind == "null" or (one.kind == "fixed" and one.size == 0):
            return True
        if one.kind != "record" or depth > DEPTH_MAX:  # deeper ones cannot be read anyway
            return False
        known = self._nothing.get(id(one))
        if known is None:
            self._nothing[id(one)] = False  # a record that holds itself
            known = all(self.is_nothing(field.type, depth + 1) for field in one.fields)
            self._nothing[id(one)] = known
        return known

    def of(self, one: Type) -> Read:
        """Calls itself for what is inside, but not through records: the text's levels are bounded."""
        if self.is_nothing(one):
            empty = b"" if one.kind == "fixed" else None if one.kind == "null" else ()
            return lambda content, at, look: (empty, at)
        if one.kind == "record":
            return self._record(one)
        if one.kind == "union":
            return self._union(one)
        if one.items is not None:
            return self._array(one.items) if one.kind == "array" else self._map(one.items)
        if one.kind == "enum":
            return _enum(one)
        read = _fixed(one.size) if one.kind == "fixed" else _PRIMITIVES[one.kind]
        check = check_of(one)
        if check is None:
            return read
        checks = check

        def checked(content: bytes, at: int, look: Look) -> tuple[Any, int]:
            value, at = read(content, at, look)
            why = checks(value)
            if why is not None:
                raise BadDatum(why)
            return value, at

        return checked

    def _record(self, one: Type) -> Read:
        known = self._records.get(id(one))
        if known is not None:
            return known
        steps: list[Read] = []
        names: list[str] = []

        def record(content: bytes, at: int, look: Look) -> tuple[Any, int]:
            look.enter()
            look.make(len(steps))
            values: list[Any] = []
            try:
                for step in steps:
                    value, at = step(content, at, look)
                    values.append(value)
            except BadDatum as bad:
                bad.steps.append(names[len(values)])
                raise
            look.depth -= 1
            return tuple(values), at

        self._records[id(one)] = record
        self._waiting.append((one, steps, names))
        return record

    def _union(self, one: Type) -> Read:
        branches = tuple(one.branches)
        reads = tuple(self.of(each) for each in branches)
        nulls = tuple(each.kind == "null" for each in branches)
        count, plain = len(reads), len(reads) == 2 and any(nulls)

        def union(content: bytes, at: int, look: Look) -> tuple[Any, int]:
            if at < len(content) and not content[at] & 0x81:  # one byte, no sign: as all but large unions
                index, at = content[at] >> 1, at + 1
            else:
                index, at = long(content, at, look)
            if not 0 <= index < count:
                raise BadDatum(f"branch {index} of a union of {count} (at byte {at - 1})")
            if nulls[index]:
                return None, at
            value, at = reads[index](content, at, look)
            return (value, at) if plain else ((index, value), at)

        return union

    def _array(self, items: Type) -> Read:
        if self.is_nothing(items):
            return _counted
        read = self.of(items)

        def array(content: bytes, at: int, look: Look) -> tuple[Any, int]:
            look.enter()
            values: list[Any] = []
            try:
                count, at, end = block(content, at, look)
                while count:
                    look.make(count)
                    for _ in range(count):
                        value, at = read(content, at, look)
                        values.append(value)
                    check_end(at, end)
                    count, at, end = block(content, at, look)
            except BadDatum as bad:
                bad.steps.append(f"[{len(values)}]")
                raise
            look.depth -= 1
            return values, at

        return array

    def _map(self, items: Type) -> Read:
        read = self.of(items)

        def mapping(content: bytes, at: int, look: Look) -> tuple[Any, int]:
            look.enter()
            values: list[tuple[str, Any]] = []
            key: str | None = None
            try:
                count, at, end = block(content, at, look)
                while count:
                    look.make(count)
                    for _ in range(count):
                        key = None
                        key, at = string(content, at, look)
                        value, at = read(content, at, look)
                        values.append((key, value))
                    check_end(at, end)
                    count, at, end = block(content, at, look)
            except BadDatum as bad:
                bad.steps.append(f"[{len(values)}]" if key is None else f'["{key[:_PIECE]}"]')
                raise
            look.depth -= 1
            return values, at

        return mapping


def block(content: bytes, at: int, look: Look, *, nothing: bool = False) -> tuple[int, int, int | None]:
    """Items of the next block of an array or map, where they begin, and where they must end if that is told.

    0 items: it was the last one. `nothing`: items take no bytes.
    """
    count, at = long(content, at, look)
    end = None
    if count < 0:
        size, at = long(content, at, look)
        count, end = -count, at + size
        if not 0 <= size <= len(content) - at:
            raise BadDatum(f"a block of {size} bytes at byte {at}, but {len(content) - at} bytes are left")
    if count > len(content) - at and not nothing:
        raise BadDatum(f"{count} items at byte {at}, but {len(content) - at} bytes are left")
    return count, at, end


def check_end(at: int, end: int | None) -> None:
    """Raises BadDatum where a block ends at another place than it says."""
    if end is not None and at != end:
        raise BadDatum(f"a block of items ends at byte {at}, and not at byte {end} as it says")


def _counted(content: bytes, at: int, look: Look) -> tuple[int, int]:
    """An array of what takes no bytes: how many."""
    total = 0
    count, at, end = block(content, at, look, nothing=True)
    while count:
        total += count
        check_end(at, end)
        count, at, end = block(content, at, look, nothing=True)
    return total, at


def long(content: bytes, at: int, _look: Look) -> tuple[int, int]:
    """A number of up to 64 bits."""
    try:
        byte = content[at]
        at += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at
        value, shift, first = byte & 0x7F, 7, at
        while byte >= 0x80:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 7 * _LONG_BYTES_MAX:
                raise BadDatum(f"a number of more than {_LONG_BYTES_MAX} bytes at byte {first - 1}")
    except IndexError:
        _short(content, at, 1)
    if value >> 64:
        raise BadDatum(f"a number of more than 64 bits at byte {first - 1}")
    return (value >> 1) ^ -(value & 1), at


def _int(content: bytes, at: int, look: Look) -> tuple[int, int]:
    if at + 1 < len(content):  # as most are: one byte or two
        byte, second = content[at], content[at + 1]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if second < 0x80:
            return (((byte & 0x7F) | second << 7) >> 1) ^ -(byte & 1), at + 2
    value, end = long(content, at, look)
    if end - at > _INT_BYTES_MAX or not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise BadDatum(f"{value} at byte {at} is no int of 32 bits")
    return value, end


def _boolean(content: bytes, at: int, _look: Look) -> tuple[bool, int]:
    if at >= len(content):
        _short(content, at, 1)
    if content[at] > 1:
        raise BadDatum(f"byte {content[at]:#04x} at byte {at} is no boolean (0 or 1)")
    return content[at] == 1, at + 1


def _float(content: bytes, at: int, _look: Look) -> tuple[float, int]:
    if at + 4 > len(content):
        _short(content, at, 4)
    return _FLOAT.unpack_from(content, at)[0], at + 4


def _double(content: bytes, at: int, _look: Look) -> tuple[float, int]:
    if at + 8 > len(content):
        _short(content, at, 8)
    return _DOUBLE.unpack_from(content, at)[0], at + 8


def _bytes(content: bytes, at: int, look: Look) -> tuple[bytes, int]:
    size, at = _int(content, at, look)
    end = at + size
    if size < 0 or end > len(content):
        raise BadDatum(f"length {size} at byte {at}, but {len(content) - at} bytes are left")
    return content[at:end], end


def string(content: bytes, at: int, look: Look) -> tuple[str, int]:
    """A text."""
    size, at = _int(content, at, look)
    end = at + size
    if size < 0 or end > len(content):
        raise BadDatum(f"length {size} at byte {at}, but {len(content) - at} bytes are left")
    try:
        return str(content[at:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise BadDatum(f"invalid UTF-8 at byte {at + error.start}") from None


def _fixed(size: int) -> Read:
    def fixed(content: bytes, at: int, _look: Look) -> tuple[bytes, int]:
        end = at + size
        if end > len(content):
            _short(content, at, size)
        return content[at:end], end

    return fixed


def _enum(one: Type) -> Read:
    symbols, count = tuple(one.symbols), len(one.symbols)

    def enum(content: bytes, at: int, look: Look) -> tuple[str, int]:
        index, at = _int(content, at, look)
        if not 0 <= index < count:
            raise BadDatum(f"symbol {index} of {one.name}, which has {count}")
        return symbols[index], at

    return enum


def _short(content: bytes, at: int, needed: int) -> NoReturn:
    left = max(len(content) - at, 0)
    raise BadDatum(f"{needed} {'byte' if needed == 1 else 'bytes'} needed at byte {at}, {left} left")


_PRIMITIVES: dict[str, Read] = {
    "boolean": _boolean,
    "int": _int,
    "long": long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": string,
}
