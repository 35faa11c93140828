"""The ledger: which offsets of a topic its table holds, kept in the current snapshot's summary.

`floe.next-offsets` is cumulative: per partition index, offsets below are in the table, or were before they
went with the topic's (`floe.table.retention=follow`): a snapshot that removes files says in
`floe.removed-below`, per partition index, below which offsets. `floe.ranges` is what this snapshot added:
`partition:start-end` (end exclusive). The topic's id is there too: a topic that was
deleted and created again starts a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TOPIC_PROPERTY = "floe.topic"
TOPIC_ID_PROPERTY = "floe.topic-id"
COLUMNS_PROPERTY = "floe.columns"

_NEXT = "floe.next-offsets"
_RANGES = "floe.ranges"
_TOPIC_ID = "floe.topic-id"
_COMMITTER = "floe.committer"
_IS_TOPIC_ID = re.compile(r"[0-9a-f]{32}")
_REMOVED = "floe.removed-below"
BY = "floe.replaced-by"
"""Of a snapshot's summary: another engine made its files, whose names do not say for which snapshot."""
_OF_THE_CURRENT = (
    _NEXT,
    _TOPIC_ID,
    _COMMITTER,
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
)
RANGES_MAX = 512
"""Characters of a former snapshot's ranges that its summary keeps."""


class LedgerError(Exception):
    """The table's ledger contradicts itself or the topic. Nothing may be committed on top of it."""


class Range(NamedTuple):
    """Offsets start ≤ offset < end of one partition."""

    partition: int
    start: int
    end: int


def summary(
    topic_id: bytes, next_offsets: Sequence[int], ranges: Iterable[Range], committer: str
) -> dict[str, str]:
    """The ledger's part of a snapshot's summary."""
    return {
        _TOPIC_ID: topic_id.hex(),
        _NEXT: ",".join(str(each) for each in next_offsets),
        _RANGES: ",".join([f"{index}:{start}-{end}" for index, start, end in ranges]),
        _COMMITTER: committer,
    }


def removal_summary(
    topic_id: bytes, next_offsets: Sequence[int], log_starts: Sequence[int], committer: str
) -> dict[str, str]:
    """The same of a snapshot that removes files below the log starts and adds none."""
    kept = summary(topic_id, next_offsets, (), committer)
    return {**kept, _REMOVED: ",".join(str(each) for each in log_starts)}


def told_elsewhere(snapshot_summary: Mapping[str, str], ranges_max: int = RANGES_MAX) -> dict[str, str]:
    """The summary of a snapshot that is not the current one any more, without what stands elsewhere as well.

    The offsets of all partitions are in the current one, the topic's id in the table's properties, the
    committer and the ranges (which stay up to `ranges_max` characters) in the names of the files that the
    snapshot added.
    """
    kept = {name: value for name, value in snapshot_summary.items() if name not in _OF_THE_CURRENT}
    return {
        name: value
        for name, value in kept.items()
        if name not in (_RANGES, _REMOVED) or len(value) <= ranges_max
    }


def removed_below(snapshot_summary: Mapping[str, str]) -> list[int]:
    """Below which offsets a snapshot removed files, by partition index; empty when it removed none."""
    return _numbers(snapshot_summary.get(_REMOVED, ""))


def next_offsets(metadata: Mapping[str, Any], topic_id: bytes) -> list[int]:
    """The ledger of a table's current snapshot; empty when it has none. Raises LedgerError."""
    current = current_snapshot(metadata)
    if current is None:
        return []
    found = current["summary"]
    if found.get(_TOPIC_ID) != topic_id.hex() or _NEXT not in found:
        raise LedgerError(
            f"snapshot {current['snapshot-id']} of {metadata['location']} has no ledger of topic "
            f"{topic_id.hex()}: it was not written by Floe's committer"
        )
    return _numbers(found[_NEXT])


def ranges(snapshot_summary: Mapping[str, str]) -> list[Range]:
    """What one snapshot added. Raises LedgerError."""
    found = []
    for text in filter(None, snapshot_summary.get(_RANGES, "").split(",")):
        try:
            partition, offsets = text.split(":")
            start, end = offsets.split("-")
            found.append(Range(int(partition), int(start), int(end)))
        except ValueError as error:
            raise LedgerError(f"range {text!r} of a snapshot's ledger is not partition:start-end") from error
    return found


def advance(before: Sequence[int], added: Iterable[Range], partitions: int) -> list[int]:
    """The ledger after `added`; new partitions begin at 0. Raises LedgerError for a range behind it."""
    after = [*before, *([0] * (partitions - len(before)))]
    for each in added:
        if each.start < after[each.partition] or each.end < each.start:
            raise LedgerError(f"range {each} overlaps what the table holds below {after[each.partition]}")
        after[each.partition] = each.end
    return after


def owner(metadata: Mapping[str, Any]) -> str:
    """The id of the topic whose table this is, in hexadecimal; empty when it is no topic's."""
    properties = metadata.get("properties") or {}
    found = properties.get(TOPIC_ID_PROPERTY, "")  # of another engine's table it may be anything
    return found if isinstance(found, str) and _IS_TOPIC_ID.fullmatch(found) else ""


def current_snapshot(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The snapshot that readers see; None when there is none. Raises LedgerError when it is missing."""
    current = metadata.get("current-snapshot-id")
    if current is None or current == -1:
        return None
    for each in metadata.get("snapshots") or ():
        if each["snapshot-id"] == current:
            found: dict[str, Any] = each
            return found
    raise LedgerError(
        f"the current snapshot {current} of {metadata.get('location')} is not among its snapshots"
    )


def _numbers(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")] if text else []
    except ValueError as error:
        raise LedgerError(f"{_NEXT} is {text!r}, not a list of numbers") from error
