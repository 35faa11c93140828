"""Which column of a table belongs to which field of which message, for as long as the table is there.

A column's identity is its parent column, the protobuf field number, and what it has to hold
(mapping.signature). What a message once gave it finds again, whatever was bound in between. Another message
(another full name) shares a column only where the field has the same name too: then it is the same thing in
another package; where it has another name it is another thing, and gets a column of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg.mapping import FAMILIES, Field, signature

KEY_ID, VALUE_ID = 6, 8
FIRST_MESSAGE_ID = 15

ANY_MESSAGE = ""
"""In the place of a message's name: a table of before messages were told apart."""

Names = dict[str, str]
"""{full name of the message bound: name of its field}."""


@dataclass
class ColumnIds:
    """What is known of a table's decoded columns, retired ones too, and the last id given, ever."""

    known: dict[str, dict[int, Names]] = field(default_factory=dict)
    last: int = FIRST_MESSAGE_ID - 1

    def find(
        self, parent: int, fields: Sequence[Field], message: str, *, renames: bool = False
    ) -> list[int | None]:
        """The columns that fields of `message` have inside column `parent`; None for a field without one.
        With `renames` also those that a field had as what it was known as before.

        The order of the fields says nothing: of several that could have one column it is the field's to which
        it was given last, and only then that of one which knows it by a former name. The others look further.
        """
        found: list[int | None] = [None] * len(fields)
        waiting = [*range(len(fields))]
        while waiting:
            taken = {column for column in found if column is not None}
            wanted: dict[int, list[int]] = {}
            for at in waiting:
                column = self._wanted(parent, fields[at], message, taken, renames=renames)
                if column is not None:
                    wanted.setdefault(column, []).append(at)
            for column, places in wanted.items():
                best = places[0]
                if len(places) > 1:
                    best = max(places, key=lambda at: (self._claim(parent, fields[at], message, column), -at))
                found[best] = column
            waiting = [at for places in wanted.values() for at in places if found[at] is None]
        return found

    def take(self, parent: int, fields: Sequence[Field], message: str) -> list[int]:
        """The same, with a new id where there is none; from now on the message finds it by its own name.

        A field that was known as something else before has the column that it had then.
        """
        given = []
        for each, found in zip(fields, self.find(parent, fields, message, renames=True), strict=True):
            column = self.give() if found is None else found
            key = _key(parent, each.known_as or each.number, each)
            columns = self.known.get(key, {})
            if found is not None and found not in columns:
                self.known.pop(key, None)  # the newest that a column was given to comes last
            names = self.known.setdefault(key, columns).setdefault(column, {})
            names.pop(ANY_MESSAGE, None)
            names[message] = each.name
            given.append(column)
        return given

    def _wanted(
        self, parent: int, each: Field, message: str, taken: Collection[int], *, renames: bool
    ) -> int | None:
        """The column that a field would have if it were alone, of those that are not `taken`."""
        column = self._find(_key(parent, each.known_as or each.number, each), message, each.name, taken)
        for alias in each.aliases if renames and column is None else ():
            column = self._find(_key(parent, alias, each), message, alias, taken)
            if column is not None:
                break
        return column

    def _claim(self, parent: int, each: Field, message: str, column: int) -> tuple[bool, bool, int]:
        """How good a field's claim to a column is: whether it had it under its name, and got none since; of
        several such, who was given it last.
        """
        key = _key(parent, each.known_as or each.number, each)
        columns = self.known.get(key, {})
        own = [number for number, names in columns.items() if message in names or ANY_MESSAGE in names]
        newest = column in columns and (own or [*columns])[-1] == column
        return column in columns, newest, [*self.known].index(key) if newest else 0

    def _find(self, key: str, message: str, name: str, taken: Collection[int]) -> int | None:
        found = {column: names for column, names in self.known.get(key, {}).items() if column not in taken}
        for column, names in found.items():
            if message in names or ANY_MESSAGE in names:
                return column
        return next((column for column, names in reversed(found.items()) if name in names.values()), None)

    def give(self) -> int:
        """An id that no column has had."""
        self.last += 1
        return self.last

    def to_json(self) -> str:
        """The form in which the table's properties hold it."""
        known = [
            [key, column, names] for key, columns in self.known.items() for column, names in columns.items()
        ]
        return json.dumps({"last": self.last, "known": known}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, fields: Iterable[Mapping[str, Any]] = ()) -> ColumnIds:
        """Inverse of to_json. Raises ValueError.

        `fields`: the table's current columns, of which an older form took the types.
        """
        content = json.loads(text)
        found = cls(last=int(content["last"]))
        if "ids" in content:
            kept = {int(number): str(path) for path, number in content["ids"].items()}
            for key, column, name in _older(kept, fields):
                found.known.setdefault(key, {})[column] = {ANY_MESSAGE: name}
            return found
        for key, column, names in content["known"]:
            found.known.setdefault(str(key), {})[int(column)] = dict(names)
        return found

    def copy(self) -> ColumnIds:
        """An independent copy."""
        known = {
            key: {column: dict(names) for column, names in columns.items()}
            for key, columns in self.known.items()
        }
        return ColumnIds(known, self.last)


def _key(parent: int, known_as: int | str, each: Field) -> str:
    return _text_of(parent, known_as, signature(each.node))


def _text_of(parent: int, known_as: int | str, kind: str) -> str:
    return f"{parent}.{known_as}:{kind}"


def _older(paths: Mapping[int, str], fields: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int, str]]:
    """Of the form {path of field numbers: id}, each column that is a field: its key, id and name."""
    for top in fields:
        if top["id"] in (KEY_ID, VALUE_ID):
            yield from _inside(top["id"], top["type"], paths)


def _inside(parent: int, kind: Any, paths: Mapping[int, str]) -> Iterator[tuple[str, int, str]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "list":
        yield from _inside(kind["element-id"], kind["element"], paths)
        return
    if kind["type"] == "map":
        yield from _inside(kind["value-id"], kind["value"], paths)
        return
    for each in kind["fields"]:
        number = paths.get(each["id"], "").rpartition(".")[2]
        if number.isdecimal():
            yield _text_of(parent, int(number), _signature(each["type"])), each["id"], each["name"]
        yield from _inside(each["id"], each["type"], paths)


def _signature(kind: Any) -> str:
    """As mapping.signature, of an Iceberg type."""
    if isinstance(kind, str):
        return FAMILIES.get(kind, kind)
    if kind["type"] == "struct":
        return "struct"
    if kind["type"] == "list":
        return f"list<{_signature(kind['element'])}>"
    return f"map<{kind['key']},{_signature(kind['value'])}>"
