"""Random commands against a model: a list of records per partition, nothing clever.

After every step the state must show what the model shows; any other agent, replaying or starting from a
snapshot at any point, must have the same hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordination.commands import DeleteTopic, ExpireProducers, FenceIncarnation, MoveLogStart
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, State
from tests.unit.coordination.kit import Script, chunk, tiles

NAMES = ["a", "b", "c.d", "c_d"]
MAX = 1 << 31
SEQUENCES = st.one_of(st.integers(0, 5), st.integers(MAX - 6, MAX - 1))


@dataclass
class ModelProducer:
    """What one producer wrote to one partition in its epoch: (first sequence, records, base offset)."""

    epoch: int
    written: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class ModelPartition:
    """Records as a list: element n is the record at offset n."""

    records: list[object] = field(default_factory=list)
    start: int = 0
    producers: dict[int, ModelProducer] = field(default_factory=dict)

    def append(self, count: int, producer: int, epoch: int, sequence: int) -> tuple[int, int]:
        """The answer that Kafka would give, and its effect."""
        if producer < 0:
            return 0, self._write(count)
        known = self.producers.get(producer)
        if known is None:
            known = self.producers[producer] = ModelProducer(epoch)
        elif epoch == known.epoch:
            for first, size, base in known.written[-5:]:
                if (first, size) == (sequence, count):
                    return 0, base
            first, size, _ = known.written[-1]
            if sequence != (first + size) % MAX:
                return self._out_of_sequence(known, sequence, count), -1
        elif epoch < known.epoch:
            return int(Code.INVALID_PRODUCER_EPOCH), -1
        elif sequence != 0:
            return int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        else:
            known = self.producers[producer] = ModelProducer(epoch)
        base = self._write(count)
        known.written.append((sequence, count, base))
        return 0, base

    def _out_of_sequence(self, known: ModelProducer, sequence: int, count: int) -> int:
        """An epoch's batches are one run from its first sequence on: is this a part of it, and an old one?"""
        floor = known.written[0][0]
        place = (sequence - floor) % MAX
        inside = place + count <= sum(size for _, size, _ in known.written)
        old = inside and place < (known.written[-5:][0][0] - floor) % MAX
        return int(Code.DUPLICATE_SEQUENCE_NUMBER if old else Code.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def _write(self, count: int) -> int:
        self.records += [object()] * count
        return len(self.records) - count


class Machine(RuleBasedStateMachine):
    """Two to four agents, four topic names, three producers."""

    @initialize()
    def begin(self) -> None:
        self.script = Script()
        self.model: dict[int, ModelPartition] = {}
        self.topics: dict[str, list[int]] = {}
        self.live: list[int] = []
        self.next_agent = 100
        self.add_agent()
        self.create("a", 2)

    @rule()
    def add_agent(self) -> None:
        self.next_agent += 1
        assert isinstance(self.script.register(self.next_agent), Done)
        self.live.append(self.next_agent)

    @precondition(lambda self: len(self.live) > 1)
    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.live))
        self.live.remove(victim)
        self.script.one(self.live[0], FenceIncarnation(incarnation=victim))
        if self.model:
            late = self.script.one(victim, chunk(10_000, (next(iter(self.model)), 3)))
            assert isinstance(late, Refused)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 3))
    def create(self, name: str, partitions: int) -> None:
        taken = {known.replace(".", "_") for known in self.topics}
        if name.replace(".", "_") in taken:
            return
        self.topics[name] = self.script.topic(self.live[-1], name, partitions)
        self.model |= {handle: ModelPartition() for handle in self.topics[name]}

    @precondition(lambda self: self.topics)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.topics)))
        self.script.one(self.live[0], DeleteTopic(name=name))
        for handle in self.topics.pop(name):
            del self.model[handle]

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        handles = st.integers(0, len(self.script.state.partitions) - 1)
        batch = st.tuples(handles, st.integers(1, 3), st.integers(-1, 1), st.integers(0, 1), SEQUENCES)
        drawn = sorted(data.draw(st.lists(batch, min_size=1, max_size=6)))
        expected, batches = [], []
        for raw in drawn:
            one = self._aimed(raw, data)
            handle, count, producer, epoch, sequence = one
            batches.append(one)
            if handle in self.model:
                expected.append(self.model[handle].append(count, producer, epoch, sequence))
            else:
                expected.append((int(Code.UNKNOWN_TOPIC_OR_PARTITION), -1))
        result = self.script.commit(data.draw(st.sampled_from(self.live)), *batches)
        assert list(zip(result.errors, result.base_offsets, strict=True)) == expected

    def _aimed(self, batch: tuple[int, ...], data: st.DataObject) -> tuple[int, ...]:
        """The batch as drawn, or as its producer's next one, or as a repetition of an earlier one."""
        handle, count, producer, _, _ = batch
        known = self.model[handle].producers.get(producer) if handle in self.model else None
        aim = data.draw(st.sampled_from(["next", "next", "repeat", "as drawn"]))
        if known is None or aim == "as drawn":
            return batch
        if aim == "repeat":
            first, size, _ = data.draw(st.sampled_from(known.written))
            return handle, size, producer, known.epoch, first
        first, size, _ = known.written[-1]
        return handle, count, producer, known.epoch, (first + size) % MAX

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def move_start(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[handle]
        offset = data.draw(st.integers(partition.start, len(partition.records)))
        result = self.script.one(self.live[0], MoveLogStart(partition=[handle], offset=[offset]))
        assert result == Done((offset,))
        partition.start = offset

    @rule()
    def expire(self) -> None:
        self.script.now_ms += 1000
        self.script.one(self.live[0], ExpireProducers(idle_since_ms=self.script.now_ms))
        for partition in self.model.values():
            partition.producers.clear()

    @rule()
    def snapshot(self) -> None:
        self.script.through_snapshot()

    @invariant()
    def the_state_shows_the_model(self) -> None:
        tiles(self.script.state)
        state = self.script.state
        assert {p.handle for p in state.partitions if p is not None} == set(self.model)
        for handle, partition in self.model.items():
            shown = state.partitions[handle]
            assert (shown.log_start, shown.high_watermark) == (partition.start, len(partition.records))
            for offset in (partition.start, len(partition.records) - 1):
                if partition.start <= offset < len(partition.records):
                    first = shown.slices.plan(offset, 0)[0]
                    assert first.base_offset <= offset < first.end_offset

    def teardown(self) -> None:
        if not hasattr(self, "script"):
            return
        state, other = self.script.state, self.script.replayed()
        assert (other.hash, canonical_digest(other)) == (state.hash, canonical_digest(state))


Machine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMachine = pytest.mark.timeout(300)(Machine.TestCase)


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 60))
def test_a_snapshot_at_any_point_makes_no_difference(cut: int) -> None:
    script = Script()
    script.register(101)
    script.topic(101, "t", 3)
    for number in range(20):
        script.commit(101, (number % 3, 2, 5, 0, 2 * (number // 3)), (2, 1))
        script.one(101, MoveLogStart(partition=[2], offset=[number]))
    state = State()
    for entry in script.entries[:cut]:
        state.apply(entry)
    state = decode(encode(state))
    for entry in script.entries[cut:]:
        state.apply(entry)
    assert state.hash == script.state.hash
    assert canonical_digest(state) == canonical_digest(script.state)
