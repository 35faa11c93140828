"""Anomalies of order: polls that skip or go back, sends that land before earlier ones of their producer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checker.findings import Finding, Weight
from tests.checker.operations import History, Operation, Poll, Send
from tests.checker.versions import Versions


def external_polls(history: History, known: Versions) -> Iterator[Finding]:
    """Between two operations of one process: the first index of this poll against the last of the one before.

    The one before is the last that is ok: a consumer goes back there when its operation failed, and is torn
    down, or goes back, when nobody knows. What such an operation itself read has to follow on from there too.
    With `assign` a step other than one fails; with `subscribe` a rebalance may lie between. Forgotten when an
    assign or subscribe drops the key.
    """
    last: dict[int, dict[str, tuple[int, int]]] = {}  # process → key → (index, operation)
    weight: dict[int, Weight] = {}
    for op in history.operations:
        mine = last.setdefault(op.process, {})
        if op.f == "crash":
            mine.clear()
        if op.f in ("assign", "subscribe") and op.outcome != "fail":
            weight[op.process] = "fail" if op.f == "assign" else "allowed"
            for key in [key for key in mine if key not in op.keys]:
                del mine[key]
        for key, first, newest in _bounds(op, known):
            before = mine.get(key)
            if before is not None:
                how: Weight = weight.get(op.process, "fail")
                yield from _step("", key, before[0], first, (before[1], op.index), how)
            if op.outcome == "ok":
                mine[key] = (newest, op.index)


def _bounds(op: Operation, known: Versions) -> Iterator[tuple[str, int, int]]:
    """Each key of the operation's polls with the index of its first and of its last record."""
    bounds: dict[str, tuple[int, int]] = {}
    for poll in op.polls:
        for key, records in poll.records.items():
            if records:
                index = known.keys[key].index
                first = bounds.get(key, (index[records[0][0]], 0))[0]
                bounds[key] = (first, index[records[-1][0]])
    return ((key, first, newest) for key, (first, newest) in bounds.items())


def internal_polls(history: History, known: Versions) -> Iterator[Finding]:
    """Inside one operation, whatever became of it. Keys that a rebalance moved meanwhile are exempt."""
    for op in history.operations:
        last: dict[str, int] = {}
        for poll in op.polls:
            for key, rank in _ranks(poll, known):
                if key in last and key not in op.rebalanced:
                    yield from _step("internal-", key, last[key], rank, (op.index,), "fail")
                last[key] = rank


def _ranks(poll: Poll, known: Versions) -> Iterator[tuple[str, int]]:
    for key, records in poll.records.items():
        index = known.keys[key].index
        for offset, _ in records:
            yield key, index[offset]


def _step(
    prefix: str, key: str, before: int, now: int, operations: tuple[int, ...], weight: Weight
) -> Iterator[Finding]:
    if now - before > 1:
        yield Finding(f"{prefix}poll-skip", key, f"from index {before} to {now}", operations, weight)
    elif now - before < 1:
        yield Finding(f"{prefix}nonmonotonic-poll", key, f"from index {before} to {now}", operations, weight)


def external_sends(history: History, known: Versions) -> Iterator[Finding]:
    """Offsets of successive operations of one producer do not rise on a key."""
    del known
    last: dict[tuple[int, str], tuple[int, int]] = {}  # (process, key) → (offset, operation)
    for op in history.of("ok"):
        newest: dict[str, int] = {}
        for send in _told(op):
            before = last.get((op.process, send.key))
            if send.key not in newest and before is not None and _offset(send) <= before[0]:
                detail = f"{send.value} at {send.offset} after {before[0]}"
                yield Finding("nonmonotonic-send", send.key, detail, (before[1], op.index))
            newest[send.key] = _offset(send)
        for key, offset in newest.items():
            last[op.process, key] = (offset, op.index)


def internal_sends(history: History, known: Versions) -> Iterator[Finding]:
    """Offsets of successive sends of one operation do not rise on a key."""
    del known
    for op in history.of("ok"):
        last: dict[str, int] = {}
        for send in _told(op):
            if _offset(send) <= last.get(send.key, -1):
                detail = f"{send.value} at {send.offset} after {last[send.key]}"
                yield Finding("internal-nonmonotonic-send", send.key, detail, (op.index,))
            last[send.key] = _offset(send)


def _told(op: Operation) -> Iterator[Send]:
    return (send for send in op.sends if send.offset is not None)


def _offset(send: Send) -> int:
    assert send.offset is not None, "only sends whose offset is known are compared"
    return send.offset
