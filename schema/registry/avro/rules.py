"""What a reader of AVRO cannot take from a writer: the specification's "Schema Resolution".

Kinds and paths (`/fields/0/type/symbols`) are those of Java's library and Confluent's registry. Names are
compared without their namespaces, and the reader's aliases in full, as there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from schema.registry.avro.types import ABSENT, Field, Type, decimal_of
from schema.registry.parsed import Difference

STEPS_MAX = 400_000
"""Fields and branches compared. Where unions of many records meet, each would be compared with each."""

TOLD_MAX = 100
"""Differences told of one comparison."""

READS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
"""By what was written: as what it can be read. Others are read as themselves only."""


class Path(NamedTuple):
    """Where something stands; put together only where it is told."""

    before: Path | None
    step: str

    def __str__(self) -> str:
        steps, one = [], self
        while one.before is not None:
            steps.append(one.step)
            one = one.before
        return "/" + "/".join(reversed(steps))


class _Pair:
    """A reader's type and a writer's. It fails by a difference of its own, or with one of its parts,

    or, where it is `any`, with all of them.
    """

    __slots__ = ("any", "failed", "left", "own", "parts", "reader", "users", "writer")

    def __init__(self, reader: Type, writer: Type) -> None:
        self.reader, self.writer = reader, writer
        self.any, self.failed, self.left = False, False, 0
        self.own: list[tuple[str, str, str]] = []  # kind, step, words
        self.parts: list[tuple[str, _Pair]] = []  # by the step that leads there
        self.users: list[_Pair] = []


def differences(reader: Type, writer: Type) -> list[Difference]:
    """What the reader cannot take of what the writer writes, TOLD_MAX at most; empty: it takes all."""
    comparison = _Comparison()
    top = comparison.compared(reader, writer)
    if comparison.steps > STEPS_MAX:
        words = f"More than {STEPS_MAX} pairs of fields and types in the {{new}} and the {{old}} schema"
        return [Difference("TYPE_MISMATCH", "/", f"{words}: too many to compare")]
    found: list[Difference] = []
    for one in _told(top):
        found.append(one)
        if len(found) == TOLD_MAX:
            break
    return found


class _Comparison:
    """Pairs of types, each once, and which of them fail.

    Types hold themselves, so a pair may wait for itself: all pass until one is found that does not, and what
    needs it fails with it. No recursion: chains of types may be long.
    """

    def __init__(self) -> None:
        self.steps = 0
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._waiting: deque[_Pair] = deque()
        self._fields: dict[int, dict[str, Field]] = {}
        self._branches: dict[int, dict[str, list[Type]]] = {}

    def compared(self, reader: Type, writer: Type) -> _Pair:
        """The pair of both; `steps` above STEPS_MAX: it was too much."""
        top = self._pair(reader, writer)
        failed: list[_Pair] = []
        while self._waiting and self.steps <= STEPS_MAX:
            one = self._waiting.popleft()
            self._look(one)
            for _, part in one.parts:
                part.users.append(one)
            one.left = len(one.parts)
            if one.own or (one.any and not one.parts):
                failed.append(one)
        while failed:
            one = failed.pop()
            if not one.failed:
                one.failed = True
                for user in one.users:
                    user.left -= 1
                    if not user.any or user.left == 0:
                        failed.append(user)
        return top

    def _pair(self, reader: Type, writer: Type) -> _Pair:
        self.steps += 1
        key = (id(reader), id(writer))
        if key not in self._pairs:
            self._pairs[key] = _Pair(reader, writer)
            self._waiting.append(self._pairs[key])
        return self._pairs[key]

    def _look(self, pair: _Pair) -> None:
        """What the pair needs, and what is wrong with it by itself."""
        reader, writer = pair.reader, pair.writer
        if writer.kind == "union":  # whichever was written
            named = enumerate(writer.branches)
            pair.parts = [(str(index), self._pair(reader, each)) for index, each in named]
        elif reader.kind == "union":
            pair.any = True
            pair.parts = [("", self._pair(each, writer)) for each in self._candidates(reader, writer)]
        elif reader.kind not in READS.get(writer.kind, (writer.kind,)):
            words = f"The {{new}} schema has {reader} where the {{old}} has {writer}"
            pair.own.append(("TYPE_MISMATCH", "", words))
        elif reader.items is not None and writer.items is not None:
            pair.parts = [
                ("items" if reader.kind == "array" else "values", self._pair(reader.items, writer.items))
            ]
        else:
            self._named(pair)

    def _candidates(self, reader: Type, writer: Type) -> list[Type]:
        """Branches of the reader's union that may take it: not each is to be looked at, of hundreds."""
        known = self._branches.get(id(reader))
        if known is None:
            known = self._branches[id(reader)] = {}
            for each in reader.branches:
                for key in (each.simple, *each.aliases) if each.name else (each.kind,):
                    known.setdefault(f"{each.kind} {key}" if each.name else key, []).append(each)
        if writer.name:
            keys = [f"{writer.kind} {name}" for name in (writer.simple, writer.name)]
        else:
            keys = [*READS.get(writer.kind, (writer.kind,))]
        return list(dict.fromkeys(each for key in keys for each in known.get(key, ())))

    def _named(self, pair: _Pair) -> None:
        """Types of one kind that have names, or are decimals."""
        reader, writer = pair.reader, pair.writer
        if reader.simple != writer.simple and writer.name not in reader.aliases:
            words = f"The {{new}} schema has {reader.name} where the {{old}} has {writer.name}"
            pair.own.append(("NAME_MISMATCH", "name", f"{words}, which is none of its aliases"))
        if reader.size != writer.size:
            sizes = f"{reader.size} bytes in the {{new}} schema, {writer.size} in the {{old}}"
            pair.own.append(("FIXED_SIZE_MISMATCH", "size", f"{reader.name} has {sizes}"))
        if reader.kind == "enum" and reader.default is None:
            missing = set(writer.symbols).difference(reader.symbols)
            if missing:
                words = "The {new} schema has no default, and not these symbols of the {old}: "
                told = ", ".join(each for each in writer.symbols if each in missing)
                pair.own.append(("MISSING_ENUM_SYMBOLS", "symbols", f"{words}{told[:1_000]}"))
        if reader.kind == "record":
            self._records(pair)
        reads, writes = decimal_of(reader), decimal_of(writer)
        if reads and writes and reads.scale != writes.scale:
            words = f"A decimal has scale {reads.scale} in the {{new}} schema, {writes.scale} in the {{old}}"
            pair.own.append(("TYPE_MISMATCH", "scale", words))

    def _records(self, pair: _Pair) -> None:
        """The reader's fields: each is one of the writer's, or has a default."""
        writer = pair.writer
        written = self._fields.get(id(writer))
        if written is None:
            written = self._fields[id(writer)] = {each.name: each for each in writer.fields}
        taken: set[str] = set()
        for index, field in enumerate(pair.reader.fields):
            self.steps += 1 + len(field.aliases)
            place = f"fields/{index}"
            names = [name for name in dict.fromkeys((field.name, *field.aliases)) if name in written]
            if len(names) > 1 or taken.intersection(names):
                words = (
                    f"Field {field.name} with its aliases is of several fields of the {{old}} schema, or of"
                )
                pair.own.append(("NAME_MISMATCH", place, f"{words} one that another field takes, too"))
            elif names:
                pair.parts.append((f"{place}/type", self._pair(field.type, written[names[0]].type)))
            elif field.default is ABSENT:
                words = f"Field {field.name} of the {{new}} schema has no default, and the {{old}} has it not"
                pair.own.append(("READER_FIELD_MISSING_DEFAULT_VALUE", place, words))
            taken.update(names)


def _told(top: _Pair) -> Iterator[Difference]:
    """Why it fails, in the order of the reader's fields; each pair once."""
    seen: set[int] = set()
    waiting = [(top, Path(None, ""))]
    while waiting:
        pair, path = waiting.pop()
        if not pair.failed or id(pair) in seen:
            continue
        seen.add(id(pair))
        for kind, step, words in pair.own:
            yield Difference(kind, str(Path(path, step) if step else path), words)
        if pair.any:
            words = f"The {{new}} schema is missing {pair.writer} of the {{old}} in a union"
            yield Difference("MISSING_UNION_BRANCH", str(path), words)
            parts = [each for each in pair.parts if each[1].reader.kind == pair.writer.kind]
        else:
            parts = pair.parts
        waiting += [(part, Path(path, step) if step else path) for step, part in reversed(parts)]
