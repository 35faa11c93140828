"""Snapshots of large states: every step is small, whatever one partition holds, and every file loads."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from coordination import snapshot
from coordination.commands import BindSchema, SkipDamaged
from coordination.proto import snapshot_pb2 as pb
from coordination.snapshot import decode, encode, encode_steps
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state import freeze as notes
from coordination.state import freeze_partitions
from coordination.state import thaw as thaw_module
from coordination.state.freeze import freeze, freeze_now, sections
from coordination.state.slices import ROW_BYTES
from coordination.state.state import State
from coordination.state.thaw import BadSnapshot, Thaw
from tests.unit.coordination.conftest import Agents
from tests.unit.coordination.kit import A, Producer, Script, chunk
from tests.unit.coordination.reflect import plain
from tests.unit.coordination.test_replica import topic

ROWS, PRODUCERS = 4, 3  # of one section, or noted in one step


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and sections that a small state already fills."""
    monkeypatch.setattr(freeze_partitions, "SECTION_BYTES", ROWS * ROW_BYTES)
    monkeypatch.setattr(freeze_partitions, "PRODUCER_BYTES", ROWS * ROW_BYTES // PRODUCERS)
    monkeypatch.setattr(freeze_partitions, "PRODUCERS_PER_STEP", PRODUCERS)
    monkeypatch.setattr(freeze_partitions, "PRODUCERS_NOTED_PER_STEP", PRODUCERS)
    monkeypatch.setattr(notes, "PARTITIONS_PER_STEP", PRODUCERS)
    monkeypatch.setattr(notes, "PRODUCERS_LIKE_A_PARTITION", 1)


def filled(level: int = 2) -> Script:
    """Partition 0 has 10 rows, partition 1 has 8 producers, 2 to 5 have 3 rows each, 6 to 15 nothing."""
    script = Script()
    script.register(A, level=level)
    script.topic(A, "t", 8)
    script.topic(A, "u", 8)
    for _ in range(10):
        script.commit(A, (0, 1))
    script.commit(A, *((1, 1, 100 + number, 0, 0) for number in range(8)))
    for handle in (2, 3, 4, 5) * 3:
        script.commit(A, (handle, 1))
    return script


def rows_and_producers(section: pb.Section) -> tuple[int, int]:
    """How many rows and producers are in a section."""
    if section.HasField("partition_rest"):
        rest = section.partition_rest
        return len(rest.rows) // ROW_BYTES, len(rest.producers.producer_id)
    rows = producers = 0
    for one in section.partitions.partitions:
        rows += len(one.rows) // ROW_BYTES
        producers += len(pb.Producers.FromString(one.producers).producer_id)
    return rows, producers


def test_no_section_holds_more_than_a_reader_takes_at_once() -> None:
    """Sections were bounded by the number of partitions: 256 large neighbours made one that nobody loads."""
    script = filled()
    made = list(sections(freeze_now(script.state)))
    held = [rows_and_producers(section) for section in made]
    assert sum(rows for rows, _ in held) == 10 + 1 + 4 * 3
    assert sum(producers for _, producers in held) == 8
    assert max(rows for rows, _ in held) == ROWS
    assert max(producers for _, producers in held) == PRODUCERS
    assert plain(decode(encode(script.state))) == plain(script.state)


def test_skipped_ranges_count_for_the_size_of_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions side by side may have a thousand each, with the name of who decided it."""
    script = filled()
    for handle in (6, 7, 8, 9):
        script.commit(A, (handle, 1))
        script.one(A, SkipDamaged(partition=handle, start=[0], end=[1], by="me"))
    monkeypatch.setattr(freeze_partitions, "SKIPPED_BYTES", ROWS * ROW_BYTES)
    made = list(sections(freeze_now(script.state)))
    held = [sum(len(one.skipped) for one in section.partitions.partitions) for section in made]
    assert (sum(held), max(held)) == (4, 1)
    assert plain(decode(encode(script.state))) == plain(script.state)


def test_spans_of_bindings_count_for_the_size_of_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions side by side may have a thousand each."""
    script = filled()
    script.one(A, BindSchema(topic="u", descriptor_set=b"set", message="m"))
    written = chunk(99, *((handle, 1) for handle in (8, 9, 10, 11)))
    written.judged_revision = script.state.revision
    script.one(A, written)
    monkeypatch.setattr(freeze_partitions, "SPAN_BYTES", ROWS * ROW_BYTES)
    made = list(sections(freeze_now(script.state)))
    held = [sum(len(one.spans.offset_step) for one in section.partitions.partitions) for section in made]
    assert (sum(held), max(held)) == (4, 1)
    assert plain(decode(encode(script.state))) == plain(script.state)


def test_at_level_1_partitions_stay_whole_as_its_code_expects() -> None:
    script = filled(level=1)
    made = list(sections(freeze_now(script.state)))
    assert not any(section.HasField("partition_rest") for section in made)
    groups = [len(section.partitions.partitions) for section in made if section.HasField("partitions")]
    assert groups[:6] == [1, 1, 1, 1, 1, 3], "neighbours are apart where together they are too large"
    assert plain(decode(encode(script.state))) == plain(script.state)


def test_a_file_that_nobody_could_load_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    script = filled()
    monkeypatch.setattr(snapshot, "SECTION_BYTES_MAX", 100)
    with pytest.raises(ValueError, match=r"section head of .* no reader takes more than 100"):
        encode(script.state)


def test_producers_are_noted_in_bounded_steps() -> None:
    """Apply waits while the state is noted, and the event loop for each step of it."""
    noted = 0
    for frozen in freeze(filled().state):
        assert len(frozen.producers.ids) - noted <= PRODUCERS + 1, "one may have been noted before"
        noted = len(frozen.producers.ids)
    assert noted == 8


def test_a_snapshot_is_of_one_revision_whatever_producers_do_while_it_is_written() -> None:
    """Producers are not copied for a snapshot: who changes one afterwards changes a copy."""
    script = filled()
    writer = Producer(script, A, "writer")
    writer.init()
    writer.add(7)
    writer.send(7)
    before, expected = plain(script.state), encode(script.state)
    steps = encode_steps(freeze_now(script.state))
    next(steps)
    producers = script.state.partitions[1].producers  # type: ignore[union-attr]  # it exists
    kept = producers[105]
    script.commit(A, (1, 1, 100, 0, 1), (1, 1, 101, 3, 0), (1, 1, 102, 0, 9), (1, 1, 999, 0, 0))
    writer.end(commit=True)
    script.commit(A, (1, 1, 100, 0, 2))
    *_, parts = steps
    assert b"".join(parts) == expected
    assert plain(decode(b"".join(parts))) == before
    assert producers[105] is kept, "what nobody touches is not copied"
    assert list(producers[100].recent) == [0, 0, 1, 8, 2, 11]


def test_an_entry_is_copied_once_for_a_snapshot() -> None:
    script = filled()
    freeze_now(script.state)
    producers = script.state.partitions[1].producers  # type: ignore[union-attr]  # it exists
    noted = producers[100]
    script.commit(A, (1, 1, 100, 0, 1))
    copied = producers[100]
    script.commit(A, (1, 1, 100, 0, 2))
    assert noted is not copied
    assert producers[100] is copied


@pytest.mark.parametrize("spoil", ["handle", "rows"])
def test_rows_that_are_out_of_place_are_no_snapshot(spoil: str) -> None:
    made = list(sections(freeze_now(filled().state)))
    thaw, place = Thaw(), next(at for at, one in enumerate(made) if one.HasField("partition_rest"))
    for section in made[:place]:
        thaw.take(section)
    made[place].partition_rest.handle += spoil == "handle"
    made[place].partition_rest.rows += b"x" * (spoil == "rows")
    with pytest.raises(BadSnapshot, match="out of place"):
        thaw.take(made[place])


def test_a_state_without_partitions_is_a_snapshot() -> None:
    assert plain(decode(encode(State()))) == plain(State())


LARGE: dict[str, pb.Section] = {
    "partitions": pb.Section(
        partitions=pb.PartitionGroup(partitions=[pb.Partition(handle=handle) for handle in range(1, 10)])
    ),
    "producers": pb.Section(
        partition_rest=pb.PartitionRest(
            producers=pb.Producers(
                producer_id=range(9),
                epoch=[0] * 9,
                last_sequence=[0] * 9,
                floor_sequence=[0] * 9,
                updated_ms=[1] * 9,
                remembered=[1] * 9,
                first_sequence=range(9),
                base_offset=range(9),
            )
        )
    ),
    "producers of a whole partition": pb.Section(
        partitions=pb.PartitionGroup(
            partitions=[
                pb.Partition(
                    handle=1,
                    producers=pb.Producers(
                        producer_id=range(9),
                        epoch=[0] * 9,
                        last_sequence=[0] * 9,
                        floor_sequence=[0] * 9,
                        updated_ms=[1] * 9,
                        remembered=[0] * 9,
                    ).SerializeToString(),
                )
            ]
        )
    ),
    "chunks": pb.Section(
        chunks=pb.Chunks(serial=range(9), incarnation=[1] * 9, number=range(9), references=[1] * 9)
    ),
    "garbage": pb.Section(garbage=pb.Garbage(incarnation=[1] * 9, number=range(9), since_ms=[1] * 9)),
    "segments": pb.Section(
        segment_garbage=pb.SegmentGarbage(
            incarnation=[1] * 9, partition=[0] * 9, number=range(9), since_ms=[1] * 9
        )
    ),
    "manifests": pb.Section(
        manifest_garbage=pb.ManifestGarbage(
            incarnation=[1] * 9, partition=[0] * 9, number=range(9), since_ms=[1] * 9, whole=[False] * 9
        )
    ),
    "positions that wait": pb.Section(
        pending_offsets=pb.PendingOffsets(
            group="g",
            transactional_id="t",
            partition=range(9),
            offset=range(9),
            leader_epoch=[-1] * 9,
            metadata=["m"] * 9,
            committed_ms=[1] * 9,
            revision=[1] * 9,
        )
    ),
    "transactions": pb.Section(
        transactions=pb.Transactions(
            transactions=[pb.Transaction(transactional_id=f"t{n}", producer_id=n) for n in range(9)]
        )
    ),
    "extents": pb.Section(
        extents=pb.Extents(numbers=[number for n in range(9) for number in (1, 0, n, n + 1)])
    ),
    "members": pb.Section(
        consumer_members=pb.ConsumerMembers(members=[pb.ConsumerMember(member_id=f"m{n}") for n in range(9)])
    ),
}
"""Sections of nine rows each."""


def entries(state: State) -> int:
    """How much of what sections have many rows of is in a state."""
    partitions = [partition for partition in state.partitions if partition is not None]
    pending = [rows for ids in state.pending_offsets.values() for rows in ids.values()]
    groups = [group.consumer for group in state.groups.values() if group.consumer is not None]
    return sum(
        (
            len(partitions),
            sum(len(partition.producers) for partition in partitions),
            len(state.chunks.by_serial),
            len(state.chunks.garbage),
            len(state.segment_garbage),
            len(state.manifest_garbage),
            sum(map(len, pending)),
            len(state.transactions),
            sum(len(topic.extents) for topic in state.topics.values()),
            sum(len(group.members) for group in groups),
        )
    )


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_section_is_taken_in_small_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step took a whole section, of up to 4,096 rows, and the event loop stood still for it."""
    monkeypatch.setattr(thaw_module, "ENTRIES_PER_STEP", 2)
    thaw = Thaw()
    thaw.take(pb.Section(head=pb.Head(feature_level=2, handles=10)))
    thaw.take(pb.Section(group=pb.Group(group_id="g", kind="consumer", consumer=pb.ConsumerGroup())))
    thaw.take(pb.Section(topic=pb.Topic(name="t", topic_id=bytes(16))))
    thaw.take(pb.Section(partitions=pb.PartitionGroup(partitions=[pb.Partition(handle=0)])))
    seen = [entries(thaw.state)]
    for _ in thaw.steps(LARGE[kind]):
        seen.append(entries(thaw.state))
    seen.append(entries(thaw.state))
    assert seen[-1] - seen[0] in (9, 10)  # ten: a partition and its producers
    assert max(later - earlier for earlier, later in pairwise(seen)) <= 3


def test_notes_on_partitions_are_few_objects_and_go_as_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple for each of 200,000 partitions set off full collections, and letting go of them took 27 ms."""
    monkeypatch.setattr(freeze_partitions, "PARTITIONS_PER_STEP", PRODUCERS)
    state = filled().state
    frozen = freeze_now(state)
    blocks = frozen.partitions.blocks
    assert len(blocks) == 16 // PRODUCERS, "16 partitions, the last one in no full block"
    assert not any(
        isinstance(one, tuple) and len(one) == freeze_partitions.NOTED for b in blocks for one in b
    )
    left = [len(blocks) for one in sections(frozen) if one.WhichOneof("kind") == "partitions"]
    assert left[0] > left[-1] == 0, "they go one after the other"


async def test_the_collector_looks_at_what_was_noted_once(agents: Agents) -> None:
    """What it has looked at waits for a full collection: not in the middle generation, all of which it would
    go over at once."""
    replica = await agents.start("a")
    for number in range(3):
        await replica.propose(topic(f"t{number}"))
    keeper = SnapshotKeeper(replica, agents.logs["a"], agents.store, SnapshotOptions(slice_s=0))
    frozen = await keeper._freeze()
    assert any(each is frozen for each in gc.get_objects(generation=2))
