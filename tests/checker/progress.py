"""Consumers that stand still although there is something to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.checker.findings import Finding
from tests.checker.operations import History, Operation
from tests.checker.versions import Versions

GROUP = -1
"""Stands for all processes that ever subscribed: the members of the history's one group."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long consumers may poll in vain, ns: a process, and the members of a group together.

    A group may wait for what its protocol allows: for a request whose answer was lost until its timeout, then
    for members that are gone, round after round.
    """

    process_ns: int = 10_000_000_000
    group_ns: int = 10_000_000_000
    resumed: frozenset[int] = frozenset()
    """Processes that begin where their group stands, which may be the end: they need not read anything."""


PATIENCE = Patience()
"""Where none is given."""


def stuck(history: History, known: Versions, *, healed_ns: int, patience: Patience) -> Iterator[Finding]:
    """A process that polled in vain for longer than its patience after `healed_ns`, below the end of a key.

    A key that comes anew is waited for from then on: before, it was nobody's or another's. The end is the
    highest offset anybody knows of, so a key that nobody ever read past is only as long as its acknowledged
    sends say. Members of a group are judged together: one begins where others came to and has only some of
    the keys. What a member read in an operation that may have happened counts as read.
    """
    members = {op.process for op in history.operations if op.f == "subscribe" and op.outcome != "fail"}
    assigned: dict[int, tuple[str, ...]] = {}
    position: dict[tuple[int, str], int] = {}  # (process, key) → index of the last record read
    since: dict[tuple[int, str], Operation] = {}  # when it began to wait there
    looked: dict[int, tuple[str, ...]] = {}  # what it had when it last looked
    told: set[tuple[int, str]] = set()
    for op in history.operations:
        if op.process in patience.resumed:
            continue
        who = GROUP if op.process in members else op.process
        if op.f == ("subscribe" if who == GROUP else "assign") and op.outcome != "fail":
            assigned[who] = op.keys
        if op.f not in ("poll", "txn") or (op.outcome != "ok" and (who != GROUP or op.outcome == "fail")):
            continue
        read = {key for poll in op.polls for key, records in poll.records.items() if records}
        for key in read:
            last = _last(op, key, known)
            position[who, key] = max(last, position.get((who, key), -1)) if who == GROUP else last
        for key in assigned.get(who, ()) if op.outcome == "ok" else ():
            place = (who, key)
            if key in read or key not in looked.get(who, ()) or op.completed_ns < healed_ns:
                since[place] = op
            waited = op.completed_ns - max(since[place].completed_ns, healed_ns)
            end = len(known.keys[key].order) - 1 if key in known.keys else -1
            longest = patience.group_ns if who == GROUP else patience.process_ns
            if waited > longest and position.get(place, -1) < end and place not in told:
                told.add(place)
                at, name = position.get(place, -1), "the group" if who == GROUP else f"process {who}"
                detail = f"{name} at index {at} of {end} for {waited / 1e9:.1f} s"
                yield Finding("stuck", key, detail, (since[place].index, op.index))
        if op.outcome == "ok":
            looked[who] = assigned.get(who, ())


def _last(op: Operation, key: str, known: Versions) -> int:
    index = known.keys[key].index
    return [index[offset] for poll in op.polls for offset, _ in poll.records.get(key, ())][-1]
