"""What a message would do to the columns that a table has from the messages bound before.

A field that is renamed inside its message keeps its column; new fields and numbers that widen are no loss.
Where a name would stand for another column from now on, queries change their meaning: that is told in words
before it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor

from iceberg import evolution, mapping
from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.evolution import Column, TooManyColumns
from iceberg.mapping import MappingError
from schema import descriptors
from schema.descriptors import DescriptorError

LOOKED_AT_MAX = 256
"""Messages of before that are looked at, the newest."""

NAMED_MAX = 10
"""Changes that are told one by one."""


def changes(
    earlier: Sequence[tuple[bytes, str]], descriptor_set: bytes, message: str, *, key: bool
) -> list[str]:
    """What becomes of which column when the message follows the earlier ones; empty when none is lost.

    `earlier`: (serialized FileDescriptorSet, full name) of each message bound before, oldest first. CPU work:
    call it in a thread. A message that has no columns at all loses none.
    """
    top = KEY_ID if key else VALUE_ID
    fields, ids = evolution.new_fields(), ColumnIds()
    for content, name in earlier[-LOOKED_AT_MAX:]:
        added = _added(fields, ids, top, content, name)
        fields, ids = added or (fields, ids)
    after = _added(fields, ids, top, descriptor_set, message)
    if after is None:
        return []
    lost = [*_lost(_inside(fields, top), _inside(after[0], top), _given(after, descriptor_set, message, top))]
    more = [f"and {len(lost) - NAMED_MAX} more"] if len(lost) > NAMED_MAX else []
    return [*lost[:NAMED_MAX], *more]


def _added(
    fields: list[Column], ids: ColumnIds, top: int, content: bytes, message: str
) -> tuple[list[Column], ColumnIds] | None:
    try:
        shape = mapping.shape(_descriptor(content, message))
        return evolution.with_message(fields, top, shape, message, ids, names=True)
    except (DescriptorError, MappingError, TooManyColumns):
        return None


def _descriptor(content: bytes, message: str) -> Descriptor:
    return descriptors.load(content, message).descriptor


def _given(table: tuple[list[Column], ColumnIds], content: bytes, message: str, top: int) -> frozenset[int]:
    """The columns that the message's fields have."""
    fields, ids = table
    shape = mapping.shape(_descriptor(content, message))
    return frozenset(evolution.numbers_of(shape, top, message, ids, _inside(fields, top)))


def _inside(fields: Iterable[Column], top: int) -> list[Column]:
    found: list[Column] = next(each for each in fields if each["id"] == top)["type"]["fields"]
    return found


def _lost(
    before: Iterable[Column], after: Iterable[Column], given: frozenset[int], path: str = ""
) -> Iterator[str]:
    """Columns that are called otherwise although the message has them not: another one took their name."""
    before = [*before]
    names = {each["id"]: each["name"] for each in before}
    now = {each["id"]: each for each in after}
    named = {each["name"].lower(): each for each in now.values()}
    for each in before:
        here = now[each["id"]]
        place = f"{path}{each['name']}"
        if here["name"] != each["name"] and here["id"] not in given:
            other = named[each["name"].lower()]
            whose = f"what is `{path}{names[other['id']]}` now" if other["id"] in names else "a new column"
            yield (
                f"column `{place}` ({told(each['type'])}) would be called `{path}{here['name']}`, "
                f"and `{place}` be {whose} ({told(other['type'])})"
            )
        yield from _lost(below(each["type"]), below(here["type"]), given, f"{place}.")


def below(kind: Any) -> list[Column]:
    """The columns inside a type, through lists and maps."""
    while isinstance(kind, dict):
        if kind["type"] == "struct":
            columns: list[Column] = kind["fields"]
            return columns
        kind = kind["element"] if kind["type"] == "list" else kind["value"]
    return []


def told(kind: Any) -> str:
    """A type for people."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "list":
        return f"list<{told(kind['element'])}>"
    return f"map<{kind['key']}, {told(kind['value'])}>" if kind["type"] == "map" else "struct"
