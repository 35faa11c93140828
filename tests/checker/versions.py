"""What a history says about each key: which value stands at which offset, and who wrote and read it.

The version order of a key is the order of its offsets, seen by any poll or told to a proven send; the *index*
of an offset is its rank among them, so that offsets which are no records (control batches) leave no gap.

A consumer is given committed records only, so what a poll returned is evidence whatever became of its
operation: that the record stands there, and that its author happened. That it is *still* there only an ok
poll shows, because its reader goes on from it; one that failed reads again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.checker.operations import History, Operation, Value


@dataclass(slots=True)
class KeyVersions:
    """One key's log as far as clients know it."""

    values: dict[int, list[Value]] = field(default_factory=dict)
    """The different values seen at an offset: one, or something is wrong."""
    offsets: dict[Value, list[int]] = field(default_factory=dict)
    """The different offsets of a value: one, or it was doubled."""
    index: dict[int, int] = field(default_factory=dict)
    """Rank by offset."""
    order: list[int] = field(default_factory=list)
    """Offsets by rank."""
    seen: set[Value] = field(default_factory=set)
    """Values that any poll returned."""
    read: set[Value] = field(default_factory=set)
    """Values that an ok poll returned."""
    read_index_max: int = -1
    """The highest rank that an ok poll returned."""

    def note(self, offset: int, value: Value) -> None:
        """One value at one offset."""
        values = self.values.setdefault(offset, [])
        if value not in values:
            values.append(value)
        offsets = self.offsets.setdefault(value, [])
        if offset not in offsets:
            offsets.append(offset)

    def rank(self) -> None:
        """Give every offset its index."""
        self.order = sorted(self.values)
        self.index = {offset: rank for rank, offset in enumerate(self.order)}


@dataclass(slots=True)
class Versions:
    """All keys, the author of each value, and which operations provably happened."""

    keys: dict[str, KeyVersions]
    writer: dict[tuple[str, Value], Operation]
    proven: set[int]
    """Indices of the operations that are ok, or info with one of their sends polled by another operation."""


def versions(history: History) -> Versions:
    """Read the whole history once."""
    keys: dict[str, KeyVersions] = defaultdict(KeyVersions)
    writer = {(send.key, send.value): op for op in history.operations for send in op.sends}
    proven = {op.index for op in history.of("ok")}
    for op in history.operations:
        for poll in op.polls:
            for name, records in poll.records.items():
                _note_records(keys[name], records, ok=op.outcome == "ok")
                authors = (writer.get((name, value)) for _, value in records)
                proven.update(
                    a.index for a in authors if a is not None and a.outcome == "info" and a is not op
                )
    for op in history.operations:
        if op.index in proven:
            for send in op.sends:
                if send.offset is not None:
                    keys[send.key].note(send.offset, send.value)
    for key in keys.values():
        key.rank()
    _highest_read(history, keys)
    return Versions(dict(keys), writer, proven)


def _note_records(key: KeyVersions, records: Sequence[tuple[int, Value]], *, ok: bool) -> None:
    for offset, value in records:
        key.note(offset, value)
        key.seen.add(value)
        if ok:
            key.read.add(value)


def _highest_read(history: History, keys: dict[str, KeyVersions]) -> None:
    for op in history.of("ok"):
        for poll in op.polls:
            for name, records in poll.records.items():
                key = keys[name]
                for offset, _ in records:
                    key.read_index_max = max(key.read_index_max, key.index[offset])
