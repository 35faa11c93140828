"""What `make explore` looks at, and which rules it breaks to be seen to find something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from coordination.commands import Command, CommitChunk, Fence
from coordination.state import (
    ChunkCommitted,
    Partition,
    Result,
    State,
    companions,
    fence,
    group_offsets,
    groups,
    transactions,
)
from coordination.state.data import StateData
from coordination.state.state import HANDLERS
from coordination.state.transaction_types import Transaction
from coordination.state.types import At, Refused
from objectstore.naming import MarkerId
from tests.explore.agents import Scope
from tests.explore.groups import Groups
from tests.explore.produce import Produce
from tests.explore.search import Model, Outcome, explore
from tests.explore.speakers import Speaks, reader, speaker
from tests.explore.transaction_worlds import Chances
from tests.explore.transactions import Transactions
from tests.explore.world import Budget

ORDER = ((0, 0), (1,))  # the first producer's order in one partition, the second's batch in the other
RACE = ((0,), (0,))  # both into the same partition
BOTH = ((0, 0), (0, 1))
ONE = ((0, 0),)
C, A = True, False


@dataclass(frozen=True)
class Named:
    """A scope: `make` gives its model. `quick`: a few seconds, part of `make test`."""

    name: str
    make: Callable[[], Model]
    quick: bool = False


def _produce(
    budget: Budget, targets: tuple[tuple[int, ...], ...], *, alone: bool = False, companions: bool = False
) -> Callable[[], Model]:
    return lambda: Produce(Scope(budget, targets=targets, alone=alone, companions=companions))


def _transactions(chances: Chances, *speaks: tuple[bool, tuple[bool, ...]]) -> Callable[[], Model]:
    who = tuple(speaker(v2, ends=ends, positions=True) for v2, ends in speaks)
    return lambda: Transactions(who, chances)


def _small() -> Model:
    one = (("add", 0), ("send", 0), ("end", 1))
    return Transactions((Speaks(False, (one, one)),), Chances(3))


def _positions(
    chances: Chances,
    *transactions: tuple[tuple[int, ...], bool],
    apart: int = 0,
    tolerant: bool = False,
    asks: bool = True,
) -> Callable[[], Model]:
    who = reader(*transactions, apart=apart, asks=asks)
    return lambda: Transactions((who,), chances, tolerant=tolerant)


def _unasked(
    chances: Chances, broken: str = "", *, ends: tuple[bool, ...] = (C, C), tolerant: bool = False
) -> Callable[[], Model]:
    """A client of v1 that asks for ApiVersions on none of its connections."""
    who = replace(speaker(V1, ends=ends), asks=False)
    return lambda: Transactions((who,), chances, broken, tolerant=tolerant)


V1, V2 = False, True
FIRST, SECOND, PAIR = 1, 2, 3  # what a TxnOffsetCommit names: one partition, the other, both
_ONE = Budget(messages=1, requests=1, appends=1)
_TWO = Budget(messages=2, requests=2, appends=2)
_THREE = Budget(messages=3, requests=3, appends=3)
_ALL = Chances(1, 1, 1)
SCOPES = (
    Named("produce, nothing goes wrong", _produce(Budget(), BOTH), quick=True),
    Named("produce, 1 message", _produce(_ONE, BOTH)),
    Named("produce, 2 messages", _produce(_TWO, RACE)),
    Named("produce, 3 messages, singly", _produce(_THREE, RACE, alone=True)),
    Named("produce, 3 messages, one producer", _produce(_THREE, ONE)),
    Named("produce, a lease ends", _produce(Budget(leases=1), BOTH)),
    Named("produce, a lease ends, 1 message", _produce(_ONE._replace(leases=1), RACE)),
    Named("produce, a lease ends, 2 messages, singly", _produce(_TWO._replace(leases=1), RACE, alone=True)),
    Named("produce, a lease ends, 2 messages, one producer", _produce(_TWO._replace(leases=1), ONE)),
    Named("produce, 2 leases end", _produce(Budget(leases=2), RACE)),
    Named("produce, 2 leases end, 3 batches", _produce(Budget(leases=2), ORDER)),
    Named("produce, 2 leases end, 1 append", _produce(Budget(messages=1, appends=1, leases=2), ((0,),))),
    Named("produce, 1 append, trimmed twice", _produce(Budget(messages=1, appends=1, trims=2), ORDER)),
    Named("produce, an agent is killed", _produce(Budget(crashes=1), RACE)),
    Named("produce, an agent is killed, 1 message", _produce(_ONE._replace(crashes=1), ONE)),
    Named("produce, an agent is killed, 2 messages", _produce(_TWO._replace(crashes=1), ONE)),
    Named("produce, companions, 1 message", _produce(_ONE, RACE, companions=True), quick=True),
    Named("produce, companions, a lease ends", _produce(Budget(leases=1), RACE, companions=True)),
    Named(
        "produce, companions, an agent is killed", _produce(_ONE._replace(crashes=1), ONE, companions=True)
    ),
    Named("produce, a PUT fails", _produce(Budget(puts_failed=1), ORDER), quick=True),
    Named("v2, 3 messages, a timeout, an abort", _transactions(Chances(3, 1, 1), (V2, (C, C)))),
    Named("v2, 3 messages", _transactions(Chances(3), (V2, (C, A)))),
    Named("v2, 1 message, a timeout, an abort", _transactions(_ALL, (V2, (C, C))), quick=True),
    Named("v1, 3 messages", _transactions(Chances(3), (V1, (C, C)))),
    Named("v1, 3 messages, one record each", _small),
    Named("v1, 2 messages, a timeout, an abort", _transactions(Chances(2, 1, 1), (V1, (C, C)))),
    Named("v1, 1 message, a timeout, an abort", _transactions(_ALL, (V1, (C, C))), quick=True),
    Named("v1, 2 messages, the second aborted", _transactions(Chances(2), (V1, (C, A)))),
    Named("v1, positions apart, 3 messages", _positions(Chances(3), ((PAIR,), C), ((PAIR,), C))),
    Named(
        "v1, positions apart, others, 2 messages",
        _positions(Chances(2), ((PAIR,), C), ((FIRST,), C)),
        quick=True,
    ),
    Named("v1, positions apart, others, 3 messages", _positions(Chances(3), ((PAIR,), C), ((FIRST,), C))),
    Named(
        "v1, positions apart, another agent, an abort, a reconnect",
        _positions(Chances(2, 0, 1, 1), ((PAIR,), C), ((FIRST,), C), apart=1),
    ),
    Named(
        "v1, positions apart, an abort, agents behind",
        _positions(Chances(2, 0, 1, 0, 2), ((PAIR,), C), ((FIRST,), C)),
    ),
    Named(
        "v1, positions apart, twice in a transaction",
        _positions(Chances(3), ((FIRST,), C), ((FIRST, FIRST), C)),
    ),
    Named(
        "v1, positions apart, twice in a transaction, others, agents behind",
        _positions(Chances(2, 0, 0, 0, 1), ((PAIR,), C), ((FIRST, SECOND), C)),
    ),
    Named("v1, positions apart, an abort between", _positions(Chances(3), ((PAIR,), A), ((FIRST,), C))),
    Named("v1, positions apart, a timeout", _positions(Chances(2, 1, 1), ((PAIR,), C), ((FIRST,), C))),
    Named("v1, positions on the same, others", _positions(Chances(3), ((PAIR,), C), ((FIRST,), C), apart=-1)),
    Named("v1 without ApiVersions, 2 messages", _unasked(Chances(2, stays=1)), quick=True),
    Named("v1 without ApiVersions, 3 messages", _unasked(Chances(3, stays=1))),
    Named("v1 without ApiVersions, a timeout, an abort", _unasked(Chances(2, 1, 1, stays=1))),
    Named(
        "v1 without ApiVersions, positions apart, 2 messages",
        _positions(Chances(2, stays=1), ((PAIR,), C), ((FIRST,), C), asks=False),
        quick=True,
    ),
    Named(
        "v1 without ApiVersions, positions apart, 3 messages",
        _positions(Chances(3, stays=1), ((PAIR,), C), ((FIRST,), C), asks=False),
    ),
    Named(
        "v1 without ApiVersions, positions apart, another agent, an abort, a reconnect",
        _positions(Chances(2, 0, 1, 1, stays=1), ((PAIR,), C), ((FIRST,), C), apart=1, asks=False),
    ),
    Named(
        "v1 without ApiVersions, positions apart, twice in a transaction",
        _positions(Chances(2, stays=1), ((FIRST,), C), ((FIRST, FIRST), C), asks=False),
    ),
    Named(
        "v1 without ApiVersions, positions on the same, others",
        _positions(Chances(2, stays=1), ((PAIR,), C), ((FIRST,), C), apart=-1, asks=False),
    ),
    Named("v1 and v2 together, 2 messages", _transactions(Chances(2), (V1, (C,)), (V2, (A,)))),
    Named("v1 and v2, 1 message, 2 timeouts", _transactions(Chances(1, 2), (V1, (C,)), (V2, (A,)))),
    Named("v1 and v1, 1 message, a timeout", _transactions(Chances(1, 1), (V1, (C,)), (V1, (A,)))),
    Named("groups, 2 proposals, 1 message", lambda: Groups(2, 1)),
    Named("groups, 3 proposals", lambda: Groups(3, 0, 1)),
)


def explored(number: int) -> Outcome:
    """One of the scopes, whole: for a process of its own, which gives back what that takes."""
    return explore(SCOPES[number].make(), tell=_progress)


def _progress(seen: Outcome) -> None:
    said = f"  {seen.states:,} states, depth {seen.depth}, {seen.seconds:.0f} s"
    print(said, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Control:
    """A rule that is broken. `anomaly`: with what the finding must begin."""

    name: str
    anomaly: str
    make: Callable[[], Model]
    broken: Callable[[], AbstractContextManager[None]] = nullcontext


def _wrong(name: str, anomaly: str, budget: Budget, state: type[State] = State) -> Control:
    """A switch of the model itself."""
    return Control(name, anomaly, lambda: Produce(Scope(budget, targets=RACE, broken=name, state=state)))


class Unfenced(State):
    """A state in which the entries of whoever was fenced go on counting."""

    def dispatch(self, commands: Sequence[Command], kinds: Sequence[str], at: At) -> list[Result]:
        """Every command, whoever says it."""
        pairs = zip(commands, kinds, strict=True)
        return [HANDLERS[kind](self, getattr(command, kind), at) for command, kind in pairs]


@contextmanager
def _replaced(name: str, value: object, where: object = fence) -> Iterator[None]:
    """The fence, or another place, with another rule."""
    rule = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, rule)


def _no_fence() -> AbstractContextManager[None]:
    return _replaced("refusal", lambda transaction, source, at: None)


def _positions_from_anywhere() -> AbstractContextManager[None]:
    return _replaced("positions_refusal", lambda transaction, group, source, at: None)


def _proven_always_counts() -> AbstractContextManager[None]:
    """As the rule was first told: whatever was sent after the last end is taken, also behind a later try."""
    taken = fence.positions_refusal

    def refusal(transaction: Transaction, group: str, source: Fence, at: At) -> Refused | None:
        refused = taken(transaction, group, source, at)
        return refused and fence.refusal(transaction, source, at)

    return _replaced("positions_refusal", refusal)


def _uncovered_counts() -> AbstractContextManager[None]:
    """Positions that nothing replaced are committed, whoever sent them."""
    note = fence.note_positions

    def all_named(
        transaction: Transaction, group: str, source: Fence, waiting: object, named: object, at: At
    ) -> Refused | None:
        del waiting
        return note(transaction, group, source, (), (), at)

    return _replaced("note_positions", all_named)


def _ends_alone() -> AbstractContextManager[None]:
    """As the fence was first designed: an EndTxn that only hears of an end is not noted."""
    note = fence.note_end

    def only_the_end(transaction: Transaction, source: Fence | None, at: At) -> None:
        if at.touched:  # markers were written
            note(transaction, source, at)

    return _replaced("note_end", only_the_end)


def _stable_too_high() -> AbstractContextManager[None]:
    too_high = property(lambda partition: partition.high_watermark)
    return _replaced("last_stable", too_high, Partition)


@contextmanager
def _no_bump() -> Iterator[None]:
    """Ends of v2 as ends of v1 were before there was a fence."""
    end = transactions._end_v2
    transactions._end_v2 = lambda state, known, commit, at: transactions._end_v1(
        state, known, commit, None, at
    )
    try:
        yield
    finally:
        transactions._end_v2 = end


@contextmanager
def _one_partition_ends() -> Iterator[None]:
    """An end that writes its marker to the first partition only."""
    write = transactions._write_marker

    def first_only(state: StateData, partition: Partition, marker: MarkerId, at: At) -> int | None:
        return write(state, partition, marker, at) if partition.handle == 0 else None

    transactions._write_marker = first_only
    try:
        yield
    finally:
        transactions._write_marker = write


_LOST = "lost-write"


def _late_timeout() -> Model:
    return Transactions((speaker(True, ends=(C, C)),), Chances(0, 1), "timeout without number")


def _tolerant(chances: Chances, *, v2: bool) -> Callable[[], Model]:
    return lambda: Transactions((speaker(v2, ends=(C, C)),), chances, tolerant=True)


@contextmanager
def _any_coordinator() -> Iterator[None]:
    refusal = groups.changed_refusal
    groups.changed_refusal = lambda state, group_id, expected: None
    try:
        yield
    finally:
        groups.changed_refusal = refusal


@contextmanager
def _any_commit() -> Iterator[None]:
    overtaken = group_offsets._overtaken
    group_offsets._overtaken = lambda group, message, at: False
    try:
        yield
    finally:
        group_offsets._overtaken = overtaken


def _duplicates_have_companions() -> AbstractContextManager[None]:
    """A companion is appended with whatever is answered without an error."""
    append = companions.append

    def always(
        state: StateData, message: CommitChunk, transaction: Sequence[int], at: At, answer: ChunkCommitted
    ) -> int:
        answer.duplicates.clear()
        return append(state, message, transaction, at, answer)

    return _replaced("append", always, companions)


_COMPANIONS = _produce(_ONE, RACE, companions=True)
_APPEND = Budget(messages=1, appends=1)
_STOLEN = "ended by another's EndTxn"
_STALE = "stale-position"
_LATE = _positions(Chances(2), ((PAIR,), C), ((FIRST,), C), tolerant=True)
_ABORTED = _positions(Chances(2), ((PAIR,), A), ((FIRST,), C), tolerant=True)
_TWICE = _positions(Chances(3), ((FIRST,), C), ((FIRST, FIRST), C), tolerant=True)
_V1, _V2 = _tolerant(Chances(2), v2=False), _tolerant(Chances(2), v2=True)
CONTROLS = (
    _wrong("no dedup", "duplicate", _ONE),
    _wrong("ack before PUT", _LOST, Budget()),
    _wrong("ack before apply", _LOST, Budget()),
    _wrong("no fence", _LOST, Budget(leases=1), state=Unfenced),
    _wrong("no compare", "stopped", _ONE),
    _wrong("retry looks for the entry", "stopped", _APPEND._replace(trims=1)),
    _wrong("collect of the living", _LOST, Budget()),
    _wrong("collect by lease, no barrier", _LOST, Budget(leases=1)),
    _wrong("trimmed too early", "stopped", Budget(trims=1)),
    _wrong("older entries stay parked", "stuck", _APPEND._replace(leases=2)),
    Control("companion of a duplicate", "duplicate", _COMPANIONS, _duplicates_have_companions),
    Control("v1 without the connection fence", _STOLEN, _V1, _no_fence),
    Control("v1, only the end itself noted", _STOLEN, _V1, _ends_alone),
    Control("v1, positions from any connection", _STALE, _LATE, _positions_from_anywhere),
    Control("v1, positions of a later try replaced", _STALE, _TWICE, _proven_always_counts),
    Control("v1, positions that nothing replaced", "aborted-read", _ABORTED, _uncovered_counts),
    Control(
        "v1, a stamp for what was read before it",
        _STOLEN,
        _unasked(Chances(3, stays=1), "stamped though read", tolerant=True),
    ),
    Control(
        "v1, a stamp for a connection by which requests counted",
        _STOLEN,
        _unasked(Chances(2, stays=1), "stamped though counted", tolerant=True),
    ),
    Control("v2 without a new epoch", _LOST, _V2, _no_bump),
    Control("LSO too high", "LSO", _V2, _stable_too_high),
    Control("group changed by whoever", "two coordinators", lambda: Groups(4, 0), _any_coordinator),
    Control("held commit overwrites", "nonmonotonic position", lambda: Groups(2, 1), _any_commit),
    Control("an end in one partition only", "torn-transaction", _V2, _one_partition_ends),
    Control(
        "timeout without the transaction's number",
        "stopped: the timeout of transaction 1 ended",
        _late_timeout,
    ),
)
