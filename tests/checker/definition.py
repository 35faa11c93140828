"""The anomalies said once more, word for word and without any cleverness: what judge.py is held against.

Every question goes over the whole history again, so only short ones can be asked. Nothing is shared with the
checks but the operations. Without `stuck`, and without G1c, of which judge.py gives an example per part.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from tests.checker.operations import History, Operation, Poll, Send, Value

Found = Counter[tuple[str, str, str]]
"""How often each (anomaly, weight, key)."""


class Shown(NamedTuple):
    """One record that one poll returned."""

    op: Operation
    key: str
    offset: int
    value: Value


class Sent(NamedTuple):
    """One send."""

    op: Operation
    send: Send


class Definition:
    """A history and the words in which its anomalies are defined."""

    def __init__(self, history: History) -> None:
        self.operations = history.operations
        self.sent = [Sent(op, m) for op in self.operations for m in op.micro if isinstance(m, Send)]
        self.shown = [
            Shown(op, key, offset, value)
            for op in self.operations
            for m in op.micro
            if isinstance(m, Poll)
            for key, records in m.records.items()
            for offset, value in records
        ]
        self.keys = sorted({s.send.key for s in self.sent} | {r.key for r in self.shown})

    def author(self, key: str, value: Value) -> Operation | None:
        """Who sent a value."""
        authors = [s.op for s in self.sent if (s.send.key, s.send.value) == (key, value)]
        return authors[-1] if authors else None

    def happened(self, op: Operation) -> bool:
        """Whether it provably did: it is ok, or info and another operation polled one of its sends."""
        sends = {(s.send.key, s.send.value) for s in self.sent if s.op is op}
        polled = any((r.key, r.value) in sends for r in self.shown if r.op is not op)
        return op.outcome == "ok" or (op.outcome == "info" and polled)

    def pairs(self, key: str) -> set[tuple[int, Value]]:
        """Each offset and value of the key that a poll returned or a send that happened was told."""
        told = {
            (s.send.offset, s.send.value)
            for s in self.sent
            if s.send.key == key and s.send.offset is not None and self.happened(s.op)
        }
        return told | {(r.offset, r.value) for r in self.shown if r.key == key}

    def rank(self, key: str, offset: int) -> int:
        """How many offsets of the key are below."""
        return len({at for at, _ in self.pairs(key) if at < offset})

    def end_of_reads(self, key: str) -> int:
        """The highest rank that an ok poll returned."""
        ranks = [self.rank(key, r.offset) for r in self.shown if r.key == key and r.op.outcome == "ok"]
        return max(ranks, default=-1)

    def polled(self, key: str, value: Value, *outcomes: str) -> bool:
        """Whether a poll of an operation with one of the outcomes returned the value."""
        return any((r.key, r.value) == (key, value) and r.op.outcome in outcomes for r in self.shown)

    def of(self, op: Operation, key: str) -> list[int]:
        """The ranks of what the operation's polls returned of the key, in order."""
        return [self.rank(key, r.offset) for r in self.shown if r.op is op and r.key == key]


def defined(history: History) -> Found:
    """All anomalies."""
    d = Definition(history)
    return _records(d) + _torn(d) + _order(d) + _sends(d) + _cycles(d)


def _records(d: Definition) -> Found:
    found: Found = Counter()
    for key in d.keys:
        offsets = Counter(offset for offset, _ in d.pairs(key))
        values = Counter(value for _, value in d.pairs(key))
        found["inconsistent-offset", "fail", key] += sum(n > 1 for n in offsets.values())
        found["duplicate", "fail", key] += sum(n > 1 for n in values.values())
    for op, send in d.sent:
        if d.polled(send.key, send.value, "ok"):
            continue
        places = [offset for offset, value in d.pairs(send.key) if value == send.value]
        gone = places and d.rank(send.key, min(places)) <= d.end_of_reads(send.key)
        found["lost-write", "fail", send.key] += bool(d.happened(op) and gone)
        found["unseen", "fail", send.key] += op.outcome == "ok"
    for op, key, _, value in d.shown:
        author = d.author(key, value)
        found["phantom-read", "fail", key] += author is None
        found["precommitted-read", "fail", key] += author is op
        aborted = author is not None and author is not op and author.outcome == "fail"
        found["aborted-read", "fail", key] += aborted
    return +found


def _torn(d: Definition) -> Found:
    found: Found = Counter()
    every = ("ok", "info", "fail")
    for op in d.operations:
        sends = [m for m in op.micro if isinstance(m, Send)]
        hidden = [s for s in sends if not d.polled(s.key, s.value, *every) and _passed(d, op, s)]
        if op.f == "txn" and hidden and any(d.polled(s.key, s.value, *every) for s in sends):
            found["torn-transaction", "fail", hidden[0].key] += 1
    return found


def _passed(d: Definition, op: Operation, send: Send) -> bool:
    """Whether ok polls went past where the send must be, by offset, or else by when others were called."""
    if send.offset is not None and send.offset in {offset for offset, _ in d.pairs(send.key)}:
        return d.rank(send.key, send.offset) <= d.end_of_reads(send.key)
    authors = [d.author(r.key, r.value) for r in d.shown if r.key == send.key and r.op.outcome == "ok"]
    return any(author is not None and author.invoked_ns > op.completed_ns for author in authors)


def _order(d: Definition) -> Found:
    found: Found = Counter()
    for op in d.operations:
        for key in d.keys:
            ranks = d.of(op, key)
            for before, now in pairwise(ranks) if key not in op.rebalanced else ():
                _step(found, "internal-", key, now - before, "fail")
            last = _stood(d, op, key)
            if ranks and last is not None:
                _step(found, "", key, ranks[0] - last, _weight(d, op))
    return found


def _step(found: Found, prefix: str, key: str, step: int, weight: str) -> None:
    if step != 1:
        found[f"{prefix}{'poll-skip' if step > 1 else 'nonmonotonic-poll'}", weight, key] += 1


def _stood(d: Definition, op: Operation, key: str) -> int | None:
    """The last rank of the process's newest ok operation that read the key, unless dropped since."""
    earlier = [each for each in d.operations if each.process == op.process and each.index < op.index]
    for each in reversed(earlier):
        if each.f == "crash":
            return None
        if each.f in ("assign", "subscribe") and each.outcome != "fail" and key not in each.keys:
            return None
        if each.outcome == "ok" and d.of(each, key):
            return d.of(each, key)[-1]
    return None


def _weight(d: Definition, op: Operation) -> str:
    modes = [
        each.f
        for each in d.operations
        if each.process == op.process and each.index < op.index and each.outcome != "fail"
        and each.f in ("assign", "subscribe")
    ]  # fmt: skip
    return "allowed" if modes and modes[-1] == "subscribe" else "fail"


def _sends(d: Definition) -> Found:
    found: Found = Counter()
    acknowledged = [s for s in d.sent if s.op.outcome == "ok" and s.send.offset is not None]
    for process in {op.process for op in d.operations}:
        for key in d.keys:
            mine = [s for s in acknowledged if s.op.process == process and s.send.key == key]
            for (op, send), (other, then) in pairwise(mine):
                assert send.offset is not None
                assert then.offset is not None
                inside = "internal-" if op is other else ""
                found[f"{inside}nonmonotonic-send", "fail", key] += then.offset <= send.offset
    return +found


def _cycles(d: Definition) -> Found:
    written: set[tuple[int, int]] = set()
    for key in d.keys:
        first: dict[int, Operation] = {}
        for offset in sorted({offset for offset, _ in d.pairs(key)}):
            author = d.author(key, _first_value(d, key, offset))
            if author is not None and d.happened(author):
                first[offset] = author
        written |= {(a.index, b.index) for a, b in pairwise(first.values()) if a is not b}
    read = set()
    for op, key, _, value in d.shown:
        author = d.author(key, value)
        if author is not None and author is not op:
            read.add((author.index, op.index))
    return +Counter({("G0", "reported", ""): _parts(written), ("G1c-wr", "fail", ""): _parts(read)})


def _first_value(d: Definition, key: str, offset: int) -> Value:
    """Where an offset holds several values: what was polled first, or else told first."""
    polled = [r.value for r in d.shown if (r.key, r.offset) == (key, offset)]
    told = [s.send.value for s in d.sent if (s.send.key, s.send.offset) == (key, offset) and d.happened(s.op)]
    return (polled + told)[0]


def _parts(edges: set[tuple[int, int]]) -> int:
    """How many sets of two and more operations reach each other."""
    nodes = sorted({node for edge in edges for node in edge})
    reach = set(edges)
    for via in nodes:
        reach |= {(a, b) for a in nodes for b in nodes if (a, via) in reach and (via, b) in reach}
    together = {frozenset(b for b in nodes if (a, b) in reach and (b, a) in reach) | {a} for a in nodes}
    return sum(len(part) > 1 for part in together)
