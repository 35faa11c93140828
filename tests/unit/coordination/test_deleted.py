"""Deleted topics: gone for clients, kept whole, brought back as they were, let go of in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    BindSchema,
    CommitOffsets,
    CommitTable,
    CreateTopic,
    DeleteTopic,
    ExpireOffsets,
    PurgeTopics,
    PutNamespace,
    UndeleteTopic,
    config_entries,
)
from coordination.kafka_codes import Code
from coordination.snapshot import decode, encode
from coordination.state import deleted, spans
from coordination.state.state import State
from coordination.state.types import ChunkCommitted, Done, Refused
from tests.unit.coordination.kit import A, B, Producer, Script, chunk, swap, tiles
from tests.unit.coordination.reflect import plain

DAY_MS = 24 * 3_600_000
ID = b"t".ljust(16, b".")
Set = AlterTopicConfigs.Change


def held(level: int = 2) -> tuple[Script, list[int]]:
    """Topic `t` of two partitions with a merged range, rows, a producer, a binding, positions and a table."""
    script = Script()
    script.register(A, level=level)
    script.register(B, level=level)
    script.topic(A, "other")
    handles = script.topic(A, "t", 2)
    bind = BindSchema(topic="t", descriptor_set=b"d", message="M")
    assert isinstance(script.one(A, bind), Done)
    for sequence in range(4):
        script.commit(A, (0, 1), *((handle, 1, 7, 0, sequence) for handle in handles))
    assert script.one(A, swap(script.state, handles[0], 1, 2)) == Done()
    assert script.one(A, CommitOffsets(group="g", generation=-1, partition=handles, offset=[3, 4])) == Done()
    script.one(A, PutNamespace(name="floe"))
    table = CommitTable(namespace="floe", name="t", metadata_location="m", topic="t", next_offsets=[1, 1])
    assert isinstance(script.one(A, table), Done)
    return script, handles


def sound(script: Script) -> None:
    """What must hold does, a snapshot is the same, and another agent comes to the same."""
    tiles(script.state)
    assert plain(decode(encode(script.state))) == plain(script.state)
    assert plain(script.replayed()) == plain(script.state)


def positions(state: State) -> dict[int, int]:
    table = state.groups["g"].offsets
    return dict(zip(table.handles, table.offsets, strict=True))


def meant(state: State) -> object:
    """The state but for what a deletion and a return change: places in the log, and in orders of dicts."""
    told = dict(plain(state)[1])  # type: ignore[index]  # the attributes
    for name in ("revision", "digest", "_hashes", "incarnations", "live", "bound_revision", "groups"):
        told.pop(name, None)
    for name in ("topics", "topics_by_id", "schemas", "names_without_dots"):
        told[name] = sorted(told[name], key=repr)
    return told


def without_judgement(state: State) -> object:
    """`meant`, and it does not count since when batches are judged anew."""
    topics = list(state.topics.values())
    before = [topic.bound_revision for topic in topics]
    for topic in topics:
        topic.bound_revision = 0
    told = meant(state)
    for topic, revision in zip(topics, before, strict=True):
        topic.bound_revision = revision
    return told


def test_a_deleted_topic_comes_back_as_it_was() -> None:
    script, handles = held()
    before, known = without_judgement(script.state), positions(script.state)
    garbage = dict(script.state.chunks.garbage), dict(script.state.manifest_garbage)
    assert script.one(B, DeleteTopic(name="t", by="User:u")) == Done(ID)
    state = script.state
    assert "t" not in state.topics
    assert ID not in state.topics_by_id
    assert [state.partitions[handle] for handle in handles] == [None, None]
    assert (state.partition_count, state.producer_count, not state.schemas) == (1, 0, True)
    assert (state.chunks.garbage, state.manifest_garbage) == garbage, "all of it is referenced still"
    found = state.deleted[ID]
    assert (found.by, found.deleted_ms) == ("User:u", state.clock_ms)
    assert found.until_ms == found.deleted_ms + DAY_MS
    assert found.size_bytes == sum(each.size_bytes for each in found.topic.partitions) > 0
    sound(script)
    assert script.one(A, UndeleteTopic(topic_id=ID)) == Done("t")
    assert without_judgement(script.state) == before
    assert positions(script.state) == known
    assert script.state.topics["t"].bound_revision == script.state.revision
    sound(script)


def test_batches_go_on_where_they_were_and_those_judged_before_are_judged_again() -> None:
    script, handles = held()
    before = script.state.revision
    script.one(A, DeleteTopic(name="t"))
    assert script.commit(A, (handles[0], 1, 7, 0, 4)).errors == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    script.one(A, UndeleteTopic(topic_id=ID))
    script.chunks[A] += 1
    old = chunk(script.chunks[A], (handles[0], 1, 7, 0, 4))
    old.judged_revision = before
    refused = script.one(A, old)
    assert isinstance(refused, ChunkCommitted)
    assert refused.base_offsets == [-1]
    answer = script.commit(A, (handles[0], 1, 7, 0, 4))
    assert (answer.errors, answer.base_offsets) == ([0], [4])
    again = script.commit(A, (handles[0], 1, 7, 0, 4))
    assert (again.errors, again.base_offsets, again.duplicates) == ([0], [4], [0])
    sound(script)


def test_its_name_is_free_at_once_and_it_comes_back_beside_under_another() -> None:
    script, handles = held()
    script.one(A, DeleteTopic(name="t"))
    fresh = script.topic(A, "t", 1, fill=b"!")
    refused = script.one(A, UndeleteTopic(topic_id=ID))
    assert isinstance(refused, Refused)
    assert refused.code is Code.TOPIC_ALREADY_EXISTS
    assert "--as" in refused.message
    assert script.one(A, UndeleteTopic(topic_id=ID, name="t2")) == Done("t2")
    state = script.state
    assert [each.handle for each in state.topics["t"].partitions] == fresh
    assert [each.handle for each in state.topics["t2"].partitions] == handles
    assert {schema.topic for schema in state.schemas.values()} == {"t2"}
    assert state.tables["floe", "t"].topic == "t2", "its table says whose it is"
    goes_on = CommitTable(
        namespace="floe", name="t", expected="m", metadata_location="n", topic="t2", topic_id=ID,
        next_offsets=[2, 2],
    )  # fmt: skip
    assert isinstance(script.one(A, goes_on), Done)
    sound(script)


def test_what_stands_in_the_way_is_told_and_nothing_changes() -> None:
    script, _ = held()
    script.one(A, DeleteTopic(name="t"))
    script.topic(A, "a.b", fill=b"?")
    for name, code in (
        ("a_b", Code.INVALID_TOPIC_EXCEPTION),
        ("no good", Code.INVALID_TOPIC_EXCEPTION),
        ("other", Code.TOPIC_ALREADY_EXISTS),
    ):
        refused = script.one(A, UndeleteTopic(topic_id=ID, name=name))
        assert isinstance(refused, Refused), name
        assert refused.code is code
    unknown = script.one(A, UndeleteTopic(topic_id=b"x" * 16))
    assert isinstance(unknown, Refused)
    assert unknown.code is Code.RESOURCE_NOT_FOUND
    same = script.one(A, CreateTopic(name="new", topic_id=ID, partitions=1))
    assert isinstance(same, Refused), "an id is of one topic"
    sound(script)


def test_a_topic_whose_table_name_was_taken_meanwhile_does_not_come_back() -> None:
    script = Script()
    script.register(A)
    named = config_entries({"floe.table.name": "x"})
    script.one(A, CreateTopic(name="t", topic_id=ID, partitions=1, configs=named))
    script.one(A, DeleteTopic(name="t"))
    script.one(A, CreateTopic(name="u", topic_id=b"u" * 16, partitions=1, configs=named))
    refused = script.one(A, UndeleteTopic(topic_id=ID))
    assert isinstance(refused, Refused)
    assert "floe.x is the table of topic 'u'" in refused.message
    sound(script)


def test_a_transaction_that_was_open_ends_on_it() -> None:
    script = Script()
    script.register(A)
    (handle,) = script.topic(A, "t")
    other = script.topic(A, "u")[0]
    producer = Producer(script, A, "x")
    producer.init()
    assert producer.send(handle, 3) == (0, 0)
    assert producer.send(other) == (0, 0)
    waiting = producer.commit_offsets("g", (handle, 2))
    assert waiting == Done()
    script.one(A, DeleteTopic(name="t"))
    script.topic(A, "t", fill=b"!")
    assert isinstance(producer.end(commit=True), Done)
    kept = script.state.deleted[ID].topic.partitions[0]
    assert (kept.high_watermark, kept.last_stable) == (4, 4), "its marker is there"
    assert not script.state.topics["t"].extents, "these are of the topic that has the name now"
    sound(script)
    script.one(A, UndeleteTopic(topic_id=ID, name="back"))
    assert script.state.topics["back"].extents == [{0: (0, 3)}]
    assert positions(script.state) == {handle: 2}
    sound(script)


def test_positions_wait_for_it_however_old_and_go_when_it_is_purged() -> None:
    script, handles = held()
    script.one(A, DeleteTopic(name="t"))
    script.sleep(1000)
    assert script.one(A, ExpireOffsets(retention_ms=1, group=["g"])) == Done((0, 0))
    assert set(positions(script.state)) == set(handles)
    assert script.one(A, PurgeTopics(topic_id=[ID])) == Done(1)
    assert script.one(A, ExpireOffsets(retention_ms=1, group=["g"])) == Done((2, 1))


def test_it_is_purged_when_its_time_is_over_and_not_before() -> None:
    script, _ = held()
    script.one(A, DeleteTopic(name="t"))
    until_ms = script.state.deleted[ID].until_ms
    early = script.one(A, PurgeTopics(topic_id=[ID], judged_ms=until_ms))
    assert isinstance(early, Refused), "a clock that is ahead"
    now = script.one(A, PurgeTopics(topic_id=[ID, b"x" * 16], judged_ms=script.state.clock_ms))
    assert now == Done(0), "its time is not over"
    assert ID in script.state.deleted
    for _ in range(2):
        script.sleep(DAY_MS)
    assert script.state.clock_ms >= until_ms
    assert script.one(A, PurgeTopics(topic_id=[ID], judged_ms=until_ms)) == Done(1)
    state = script.state
    assert (state.deleted, state.deleted_partitions, state.deleted_weight) == ({}, {}, 0)
    assert len(state.chunks.by_serial) == 4, "those that the other topic is in"
    assert len(state.manifest_garbage) == 1
    sound(script)


def test_somebody_who_wants_the_room_has_it_now() -> None:
    script, _ = held()
    script.one(A, DeleteTopic(name="t"))
    assert script.one(A, PurgeTopics(topic_id=[ID])) == Done(1)
    assert not script.state.deleted
    assert len(script.state.manifest_garbage) == 1
    too_many = script.one(A, PurgeTopics(topic_id=[b"x" * 16] * (deleted.PURGED_AT_ONCE_MAX + 1)))
    assert isinstance(too_many, Refused)


def topics_max(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deleted, "TOPICS_MAX", 2)


def partitions_max(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deleted, "PARTITIONS_MAX", 2)


def weight_max(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deleted, "WEIGHT_MAX", 3_000)


@pytest.mark.parametrize("bound", [topics_max, partitions_max, weight_max])
def test_beyond_each_bound_the_oldest_go(
    bound: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch)
    script = Script()
    script.register(A)
    for name in "abcde":
        (handle,) = script.topic(A, name)
        script.commit(A, (handle, 1))
        script.one(A, DeleteTopic(name=name))
    assert [each.topic.name for each in script.state.deleted.values()] == ["d", "e"]
    assert len(script.state.chunks.garbage) == 3
    sound(script)


def test_the_last_one_stays_whatever_it_weighs(monkeypatch: pytest.MonkeyPatch) -> None:
    weight_max(monkeypatch)
    script = Script()
    script.register(A)
    script.topic(A, "small")
    script.topic(A, "large", 100)
    script.one(A, DeleteTopic(name="small"))
    script.one(A, DeleteTopic(name="large"))
    assert [each.topic.name for each in script.state.deleted.values()] == ["large"]


@pytest.mark.parametrize("of_cluster", [False, True])
def test_with_a_time_of_nothing_it_is_gone_for_good(of_cluster: bool) -> None:
    script, _ = held()
    change = Set(name=deleted.RETENTION, value="0")
    own, cluster = AlterTopicConfigs(topic="t", changes=[change]), AlterClusterConfigs(changes=[change])
    alter = cluster if of_cluster else own
    assert script.one(A, alter) == Done()
    assert script.one(A, DeleteTopic(name="t")) == Done(ID)
    assert not script.state.deleted
    assert len(script.state.manifest_garbage) == 1
    sound(script)


def test_below_its_level_nothing_is_kept_and_nothing_protected() -> None:
    script, _ = held(level=1)
    assert script.one(A, DeleteTopic(name="t", by="User:u")) == Done(ID)
    assert not script.state.deleted
    for message in (UndeleteTopic(topic_id=ID), PurgeTopics(topic_id=[ID])):
        refused = script.one(A, message)
        assert isinstance(refused, Refused)
        assert refused.code is Code.UNSUPPORTED_VERSION
    sound(script)


def test_a_protected_topic_is_not_deleted_and_the_remedy_is_named() -> None:
    script, _ = held()
    on, off = (Set(name=deleted.PROTECTION, value=value) for value in ("true", "false"))
    assert script.one(A, AlterTopicConfigs(topic="t", changes=[on])) == Done()
    refused = script.one(A, DeleteTopic(topic_id=ID))
    assert isinstance(refused, Refused)
    assert refused.code is Code.POLICY_VIOLATION
    assert "floe topic config t --set floe.delete.protection=false" in refused.message
    assert script.one(A, AlterTopicConfigs(topic="t", changes=[off])) == Done()
    assert script.one(A, DeleteTopic(name="t")) == Done(ID)


def test_configs_that_bind_to_a_subject_of_the_name_bind_under_the_new_name() -> None:
    script = Script()
    script.register(A)
    validated = config_entries({"confluent.value.schema.validation": "true"})
    script.one(A, CreateTopic(name="t", topic_id=ID, partitions=1, configs=validated))
    script.one(A, DeleteTopic(name="t"))
    assert script.one(A, UndeleteTopic(topic_id=ID, name="new")) == Done("new")
    state = script.state
    bound = state.schemas[state.topics["new"].value_schema_id or 0]
    assert (bound.subject, bound.topic) == ("new-value", "new")
    assert [each.subject for each in state.schemas.values()] == ["t-value", "new-value"]
    assert [key for key, topics in state.followers.items() if "new" in topics] == [(1, "new-value")]
    sound(script)


def test_a_name_that_is_in_subjects_of_records_cannot_be_another() -> None:
    script = Script()
    script.register(A)
    strategy = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"
    configs = {
        "confluent.value.schema.validation": "true",
        "confluent.value.subject.name.strategy": strategy,
    }
    script.one(A, CreateTopic(name="t", topic_id=ID, partitions=1, configs=config_entries(configs)))
    script.one(A, DeleteTopic(name="t"))
    assert isinstance(script.one(A, UndeleteTopic(topic_id=ID, name="new")), Refused)
    assert script.one(A, UndeleteTopic(topic_id=ID)) == Done("t")
    sound(script)


def test_a_binding_that_does_not_fit_into_the_spans_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.register(A)
    on, off = (Set(name="confluent.value.schema.validation", value=each) for each in ("true", "false"))
    script.topic(A, "t")
    for change in (on, off, on):
        assert script.one(A, AlterTopicConfigs(topic="t", changes=[change])) == Done()
        script.commit(A, (0, 1))
    script.one(A, DeleteTopic(name="t"))
    monkeypatch.setattr(spans, "SPANS_MAX", 3)
    refused = script.one(A, UndeleteTopic(topic_id=ID, name="new"))
    assert isinstance(refused, Refused)
    assert refused.code is Code.POLICY_VIOLATION
    assert script.one(A, UndeleteTopic(topic_id=ID)) == Done("t")
