"""Apply: chunks, slices and garbage, topics and their configs."""

from __future__ import annotations

import pytest

from coordination.commands import (
    KINDS,
    AlterClusterConfigs,
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ForgetChunks,
    MoveLogStart,
    Quarantine,
    config_entries,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import (
    Done,
    Refused,
    Result,
)
from coordination.state.state import HANDLERS
from objectstore.naming import ChunkId, SliceRef
from tests.unit.coordination.kit import START_MS, A, B, Script, chunk, for_good, tiles


def refused(result: Result, code: Code) -> bool:
    return isinstance(result, Refused) and result.code is code


def test_every_command_of_the_log_has_a_handler() -> None:
    assert set(KINDS) == set(HANDLERS)


# Chunks and slices.


def test_adjacent_batches_of_a_partition_are_one_slice(script: Script) -> None:
    script.topic(A, "t", 2)
    result = script.commit(A, (0, 3), (0, 4), (1, 1), (0, 2), timestamps=[5, 9, 1, 7])
    assert result.base_offsets == [0, 3, 0, 7]
    first, second = script.state.partitions[0].slices.plan(0, 1 << 40)
    assert first == SliceRef(0, 7, ChunkId(A, 1), 64, 200, 9)
    assert second == SliceRef(7, 9, ChunkId(A, 1), 364, 100, 7)
    tiles(script.state)


def test_batches_of_two_chunks_are_never_one_slice(script: Script) -> None:
    script.topic(A, "t")
    script.commit(A, (0, 3))
    script.commit(A, (0, 3))
    assert len(script.state.partitions[0].slices) == 2


def test_plan_takes_what_fits_and_the_first_always(script: Script) -> None:
    script.topic(A, "t")
    for _ in range(5):
        script.commit(A, (0, 10))
    slices = script.state.partitions[0].slices
    assert [s.base_offset for s in slices.plan(25, 200)] == [20, 30]
    assert [s.base_offset for s in slices.plan(25, 1)] == [20], "however large (rule 7)"
    assert [s.base_offset for s in slices.plan(30, 1)] == [30]
    assert slices.plan(50, 1000) == []


def test_slices_by_time(script: Script) -> None:
    script.topic(A, "t")
    for timestamp in (50, 10, 90, 90, 20):
        script.commit(A, (0, 1), timestamps=[timestamp])
    slices = script.state.partitions[0].slices
    assert [slices.by_timestamp(t, 0).base_offset for t in (0, 50, 51, 90)] == [0, 0, 2, 2]
    assert slices.by_timestamp(91, 0) is None
    assert slices.max_timestamp(0).base_offset == 2


def test_moving_the_log_start_drops_whole_slices_and_their_chunks(script: Script) -> None:
    handles = script.topic(A, "t", 2)
    for _ in range(300):
        script.commit(A, (0, 10), (1, 1))
    move = MoveLogStart(partition=[0, 1, 99], offset=[2995, -1, 0])
    script.now_ms += 7
    assert script.one(A, move) == Done((2995, 300, -1))
    tiles(script.state)
    partition = script.state.partitions[0]
    assert (partition.log_start, len(partition.slices)) == (2995, 1)
    assert len(partition.slices.rows) == 32, "the dead front is copied away"
    assert len(script.state.chunks.garbage) == 299
    assert script.state.chunks.garbage[ChunkId(A, 1)] == START_MS + 7
    assert script.one(A, MoveLogStart(partition=[0], offset=[5])) == Done((2995,)), "never back"
    for beyond in (3001, -2):
        assert script.one(A, MoveLogStart(partition=[0], offset=[beyond])) == Done((-1,))
    assert partition.log_start == 2995
    script.commit(A, (handles[0], 4))
    assert partition.slices.plan(2995, 1 << 30)[1][:2] == (3000, 3004)


def test_deleting_a_topic_makes_garbage_of_what_only_it_used(script: Script) -> None:
    for_good(script)
    one, two = script.topic(A, "one")[0], script.topic(A, "two")[0]
    script.commit(A, (one, 1), (two, 1))
    script.commit(A, (one, 1))
    assert isinstance(script.one(B, DeleteTopic(name="one")), Done)
    assert list(script.state.chunks.garbage) == [ChunkId(A, 2)]
    result = script.commit(B, (one, 1), (two, 1))
    assert (result.errors, result.base_offsets) == ([Code.UNKNOWN_TOPIC_OR_PARTITION, 0], [-1, 1])
    assert script.one(B, ForgetChunks(chunks=[{"incarnation": A, "number": 2}])) == Done(1)
    assert not script.state.chunks.garbage
    assert script.topic(A, "one") == [2], "handles are never given twice"
    tiles(script.state)


def test_a_chunk_of_nothing_but_duplicates_is_garbage_at_once(script: Script) -> None:
    script.topic(A, "t")
    script.commit(A, (0, 1, 7, 0, 0))
    script.commit(B, (0, 1, 7, 0, 0))
    assert list(script.state.chunks.garbage) == [ChunkId(B, 1)]


def test_malformed_chunks_are_refused_whole(script: Script) -> None:
    script.topic(A, "t")
    bad = [
        chunk(1),
        chunk(1, (0, 0)),
        chunk(1, (5, 1)),
        chunk(1, (0, 1), (0, 1)),
        chunk(1, (0, 1)),
        chunk(1, (0, 1, 7, 0, 0)),
    ]
    del bad[3].length[1]
    bad[4].size = 10
    del bad[5].base_sequence[0]
    for message in bad:
        assert refused(script.one(A, message), Code.INVALID_REQUEST)
    assert script.commit(A, (0, 1)).base_offsets == [0]
    assert refused(script.one(A, chunk(1, (0, 1))), Code.INVALID_REQUEST), "a number is used once"


# Topics.


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n"])
def test_names_that_kafka_refuses(script: Script, name: str) -> None:
    message = CreateTopic(name=name, topic_id=bytes(16), partitions=1)
    assert refused(script.one(A, message), Code.INVALID_TOPIC_EXCEPTION)


def test_names_that_metrics_cannot_tell_apart_collide(script: Script) -> None:
    script.topic(A, "a.b_c")
    message = CreateTopic(name="a_b.c", topic_id=bytes(16), partitions=1)
    assert refused(script.one(A, message), Code.INVALID_TOPIC_EXCEPTION)
    script.one(A, DeleteTopic(name="a.b_c"))
    assert isinstance(script.one(A, message), Done)


def test_create_topic_refusals(script: Script) -> None:
    script.topic(A, "t")

    def create(
        code: Code, name: str = "new", topic_id: bytes = bytes(16), partitions: int = 1, **configs: str
    ):
        entries = config_entries({key.replace("_", "."): value for key, value in configs.items()})
        message = CreateTopic(name=name, topic_id=topic_id, partitions=partitions, configs=entries)
        assert refused(script.one(A, message), code)

    create(Code.TOPIC_ALREADY_EXISTS, name="t")
    create(Code.INVALID_PARTITIONS, partitions=0)
    create(Code.INVALID_PARTITIONS, partitions=10_001)
    create(Code.INVALID_REQUEST, topic_id=b"short")
    create(Code.INVALID_REQUEST, topic_id=b"t".ljust(16, b"."))
    create(Code.INVALID_CONFIG, retention_ms="soon")
    create(Code.INVALID_CONFIG, no_such="1")
    create(Code.INVALID_CONFIG, cleanup_policy="burn")
    assert list(script.state.topics) == ["t"]


def test_partitions_only_grow(script: Script) -> None:
    script.topic(A, "t", 2)
    script.topic(A, "u", 1)
    assert refused(script.one(A, CreatePartitions(topic="t", total=2)), Code.INVALID_PARTITIONS)
    assert refused(script.one(A, CreatePartitions(topic="x", total=2)), Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert script.one(A, CreatePartitions(topic="t", total=4)) == Done()
    assert [p.handle for p in script.state.topics["t"].partitions] == [0, 1, 3, 4]


def test_delete_by_name_or_id(script: Script) -> None:
    script.topic(A, "t")
    assert refused(script.one(A, DeleteTopic(name="x")), Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert refused(script.one(A, DeleteTopic(topic_id=bytes(16))), Code.UNKNOWN_TOPIC_ID)
    assert isinstance(script.one(A, DeleteTopic(topic_id=b"t".ljust(16, b"."))), Done)
    assert not script.state.topics
    assert not script.state.topics_by_id


def test_configs_change_all_or_none(script: Script) -> None:
    script.topic(A, "t")
    change = AlterTopicConfigs.Change

    def alter(*changes: AlterTopicConfigs.Change, replace_all: bool = False) -> Result:
        return script.one(A, AlterTopicConfigs(topic="t", changes=changes, replace_all=replace_all))

    topic = script.state.topics["t"]
    assert alter(change(name="retention.ms", value="5"), change(name="segment.ms", value="9")) == Done()
    assert refused(
        alter(change(name="retention.ms", value="6"), change(name="segment.ms", value="x")),
        Code.INVALID_CONFIG,
    )
    assert topic.configs == {"retention.ms": "5", "segment.ms": "9"}
    append, subtract, delete = (getattr(change, name) for name in ("APPEND", "SUBTRACT", "DELETE"))
    assert refused(alter(change(name="segment.ms", operation=append, value="1")), Code.INVALID_CONFIG)
    alter(change(name="cleanup.policy", operation=append, value="compact"))
    assert topic.configs["cleanup.policy"] == "delete,compact", "it starts from the default"
    alter(change(name="cleanup.policy", operation=subtract, value="delete"))
    assert topic.configs["cleanup.policy"] == "compact"
    alter(change(name="cleanup.policy", operation=delete))
    assert "cleanup.policy" not in topic.configs
    alter(change(name="flush.ms", value="3"), replace_all=True)
    assert topic.configs == {"flush.ms": "3"}
    assert script.one(A, AlterClusterConfigs(changes=[change(name="retention.ms", value="8")])) == Done()
    assert script.state.cluster_configs == {"log.retention.ms": "8"}, "Kafka's name for the default"


@pytest.mark.parametrize("new", [True, False])
def test_a_quarantine_that_cannot_be_made_is_refused_with_what_asks_for_it(
    script: Script, *, new: bool
) -> None:
    """The cluster's defaults may contradict each other; a topic with configs of its own is none the worse."""
    change = AlterTopicConfigs.Change
    lags = (("log.cleaner.min.compaction.lag.ms", "9"), ("log.cleaner.max.compaction.lag.ms", "8"))
    defaults = AlterClusterConfigs(changes=[change(name=name, value=value) for name, value in lags])
    own = {"min.compaction.lag.ms": "0"}
    made = Quarantine(topic_id=b"q" * 16, descriptor_set=b"d")
    create = CreateTopic(name="t", topic_id=b"t" * 16, partitions=1, configs=config_entries(own))
    assert script.one(A, defaults) == Done()
    asked = AlterTopicConfigs(topic="t", changes=[change(name="floe.value.rules", value="quarantine")])
    asked.quarantine.CopyFrom(made)
    if new:
        create.configs.extend(config_entries({"floe.value.rules": "quarantine"}))
        create.quarantine.CopyFrom(made)
    else:
        assert isinstance(script.one(A, create), Done)
    result = script.one(A, create if new else asked)
    assert isinstance(result, Refused)
    assert result.code is Code.INVALID_CONFIG
    assert "topic 't.quarantine' cannot be made: conflict topic config setting" in result.message
    state = script.state
    assert {name: topic.configs for name, topic in state.topics.items()} == ({} if new else {"t": own})
    assert (len(state.partitions), state.schemas, state.bound_revision) == (int(not new), {}, 0)
    assert canonical_digest(script.replayed()) == canonical_digest(state)
