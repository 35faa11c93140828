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

from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    AssignClassicGeneration,
    BindSchema,
    ClassicMember,
    CommitOffsets,
    DeleteTopic,
    ExpireProducers,
    FenceIncarnation,
    MoveLogStart,
    PurgeRecords,
    PutClassicGeneration,
    UndeleteRecords,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, State, held
from coordination.state.schemas import spans_between
from coordination.state.types import Partition
from tests.unit.coordination.kit import DAY_MS, Script, chunk, for_good, swap, tiles

NAMES = ["a", "b", "c.d", "c_d"]
GROUPS = st.sampled_from(["g", "h"])
MAX = 1 << 31
SEQUENCES = st.one_of(st.integers(0, 5), st.integers(MAX - 6, MAX - 1))


@dataclass
class ModelProducer:
    """What one producer wrote to one partition in its epoch: (first sequence, records, base offset)."""

    epoch: int
    written: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class ModelPartition:
    """Records as a list: element n is the record at offset n, as the schemas of key and value that judged it.

    `binding`: those of now; `held`: the first that is below the start and can come back.
    """

    records: list[tuple[int, int]] = field(default_factory=list)
    binding: tuple[int, int] = (0, 0)
    start: int = 0
    held: int = 0
    merged_end: int = 0
    producers: dict[int, ModelProducer] = field(default_factory=dict)

    def move(self, offset: int, *, grace: bool) -> bool:
        """Delete the records below the offset. Whether what is merged is let go of."""
        if offset > self.start and not grace and self.held == self.start:
            self.held = offset
        self.start = offset
        return self.let_go()

    def let_go(self) -> bool:
        """Whether what is merged is let go of: none of it is held."""
        gone = self.held >= self.merged_end > 0
        self.merged_end = 0 if gone else self.merged_end
        return gone

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
        self.records += [self.binding] * count
        return len(self.records) - count


@dataclass
class ModelGroup:
    """A classic group: who is in which generation, and its positions by handle."""

    revision: int = 0
    generation: int = 0
    members: list[str] = field(default_factory=list)
    assigned: bool = True
    offsets: dict[int, int] = field(default_factory=dict)

    def commit(self, generation: int, member: str) -> Code | None:
        """Why Kafka refuses the commit."""
        if generation < 0 and (not self.members or not member):
            return Code.UNKNOWN_MEMBER_ID if self.members else None
        if member not in self.members:
            return Code.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return None if self.assigned else Code.REBALANCE_IN_PROGRESS


class Machine(RuleBasedStateMachine):
    """Two to four agents, four topic names, three producers."""

    @initialize()
    def begin(self) -> None:
        self.script = Script()
        self.model: dict[int, ModelPartition] = {}
        self.grace = False
        self.topics: dict[str, list[int]] = {}
        self.groups: dict[str, ModelGroup] = {}
        self.live: list[int] = []
        self.next_agent = 100
        self.manifests = 0
        self.add_agent()
        for_good(self.script, self.live[0])
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
        self._delete(name)

    def _delete(self, name: str) -> None:
        self.script.one(self.live[0], DeleteTopic(name=name))
        for handle in self.topics.pop(name):
            del self.model[handle]
            for group in self.groups.values():
                group.offsets.pop(handle, None)

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), key=st.booleans(), message=st.sampled_from(["", "", "m", "n"]))
    def bind(self, data: st.DataObject, key: bool, message: str) -> None:
        """Bind keys or values to one of two messages, or to none."""
        name = data.draw(st.sampled_from(sorted(self.topics)))
        command = BindSchema(
            topic=name,
            role=BindSchema.KEY if key else BindSchema.VALUE,
            descriptor_set=b"d",
            message=message,
            unbind=not message,
        )
        result = self.script.one(self.live[0], command)
        assert isinstance(result, Done)
        assert result.value is None or isinstance(result.value, int)
        for handle in self.topics[name]:
            partition = self.model[handle]
            keys, values = partition.binding
            new = result.value or 0
            partition.binding = (new, values) if key else (keys, new)

    @rule(name=GROUPS, members=st.lists(st.sampled_from("xyz"), unique=True), stale=st.booleans())
    def put_generation(self, name: str, members: list[str], stale: bool) -> None:
        known = self.groups.get(name, ModelGroup())
        message = PutClassicGeneration(
            group=name,
            expected_revision=known.revision + stale,
            protocol_type="consumer",
            leader=members[0] if members else "",
            members=[ClassicMember(member_id=member) for member in members],
        )
        result = self.script.one(self.live[-1], message)
        if stale:
            assert isinstance(result, Refused)
            return
        revision = self.script.state.revision
        assert result == Done((known.generation + 1, revision))
        self.groups[name] = ModelGroup(revision, known.generation + 1, members, not members, known.offsets)

    @rule(name=GROUPS)
    def assign(self, name: str) -> None:
        known = self.groups.get(name, ModelGroup())
        message = AssignClassicGeneration(group=name, expected_revision=known.revision)
        result = self.script.one(self.live[0], message)
        if known.generation:
            known.revision = self.script.state.revision
            known.assigned = True
            assert result == Done((known.generation, known.revision))
        else:
            assert isinstance(result, Refused)

    @rule(
        name=GROUPS,
        generation=st.integers(-1, 3),
        member=st.sampled_from(["", "x", "y"]),
        offset=st.integers(0, 9),
        data=st.data(),
    )
    def commit_offsets(
        self, name: str, generation: int, member: str, offset: int, data: st.DataObject
    ) -> None:
        handle = data.draw(st.integers(0, len(self.script.state.partitions)))
        known = self.groups.get(name)
        message = CommitOffsets(
            group=name, generation=generation, member_id=member, partition=[handle], offset=[offset]
        )
        result = self.script.one(self.live[-1], message)
        if known is None:
            code = None if generation < 0 else Code.ILLEGAL_GENERATION
        else:
            code = known.commit(generation, member)
        if code is not None:
            assert isinstance(result, Refused)
            assert result.code is code
        elif handle in self.model:
            assert result == Done()
            self.groups.setdefault(name, ModelGroup()).offsets[handle] = offset
        else:
            assert result == Done((int(Code.UNKNOWN_TOPIC_OR_PARTITION),))

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
        partition.move(offset, grace=self.grace)

    @rule(on=st.booleans())
    def set_grace(self, on: bool) -> None:
        change = AlterTopicConfigs.Change(name=held.GRACE, value=str(DAY_MS if on else 0))
        assert self.script.one(self.live[0], AlterClusterConfigs(changes=[change])) == Done()
        self.grace = on

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[handle]
        offset = data.draw(st.integers(0, len(partition.records)))
        result = self.script.one(self.live[0], UndeleteRecords(partition=[handle], offset=[offset]))
        if partition.held <= offset <= partition.start:
            assert result == Done((offset,))
            partition.start = offset
        else:
            assert isinstance(result, Refused)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        handle = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[handle]
        offset = data.draw(st.integers(0, len(partition.records)))
        to = max(min(offset, partition.start), partition.held)
        result = self.script.one(self.live[0], PurgeRecords(partition=[handle], offset=[offset]))
        assert result == Done(to - partition.held)
        partition.held = to
        partition.let_go()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        """Rows up to one of them, and now and then a swap that was prepared before something changed."""
        handle = data.draw(st.sampled_from(sorted(self.model)))
        partition = self.model[handle]
        slices = self._shown(handle).slices
        ends = [row.end_offset for row in slices.plan(slices.first_offset, 1 << 60)]
        if not ends:
            return
        self.manifests += 1
        end = data.draw(st.sampled_from(ends))
        prepared = swap(self.script.state, handle, self.manifests, end, released=[(1, self.manifests)])
        changed = data.draw(st.sampled_from(["nothing", "nothing", "merged", "start", "deleted"]))
        if changed == "merged":
            other = swap(self.script.state, handle, self.manifests + 1000, ends[0])
            assert self.script.one(self.live[0], other) == Done()
            partition.merged_end = ends[0]
        elif changed == "start":
            offset = data.draw(st.integers(partition.start, end))
            self.script.one(self.live[0], MoveLogStart(partition=[handle], offset=[offset]))
            dropped = partition.move(offset, grace=self.grace)
            changed = "dropped" if dropped or partition.held == end else "nothing"
        elif changed == "deleted":
            (name,) = [name for name, handles in self.topics.items() if handle in handles]
            self._delete(name)
        result = self.script.one(data.draw(st.sampled_from(self.live)), prepared)
        if changed == "nothing":
            assert result == Done()
            partition.merged_end = end
        else:
            assert isinstance(result, Refused)

    def _shown(self, handle: int) -> Partition:
        found = self.script.state.partitions[handle]
        assert found is not None
        return found

    @rule()
    def expire(self) -> None:
        self.script.sleep(DAY_MS + 1)
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
            shown = self._shown(handle)
            assert (shown.log_start, shown.high_watermark) == (partition.start, len(partition.records))
            assert shown.held_start == partition.held
            assert (shown.merged.end_offset if shown.merged else 0) == partition.merged_end
            first_row = max(partition.held, partition.merged_end)
            for offset in (first_row, len(partition.records) - 1):
                if first_row <= offset < len(partition.records):
                    first = shown.slices.plan(offset, 0)[0]
                    assert first.base_offset <= offset < first.end_offset

    @invariant()
    def each_record_is_of_the_binding_at_its_place(self) -> None:
        for handle, partition in self.model.items():
            shown = self._shown(handle)
            assert shown.begins_span == (
                (shown.spans[-1][1:] if shown.spans else (0, 0)) != partition.binding
            )
            start, end = partition.held, len(partition.records)
            found = spans_between(self.script.state, shown, start, end)
            changes = [
                at
                for at in range(start, end)
                if partition.records[at - 1 : at] != partition.records[at : at + 1]
            ]
            expected = [(at, *partition.records[at]) for at in dict.fromkeys([start, *changes]) if at < end]
            assert [tuple(span) for span in found] == expected
            assert {
                schema for span in found for schema in span[1:] if schema
            } <= self.script.state.schemas.keys()

    @invariant()
    def the_groups_are_the_models(self) -> None:
        state = self.script.state
        assert set(state.groups) == set(self.groups)
        for name, known in self.groups.items():
            shown = state.groups[name]
            found = {handle: shown.offsets.get(handle) for handle in self.model}
            assert {handle: each.offset for handle, each in found.items() if each} == known.offsets
            members = list(shown.classic.members) if shown.classic is not None else []
            assert (shown.revision, members) == (known.revision, known.members)

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
