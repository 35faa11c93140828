"""Histories of clients: what each process asked for and what it was told, in the order of its completions.

The shape is the one of Jepsen's queue workload. A *key* is one topic-partition; values are unique per key.
An operation has one of these meanings (`f`):

* `send`, `poll`, `txn`: a list of micro-operations, Sends and Polls; a txn's belong to one Kafka transaction;
* `assign`, `subscribe`: the list of keys;
* `crash`: the client was torn down; a new process number follows.

Its `outcome`: `ok` happened, `fail` did not happen, `info` may have happened. Offsets learned before
a crash stay in an info operation's Sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "fail", "info"]
OUTCOMES = ("ok", "fail", "info")
MEANINGS = ("send", "poll", "txn", "assign", "subscribe", "crash")
Value = int | str


@dataclass(frozen=True, slots=True)
class Send:
    """One record written to a key; `offset` as the client was told, None when it was not."""

    key: str
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll returned: (offset, value) per key, in the order in which it came."""

    records: Mapping[str, Sequence[tuple[int, Value]]]


Micro = Send | Poll


@dataclass(frozen=True, slots=True)
class Operation:
    """One completed operation. Times are nanoseconds of one clock, of the call and of the answer."""

    index: int
    process: int
    f: str
    outcome: Outcome
    micro: tuple[Micro, ...] = ()
    keys: tuple[str, ...] = ()  # of assign and subscribe
    rebalanced: frozenset[str] = frozenset()  # keys that moved to or from the client meanwhile
    invoked_ns: int = 0
    completed_ns: int = 0
    error: str = ""

    @property
    def sends(self) -> Iterator[Send]:
        """The Sends, in the operation's order."""
        return (each for each in self.micro if isinstance(each, Send))

    @property
    def polls(self) -> Iterator[Poll]:
        """The Polls, in the operation's order."""
        return (each for each in self.micro if isinstance(each, Poll))


@dataclass(slots=True)
class History:
    """Operations in the order of their completions; `index` rises."""

    operations: list[Operation] = field(default_factory=list)

    def of(self, *outcomes: Outcome) -> Iterator[Operation]:
        """The operations with one of the outcomes."""
        return (each for each in self.operations if each.outcome in outcomes)


class BadHistory(ValueError):
    """A line of a history that says nothing; names the line, the field and its value."""


def load(lines: Iterable[str]) -> History:
    """The history of JSON lines `{process, f, outcome, value, invoked_ns, completed_ns, …}`.

    `value` is a list of micro-operations, `["send", key, offset or null, value]` or
    `["poll", {key: [[offset, value], …]}]`, or the list of keys. Raises BadHistory.
    """
    history = History()
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                history.operations.append(_operation(len(history.operations), json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise BadHistory(f"line {number}: {error!r} in {line.strip()[:200]}") from error
    return history


def dump(history: History) -> Iterator[str]:
    """The history as lines that `load` reads."""
    for each in history.operations:
        value: list[Any] = (
            list(each.keys) if each.f in ("assign", "subscribe") else [_pack(m) for m in each.micro]
        )
        yield json.dumps(
            {
                "process": each.process,
                "f": each.f,
                "outcome": each.outcome,
                "value": value,
                "rebalanced": sorted(each.rebalanced),
                "invoked_ns": each.invoked_ns,
                "completed_ns": each.completed_ns,
                "error": each.error,
            }
        )


def _pack(micro: Micro) -> list[Any]:
    if isinstance(micro, Send):
        return ["send", micro.key, micro.offset, micro.value]
    return ["poll", {key: [list(record) for record in records] for key, records in micro.records.items()}]


def _operation(index: int, raw: dict[str, Any]) -> Operation:
    f, outcome = raw["f"], raw["outcome"]
    if f not in MEANINGS or outcome not in OUTCOMES:
        raise ValueError(f"f {f!r} or outcome {outcome!r} is unknown")
    value = raw.get("value") or []
    named = f in ("assign", "subscribe")
    return Operation(
        index=index,
        process=raw["process"],
        f=f,
        outcome=outcome,
        micro=() if named else tuple(_micro(each) for each in value),
        keys=tuple(value) if named else (),
        rebalanced=frozenset(raw.get("rebalanced", ())),
        invoked_ns=raw.get("invoked_ns", index),
        completed_ns=raw.get("completed_ns", index),
        error=raw.get("error", ""),
    )


def _micro(raw: list[Any]) -> Micro:
    if raw[0] == "send":
        _, key, offset, value = raw
        return Send(key, value, offset)
    if raw[0] == "poll":
        records = {key: tuple((offset, value) for offset, value in pairs) for key, pairs in raw[1].items()}
        return Poll(records)
    raise ValueError(f"micro-operation {raw[0]!r} is neither send nor poll")
