"""Random transactions against a model: what a reader of committed data may see, and how far.

Partitions are lists of the writer's transaction, or None. A transaction is open, committed or aborted; the
model knows nothing of epochs, of markers' bytes, of rows or of snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordination.commands import AbortTransaction, MoveLogStart
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused
from coordination.state.group_offsets import position_of
from coordination.state.types import Partition
from objectstore.transactions import Aborted
from tests.unit.coordination.kit import Producer, Script, swap, tiles

AGENTS, NAMES, PARTITIONS = (11, 12), ("x", "y", "z"), 3
TIMEOUT_MS = 1000


@dataclass
class ModelTransaction:
    """One transaction. `outcome`: None while it is open."""

    writer: str
    outcome: bool | None = None
    partitions: set[int] = field(default_factory=set)
    position: int | None = None
    begun_ms: int = 0


@dataclass
class ModelPartition:
    """Element n is what is at offset n: None for a plain record, a transaction, or "marker"."""

    log: list[ModelTransaction | str | None] = field(default_factory=list)
    start: int = 0
    merged_end: int = 0

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, or the end."""
        for offset, each in enumerate(self.log):
            if isinstance(each, ModelTransaction) and each.outcome is None:
                return max(offset, self.start)
        return len(self.log)

    def aborted(self) -> list[int]:
        """Offsets in the tail whose records were aborted."""
        return [
            offset
            for offset, each in enumerate(self.log)
            if isinstance(each, ModelTransaction)
            and each.outcome is False
            and offset >= max(self.start, self.merged_end)
        ]


class Machine(RuleBasedStateMachine):
    """Two agents, three producers, three partitions, one group."""

    @initialize()
    def begin(self) -> None:
        self.script = Script()
        for agent in AGENTS:
            self.script.register(agent)
        self.handles = self.script.topic(AGENTS[0], "t", PARTITIONS)
        self.model = [ModelPartition() for _ in self.handles]
        self.producers = {name: Producer(self.script, AGENTS[0], name) for name in NAMES}
        self.open: dict[str, ModelTransaction] = {}
        self.position: int | None = None
        self.stable = [0] * PARTITIONS
        self.old: dict[str, tuple[int, int]] = {}
        for name in NAMES:
            self.producers[name].init(TIMEOUT_MS)

    def _partition(self, index: int) -> Partition:
        found = self.script.state.partitions[self.handles[index]]
        assert found is not None
        return found

    def _end(self, name: str, commit: bool) -> None:
        ended = self.open.pop(name, None)
        if ended is None:
            return
        ended.outcome = commit
        for index in sorted(ended.partitions):
            self.model[index].log.append("marker")
        if commit and ended.position is not None:
            self.position = ended.position

    @rule(name=st.sampled_from(NAMES), index=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def send(self, name: str, index: int, count: int) -> None:
        code, base = self.producers[name].send(self.handles[index], count)
        assert (code, base) == (0, len(self.model[index].log))
        known = self.open.setdefault(name, ModelTransaction(name, begun_ms=self.script.now_ms))
        known.partitions.add(index)
        self.model[index].log += [known] * count

    @rule(index=st.integers(0, PARTITIONS - 1), count=st.integers(1, 2))
    def plain(self, index: int, count: int) -> None:
        self.script.commit(AGENTS[1], (self.handles[index], count))
        self.model[index].log += [None] * count

    @rule(name=st.sampled_from(NAMES), offset=st.integers(0, 50))
    def offsets(self, name: str, offset: int) -> None:
        if any(other != name and each.position is not None for other, each in self.open.items()):
            return  # of two at once the later commit counts, which is told in a test of its own
        assert self.producers[name].commit_offsets("g", (self.handles[0], offset)) == Done()
        self.open.setdefault(name, ModelTransaction(name, begun_ms=self.script.now_ms)).position = offset

    @rule(name=st.sampled_from(NAMES), commit=st.booleans(), agent=st.sampled_from(AGENTS))
    def end(self, name: str, commit: bool, agent: int) -> None:
        producer = self.producers[name]
        producer.author = agent
        before, ongoing = producer.pair, name in self.open
        result = producer.end(commit=commit)
        if not ongoing and commit:
            assert isinstance(result, Refused)
            assert result.code is Code.INVALID_TXN_STATE
            return
        assert isinstance(result, Done)
        assert result.value == (before[0], before[1] + 1)
        self.old[name] = before
        self._end(name, commit)

    @precondition(lambda self: self.old)
    @rule(data=st.data(), commit=st.booleans())
    def late_end(self, data: st.DataObject, commit: bool) -> None:
        """A repeated EndTxn of the transaction before changes nothing, whatever it is answered with."""
        name = data.draw(st.sampled_from(sorted(self.old)))
        self.producers[name].end(commit=commit, pair=self.old[name])

    @rule(name=st.sampled_from(NAMES))
    def init(self, name: str) -> None:
        """Another instance takes the id over."""
        self.producers[name].init(TIMEOUT_MS)
        self.old.pop(name, None)
        self._end(name, commit=False)

    @rule(milliseconds=st.integers(0, TIMEOUT_MS))
    def time_goes_on(self, milliseconds: int) -> None:
        self.script.now_ms += milliseconds

    @rule(name=st.sampled_from(NAMES), behind=st.integers(0, 1))
    def timeout(self, name: str, behind: int) -> None:
        known = self.script.state.transactions[name]
        number = max(0, known.number - behind)
        result = self.script.one(AGENTS[1], AbortTransaction(transactional_id=name, number=number))
        mine = self.open.get(name)
        over = mine is not None and self.script.now_ms - mine.begun_ms >= TIMEOUT_MS and not behind
        assert isinstance(result, Done) == over
        if over:
            self.producers[name].init(TIMEOUT_MS, given=self.producers[name].pair)
            self.old.pop(name, None)
            self._end(name, commit=False)

    @rule(index=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def merge(self, index: int, part: float) -> None:
        ends = [ref.end_offset for ref in self._partition(index).slices.plan(0, 1 << 60)]
        if not ends:
            return
        end = ends[int(part * (len(ends) - 1))]
        if end <= self.model[index].start:
            return
        message = swap(self.script.state, self.handles[index], len(self.script.entries), end)
        result = self.script.one(AGENTS[0], message)
        assert isinstance(result, Done) == (end <= self.model[index].stable), result
        if isinstance(result, Done):
            self.model[index].merged_end = end

    @rule(index=st.integers(0, PARTITIONS - 1), part=st.floats(0, 1))
    def delete_records(self, index: int, part: float) -> None:
        model = self.model[index]
        offset = int(part * len(model.log))
        self.script.one(AGENTS[0], MoveLogStart(partition=[self.handles[index]], offset=[offset]))
        model.start = max(model.start, offset)

    @rule()
    def snapshot(self) -> None:
        self.script.through_snapshot()

    @invariant()
    def readers_see_what_the_model_shows(self) -> None:
        for index, model in enumerate(self.model):
            partition = self._partition(index)
            assert partition.high_watermark == len(model.log)
            assert partition.last_stable == model.stable >= self.stable[index], "it never goes back"
            self.stable[index] = model.stable
            lowest = max(model.start, model.merged_end)
            listed = partition.aborted(lowest, len(model.log))
            covered = [
                offset
                for offset, each in enumerate(model.log)
                if offset >= lowest
                and isinstance(each, ModelTransaction)
                and self._listed(offset, each, listed)
            ]
            assert covered == model.aborted(), listed

    def _listed(self, offset: int, transaction: ModelTransaction, listed: list[Aborted]) -> bool:
        """Whether a reader leaves the record out. Producer ids do not change here."""
        producer_id = self.producers[transaction.writer].pair[0]
        return any(
            each.producer_id == producer_id and each.first_offset <= offset < each.marker_offset
            for each in listed
        )

    @invariant()
    def positions_are_those_of_committed_transactions(self) -> None:
        found = position_of(self.script.state, "g", self.handles[0])
        assert (None if found is None else found.offset) == self.position

    @invariant()
    def nothing_is_left_hanging(self) -> None:
        ongoing = {name for name, known in self.script.state.transactions.items() if known.ongoing}
        assert ongoing == set(self.open)
        tiles(self.script.state)

    def teardown(self) -> None:
        state = self.script.state
        replayed = self.script.replayed()
        assert replayed.hash == state.hash
        assert canonical_digest(replayed) == canonical_digest(decode(encode(state)))


TestTransactions = Machine.TestCase
TestTransactions.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
