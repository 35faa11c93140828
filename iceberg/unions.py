"""Records of several types in one topic: each type is a struct column of its own inside `key` or `value`.

A row has the struct of its type, and null in those of the others. Such a column is known by its type's full
name, so two types share none, and a type keeps the place that it has in a table, whatever is bound later:
a struct, or columns beside those of others (what was there before types had structs, and what is bound as
the topic's one message).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from iceberg.column_ids import ColumnIds
from iceberg.decoder import Decoded, Decoder
from iceberg.mapping import Field, Struct
from iceberg.value_columns import ValueDecoder

NAME_CHARS_MAX = 128

_MARK = "@"  # begins what a type's column is known as: no name of a field does
_ODD = re.compile(r"[^A-Za-z0-9_]")

AnyDecoder = Decoder | ValueDecoder
Make = Callable[[Struct, Sequence[pa.Field]], AnyDecoder]


class TooManyTypes(ValueError):
    """The type gets no column: the table has as many types as it may have; the reason says the figure."""


class Places:
    """Where the types of a table's keys or values (`top`: the id of that column) have their columns."""

    def __init__(self, top: int, ids: ColumnIds, types_max: int) -> None:
        self._types_max = types_max
        self._direct: set[str] = set()
        self._own: set[str] = set()
        beginning = f"{top}."
        for key, columns in ids.known.items():
            if key.startswith(beginning):
                own = known_as_type(key)
                (self._own if own else self._direct).update(*columns.values())

    def shape(self, inside: Struct, full_name: str, *, apart: bool) -> Struct:
        """What a type adds to the table; `apart`: a new one is to have its own struct.

        Raises TooManyTypes.
        """
        if full_name not in self._own:
            if not apart or full_name in self._direct or not inside.fields:
                return inside
            if len(self._own) >= self._types_max:
                raise TooManyTypes(
                    f"{len(self._own)} types have columns in this table, which is as many as "
                    "tables.types_max lets be: raise it, and rows have them from then on"
                )
        if not inside.fields:
            return inside
        known_as, otherwise = f"{_MARK}{full_name}", _plain(full_name)
        name = _plain(full_name.rpartition(".")[2] or full_name)
        return Struct((Field(0, name, inside, presence=True, known_as=known_as, otherwise=otherwise),))

    def has(self, full_name: str) -> bool:
        """Whether the type has columns."""
        return full_name in self._own or full_name in self._direct

    def note(self, full_name: str, shape: Struct) -> None:
        """The table has what `shape` said."""
        (self._own if is_own(shape) else self._direct).add(full_name)


def gives_names(shape: Struct, *, apart: bool) -> bool:
    """Whether a type's newest version may name its columns: one of several must not, beside the others'."""
    return is_own(shape) or not apart


def known_as_type(key: str) -> bool:
    """Whether a column that is known so (column_ids.py) is the struct of a whole type."""
    return key.partition(".")[2].startswith(_MARK)


def is_own(shape: Struct) -> bool:
    """Whether it is one struct for a whole type."""
    return len(shape.fields) == 1 and bool(shape.fields[0].otherwise)


def _plain(name: str) -> str:
    """A column's name, of letters, digits and `_`: titles of JSON schemas need not be."""
    return _ODD.sub("_", name)[:NAME_CHARS_MAX] or "_"


def decoder(shape: Struct, fields: Sequence[pa.Field], make: Make) -> AnyDecoder | TypeDecoder:
    """What fills a type's columns, wherever they are; `make` gives what decodes its fields."""
    if not is_own(shape):
        return make(shape, fields)
    (each,), (inside,) = fields, (each.node for each in shape.fields)
    assert isinstance(inside, Struct), "a type is a struct"
    return TypeDecoder(make(inside, list(each.type)), each)


class TypeDecoder:
    """Decodes payloads of one type into its struct; null where there is no record, or a bad one."""

    def __init__(self, inside: AnyDecoder, column: pa.Field) -> None:
        self._inside = inside
        self.fields = [column]

    @property
    def fast(self) -> bool:
        """See Decoder."""
        return self._inside.fast

    @property
    def why_slow(self) -> str:
        """See Decoder."""
        return self._inside.why_slow

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Decode; None stands for a row without record of this type."""
        done = self._inside.decode(payloads)
        bad = [payload is None or row in done.errors for row, payload in enumerate(payloads)]
        mask = pa.array(bad, pa.bool_())
        made = pa.StructArray.from_arrays(done.arrays, fields=list(self.fields[0].type), mask=mask)
        return Decoded([made], done.errors)
