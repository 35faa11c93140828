"""What apply does on every agent, watched from inside: the white-box part of the judgement, and the coverage.

All agents apply the same entries, some of them several times, after a restart. So whatever is seen at a
revision must be the same each time, watermarks and last stable offsets never go back, a transaction ends
once. Positions have a file of their own (positions.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from coordination.commands import Entry
from coordination.log import LogEntry
from coordination.replica.doubt import Doubt
from coordination.restore.source import REVISIONS_PASSED
from coordination.state import transactions
from coordination.state.data import StateData
from coordination.state.state import State
from coordination.state.transaction_types import Transaction
from coordination.state.types import Applied, At, Refused
from tests.checker.findings import Finding
from tests.sim.astray import Astray
from tests.sim.bindings import Bindings
from tests.sim.columns import Truth
from tests.sim.due import Due
from tests.sim.mortal import Arrivals
from tests.sim.named import Named
from tests.sim.node import AgentNode
from tests.sim.positions import Positions
from tests.sim.subjects import Subjects


class Witness:
    """Collects findings and counts while it `watches`."""

    def __init__(self, *, registry: bool = False) -> None:
        self.findings: list[Finding] = []
        self.commands: Counter[str] = Counter()
        """Commands by `kind` and `kind CODE`, once per revision."""
        self._digests: dict[int, bytes] = {}
        self._ends: dict[tuple[str, int, int], tuple[int, bool]] = {}
        self._marks: dict[int, tuple[int, int, int]] = {}  # handle → revision, high watermark, last stable
        self.positions = Positions(self._wrong)
        self._astray = Astray()  # states that have applied what only one member has so
        self._refuted = 0  # what an agent had read from before its state, and did not archive
        self.due = Due(self._wrong, self._astray)
        self.named = Named(self._wrong)
        self.bindings = Bindings(self._astray)
        self.subjects = Subjects(self._wrong, self._astray)
        self._registry = registry
        self.mortal = Arrivals()
        self.altered: Mapping[tuple[int, int], bytes] = {}
        """By member of the log and revision: an entry that only that one has so (faults/copies.py)."""
        self.sent: dict[str, dict[tuple[str, int], int]] = {}
        """As Surroundings.sent."""

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Everything that is applied meanwhile."""
        apply, finish, sustained = State.apply, transactions.finish, Doubt.sustained

        def applied(state: State, entry: LogEntry) -> Applied:
            if self.altered and entry.payload in self.altered.values():
                self._astray.add(state)
            done = apply(state, entry)
            if state not in self._astray:
                self._applied(state, entry, done)
            return done

        def finished(state: StateData, known: Transaction, commit: bool, marker_epoch: int, at: At) -> None:
            if state not in self._astray and at.revision < REVISIONS_PASSED:  # a restore's are in no log
                if commit and (known.transactional_id, known.producer_id, known.number) not in self._ends:
                    self._foreign(state, known.transactional_id, at.revision)
                self.ended(known, commit, at.revision)
            finish(state, known, commit, marker_epoch, at)

        async def asked(doubt: Doubt, *what: Any) -> bool | None:
            found = await sustained(doubt, *what)
            self._refuted += found is False
            return found

        Doubt.sustained = asked  # type: ignore[method-assign, assignment]  # likewise
        State.apply = applied  # type: ignore[method-assign, assignment]  # in this process only, for one run
        transactions.finish = finished
        try:
            with ExitStack() as stack:
                for each in (self.positions, self.due, self.named, self.bindings, self.mortal):
                    stack.enter_context(each.watches())
                if self._registry:
                    stack.enter_context(self.subjects.watches())
                yield
        finally:
            State.apply = apply  # type: ignore[method-assign]  # as it was
            transactions.finish = finish
            Doubt.sustained = sustained  # type: ignore[method-assign]  # as it was

    @property
    def truths(self) -> tuple[Truth, ...]:
        """Of the topics whose columns are looked at."""
        return self.bindings, self.subjects

    def counted(self, counts: Counter[str]) -> None:
        """Add what was seen, for the coverage."""
        counts["records whose span was looked at"] += len(self.bindings.taken)
        counts["states astray"] += len(self._astray)
        counts["pieces refuted"] += self._refuted
        counts.update(self.bindings.counts)
        counts.update(self.subjects.counts)
        counts["positions asked for behind the log"] += self.positions.behind
        counts.update({f"command {kind}": number for kind, number in self.commands.items()})

    def judged(self, agent: AgentNode) -> Iterator[Finding]:
        """What an agent, healed and up to date, says otherwise."""
        yield from self.bindings.judged(agent)
        if self._registry:
            yield from self.subjects.judged(agent)

    def restored(self, revision: int) -> None:
        """The log is back at this revision: what came behind it may come otherwise now."""
        self._digests = {at: digest for at, digest in self._digests.items() if at <= revision}
        self._ends = {number: end for number, end in self._ends.items() if end[0] <= revision}
        self._marks.clear()
        self.positions.forget()

    def digest(self, revision: int) -> bytes | None:
        """What agents' states were at a revision; None where nobody has applied it."""
        return self._digests.get(revision)

    def _applied(self, state: State, entry: LogEntry, done: Applied) -> None:
        if done.revision >= REVISIONS_PASSED:
            return
        first = done.revision not in self._digests
        if self._digests.setdefault(done.revision, state.digest) != state.digest:
            self._wrong("state-differs", f"at revision {done.revision}")
        if first:
            self._count(state, entry, done)
        for handle in done.touched:
            self._mark(state, handle)

    def _count(self, state: State, entry: LogEntry, done: Applied) -> None:
        commands = Entry.FromString(entry.payload).commands
        kinds = state.kinds_of(commands)
        for kind, result in zip(kinds, done.results, strict=True):
            self.commands[f"{kind} {result.code.name}" if isinstance(result, Refused) else kind] += 1
        self.positions.applied(state, kinds, commands)
        self.due.applied(state, kinds, commands, done.results)
        self.mortal.applied(state, kinds, commands, done.results)

    def ended(self, known: Transaction, commit: bool, revision: int) -> None:
        """A transaction has ended at a revision, on one of the agents."""
        number = (known.transactional_id, known.producer_id, known.number)
        before = self._ends.setdefault(number, (revision, commit))
        if before != (revision, commit):
            self._wrong("ended-twice", f"transaction {number}: {before}, then {(revision, commit)}")

    def _foreign(self, state: StateData, name: str, revision: int) -> None:
        """A transaction commits the positions that its client sent in it, and no others."""
        waiting = state.pending_offsets.get(name, {}).get(name, {})
        known = (
            (each.topic.name, each.index, handle) for handle in waiting if (each := state.partitions[handle])
        )
        found = {(topic, index): waiting[handle].offset for topic, index, handle in known}
        if name in self.sent and found != self.sent[name]:
            self._wrong("position-foreign", f"{name} at {revision}: {found}, sent were {self.sent[name]}")

    def _mark(self, state: State, handle: int) -> None:
        partition = state.partitions[handle]
        if partition is None:
            return
        now = (state.revision, partition.high_watermark, partition.last_stable)
        before = self._marks.get(handle, (0, 0, 0))
        if now[0] < before[0]:
            return
        if now[1] < before[1] or now[2] < before[2] or now[2] > now[1]:
            self._wrong("watermark-back", f"partition {handle}: (revision, end, stable) {before}, then {now}")
        self._marks[handle] = now

    def _wrong(self, anomaly: str, detail: str) -> None:
        self.findings.append(Finding(anomaly, "", detail, ()))
