"""Apply: tables, claims, changes in parts, snapshots, what stops an agent, the rolling hash."""

from __future__ import annotations

import pytest

from coordination.commands import (
    Abort,
    Begin,
    BindSchema,
    Claim,
    CommitTable,
    CreateTopic,
    DeleteTopic,
    DropNamespace,
    DropTable,
    End,
    Entry,
    FenceIncarnation,
    Heartbeat,
    Part,
    PutNamespace,
    RecordSnapshot,
    RegisterAgent,
    ReleaseClaim,
    SetFeatureLevel,
    Trim,
    command,
    config_entries,
    split_large,
)
from coordination.kafka_codes import Code
from coordination.log import LogEntry
from coordination.state import (
    ChunkCommitted,
    ClaimHolder,
    Done,
    InvariantBroken,
    Refused,
    Result,
    State,
    UnknownCommand,
    UnsupportedFeature,
)
from coordination.state.cluster import TRIM_LAG_MAX, trim_bound
from coordination.state.data import FEATURE_LEVEL_MAX as LEVEL_MAX
from coordination.state.tables import namespace_digest
from tests.unit.coordination.kit import A, B, Script, chunk


def refused(result: Result, code: Code) -> bool:
    return isinstance(result, Refused) and result.code is code


# Claims, tables, schemas.


def test_claims(script: Script) -> None:
    result = script.one(A, Claim(name="job"))
    assert script.state.claims["job"] == ClaimHolder(A, 3)
    assert result == Done(3)
    assert script.one(A, Claim(name="job")) == Done(3), "asking again changes nothing"
    assert refused(script.one(B, Claim(name="job")), Code.NOT_COORDINATOR)
    assert refused(script.one(B, ReleaseClaim(name="job", claim_revision=3)), Code.NOT_COORDINATOR)
    assert script.one(A, ReleaseClaim(name="job", claim_revision=3)) == Done()
    assert isinstance(script.one(B, Claim(name="job")), Done)


def test_table_pointers_move_by_compare_and_swap(script: Script) -> None:
    script.one(A, PutNamespace(name="floe", properties=config_entries({"a": "b"})))
    claim = script.one(A, Claim(name="committer/t"))
    assert isinstance(claim, Done)

    def commit(
        author: int, expected: str, location: str, offsets: list[int] | None = None, revision: int = 0
    ):
        message = CommitTable(namespace="floe", name="t", expected=expected, metadata_location=location)
        if offsets is not None:
            message.topic, message.claim, message.claim_revision = "t", "committer/t", claim.value
            message.next_offsets.extend(offsets)
        return script.one(author, message)

    assert refused(commit(A, "m0", "m1"), Code.RESOURCE_NOT_FOUND)
    assert isinstance(commit(A, "", "m1", [0, 0]), Done)
    assert refused(commit(A, "", "m2", [0, 0]), Code.DUPLICATE_RESOURCE)
    assert refused(commit(B, "m1", "m2", [5, 5]), Code.NOT_COORDINATOR), "the claim is A's"
    assert isinstance(commit(A, "m1", "m2", [5, 3]), Done)
    assert refused(commit(A, "m1", "m3", [9, 9]), Code.INVALID_UPDATE_VERSION)
    assert refused(commit(A, "m2", "m3", [4, 9]), Code.INVALID_REQUEST), "the ledger never goes back"
    assert refused(commit(A, "m2", "m3", [9]), Code.INVALID_REQUEST)
    assert isinstance(commit(B, "m2", "m3"), Done), "another engine may commit"
    table = script.state.tables["floe", "t"]
    assert (table.metadata_location, table.topic, table.next_offsets) == ("m3", "t", (5, 3))


@pytest.mark.parametrize("level", [1, 2])
def test_properties_are_replaced_where_they_are_those_that_were_changed(level: int) -> None:
    """From level 2 on: an older agent does not know the field, and says nothing against it either."""
    script = Script()
    script.register(A, level=level)
    first = config_entries({"a": "1", "b": "2"})
    assert script.one(A, PutNamespace(name="n", properties=first)) == Done()
    seen = namespace_digest({"b": "2", "a": "1"})
    change = PutNamespace(name="n", properties=config_entries({"a": "3"}), expected=seen)
    assert script.one(A, change) == Done()
    late = PutNamespace(name="n", properties=config_entries({"b": "4"}), expected=seen)
    gone = PutNamespace(name="m", expected=seen)
    if level == 1:
        assert (script.one(A, late), script.one(A, gone)) == (Done(), Done())
        return
    assert refused(script.one(A, late), Code.INVALID_UPDATE_VERSION)
    assert refused(script.one(A, gone), Code.RESOURCE_NOT_FOUND)
    assert script.state.namespaces == {"n": {"a": "3"}}
    assert script.one(A, PutNamespace(name="n", expected=namespace_digest({"a": "3"}))) == Done()
    assert script.one(A, PutNamespace(name="n", expected=namespace_digest({}))) == Done()


def test_namespaces_and_renames(script: Script) -> None:
    assert script.one(A, PutNamespace(name="a", must_not_exist=True)) == Done()
    assert refused(script.one(A, PutNamespace(name="a", must_not_exist=True)), Code.DUPLICATE_RESOURCE)
    script.one(A, PutNamespace(name="b"))
    missing = CommitTable(namespace="zzz", name="t", metadata_location="m")
    assert refused(script.one(A, missing), Code.RESOURCE_NOT_FOUND)
    script.one(A, CommitTable(namespace="a", name="t", metadata_location="m"))
    assert refused(script.one(A, DropNamespace(name="a")), Code.NON_EMPTY_GROUP)
    rename = DropTable(namespace="a", name="t", rename_namespace="b", rename_name="u")
    assert script.one(A, rename) == Done("m")
    assert list(script.state.tables) == [("b", "u")]
    assert script.one(A, DropNamespace(name="a")) == Done()
    assert script.one(A, DropTable(namespace="b", name="u")) == Done("m")
    assert refused(script.one(A, DropTable(namespace="b", name="u")), Code.RESOURCE_NOT_FOUND)


def test_schemas_are_versioned_per_topic_and_role(script: Script) -> None:
    script.topic(A, "t")

    def bind(descriptor: bytes, **more: object) -> Result:
        return script.one(A, BindSchema(topic="t", descriptor_set=descriptor, message="m.M", **more))

    assert bind(b"one") == Done(1)
    assert bind(b"one") == Done(1), "nothing changed"
    assert bind(b"two") == Done(2)
    assert bind(b"two", role=BindSchema.KEY) == Done(3)
    topic = script.state.topics["t"]
    assert (topic.value_schema_id, topic.key_schema_id) == (2, 3)
    assert [s.version for s in script.state.schemas.values()] == [1, 2, 1]
    assert bind(b"", unbind=True) == Done()
    assert topic.value_schema_id is None
    assert refused(bind(b""), Code.INVALID_REQUEST)
    script.one(A, DeleteTopic(name="t"))
    assert not script.state.schemas


# Snapshots and trimming.


def test_trim_waits_for_two_snapshots_and_every_live_agent(script: Script) -> None:
    for _ in range(20):
        script.apply(A, Heartbeat())
    assert refused(script.one(A, Trim(through=1)), Code.POLICY_VIOLATION), "no snapshot"
    script.one(A, RecordSnapshot(revision=10, key="s10"), applied=20)
    assert refused(script.one(A, Trim(through=10)), Code.POLICY_VIOLATION), "only one snapshot"
    script.one(A, RecordSnapshot(revision=20, key="s20"), applied=20)
    assert refused(script.one(A, Trim(through=10)), Code.POLICY_VIOLATION), "B has applied nothing"
    script.apply(B, Heartbeat(), applied=9)
    assert refused(script.one(A, Trim(through=10)), Code.POLICY_VIOLATION)
    assert script.one(A, Trim(through=9)) == Done(9)
    script.one(A, FenceIncarnation(incarnation=B))
    assert refused(script.one(A, Trim(through=11)), Code.POLICY_VIOLATION), "above the second-newest snapshot"
    assert script.one(A, Trim(through=10)) == Done(10)
    assert script.state.trimmed_through == 10


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("further", [0, 1])
def test_trim_waits_for_nobody_for_ever(level: int, further: int) -> None:
    """B says nothing, or goes on saying the same, while the log grows: it would fill etcd."""
    script = Script()
    for author in (A, B):
        script.register(author, level=level)
    for revision in (TRIM_LAG_MAX + 20, TRIM_LAG_MAX + 30):
        script.entries.append(LogEntry(revision, 0, 0, b""))  # so far the log has grown
        script.one(A, RecordSnapshot(revision=revision, key=f"s{revision}"), applied=revision)
    script.apply(B, Heartbeat(), applied=script.entries[-1].revision + 1 - TRIM_LAG_MAX - further)
    behind = script.state.revision - script.state.incarnations[B].applied_revision
    assert behind == TRIM_LAG_MAX + further
    waits = not further or level == 1
    applied = script.state.incarnations[B].applied_revision
    assert trim_bound(script.state) == (applied if waits else TRIM_LAG_MAX + 20)
    answer = script.one(A, Trim(through=TRIM_LAG_MAX + 20))
    assert refused(answer, Code.POLICY_VIOLATION) == waits


def test_three_snapshots_count(script: Script) -> None:
    for _ in range(20):
        script.apply(A, Heartbeat())
    for revision in (3, 5, 7):
        assert script.one(A, RecordSnapshot(revision=revision, key=f"s{revision}")) == Done(())
    assert script.one(A, RecordSnapshot(revision=9, key="s9")) == Done(("s3",))
    assert refused(script.one(A, RecordSnapshot(revision=9, key="x")), Code.INVALID_UPDATE_VERSION)
    assert refused(script.one(A, RecordSnapshot(revision=999, key="x")), Code.INVALID_UPDATE_VERSION)


# Changes in parts (rule 12).


def large(script: Script, topics: int, part_bytes: int = 64) -> list:
    commands = [
        command(CreateTopic(name=f"t{n}", topic_id=b"%016d" % n, partitions=1)) for n in range(topics)
    ]
    return [getattr(c, c.WhichOneof("kind")) for c in split_large(commands, 5, part_bytes)]


def test_a_change_in_parts_is_invisible_until_its_end(script: Script) -> None:
    *steps, end = large(script, 50)
    for step in steps:
        assert script.one(A, step) == Done()
    assert not script.state.topics
    script.through_snapshot()
    result = script.one(A, end)
    assert isinstance(result, Done)
    assert [r.value for r in result.value] == [b"%016d" % n for n in range(50)]
    assert len(script.state.topics) == 50
    assert not script.state.pending


@pytest.mark.parametrize("killed_after", range(8))
def test_a_change_whose_author_dies_at_any_step_never_was(script: Script, killed_after: int) -> None:
    steps = large(script, 10, part_bytes=32)
    assert len(steps) > 8
    for step in steps[:killed_after]:
        script.one(A, step)
    script.one(B, FenceIncarnation(incarnation=A))
    assert not script.state.pending
    for step in steps[killed_after:]:
        assert refused(script.one(A, step), Code.STALE_BROKER_EPOCH)
    assert not script.state.topics


def test_wrong_parts_end_a_change(script: Script) -> None:
    script.one(A, Begin(id=1))
    assert refused(script.one(A, Begin(id=1)), Code.INVALID_REQUEST)
    assert refused(script.one(A, Part(id=1, index=1, content=b"")), Code.INVALID_REQUEST)
    assert refused(script.one(A, Part(id=1, index=0, content=b"")), Code.INVALID_REQUEST), "it is dropped"
    script.one(A, Begin(id=2))
    assert refused(script.one(A, End(id=2, parts=3)), Code.INVALID_REQUEST)
    script.one(A, Begin(id=3))
    assert refused(script.one(B, Abort(id=3)), Code.INVALID_REQUEST), "it is A's"
    assert script.one(A, Abort(id=3)) == Done()
    script.apply(A, Begin(id=4), Part(id=4, content=b"\xff"))
    assert refused(script.one(A, End(id=4, parts=1)), Code.INVALID_REQUEST), "garbage stops no replica"
    nested = [getattr(c, c.WhichOneof("kind")) for c in split_large([command(Begin(id=9))], 4, 99)]
    assert refused(script.apply(A, *nested).results[-1], Code.INVALID_REQUEST)
    for number in range(4):
        script.one(A, Begin(id=10 + number))
    assert refused(script.one(A, Begin(id=20)), Code.POLICY_VIOLATION)


# What stops an agent.


def test_an_entry_that_contradicts_the_log_stops_the_agent(script: Script) -> None:
    good = script.entry(A, [Heartbeat()])
    wrong = [
        LogEntry(good.revision, B, 2, good.payload),
        LogEntry(good.revision, A, 3, good.payload),
        LogEntry(1, A, 2, good.payload),
        LogEntry(good.revision, A, 2, b"\xff\xff"),
    ]
    for entry in wrong:
        with pytest.raises(InvariantBroken):
            script.state.apply(entry)
    assert script.state.apply(good).results == (Done(),)


def test_a_gap_in_an_authors_chain_stops_the_agent(script: Script) -> None:
    script.entry(A, [Heartbeat()])
    with pytest.raises(InvariantBroken, match="follows entry 1"):
        script.apply(A, Heartbeat())


def test_an_unknown_command_stops_the_agent_before_anything_changes(script: Script) -> None:
    before = script.state.hash
    known = Entry(
        format=1, incarnation=A, sequence=2, commands=[command(Claim(name="x"))]
    ).SerializeToString()
    unknown = b"\x32\x03\xca\x3e\x00"  # a command of kind 1001
    with pytest.raises(UnknownCommand, match="at least as new"):
        script.state.apply(LogEntry(3, A, 2, known + unknown))
    assert (script.state.claims, script.state.hash) == ({}, before)
    with pytest.raises(UnknownCommand, match="format 2"):
        script.state.apply(LogEntry(3, A, 2, Entry(format=2, incarnation=A, sequence=2).SerializeToString()))


def test_feature_levels(script: Script) -> None:
    assert refused(script.one(A, SetFeatureLevel(level=LEVEL_MAX)), Code.INVALID_UPDATE_VERSION)
    next_level = SetFeatureLevel(level=LEVEL_MAX + 1)
    assert refused(script.one(A, next_level), Code.FEATURE_UPDATE_FAILED), "B does not know it"
    old = RegisterAgent(name="future", node_id=-1, feature_min=LEVEL_MAX + 1, feature_max=LEVEL_MAX + 2)
    assert refused(script.one(13, old), Code.UNSUPPORTED_VERSION)


def test_a_level_above_this_code_stops_the_agent() -> None:
    script = Script()
    script.register(A)
    script.one(A, FenceIncarnation(incarnation=A))
    newer = RegisterAgent(name="newer", node_id=-1, feature_min=1, feature_max=LEVEL_MAX + 1)
    script.one(B, newer)
    with pytest.raises(UnsupportedFeature, match=f"level to {LEVEL_MAX + 1}"):
        script.one(B, SetFeatureLevel(level=LEVEL_MAX + 1))


# The rolling hash.


def test_the_hash_follows_the_log_and_every_outcome(script: Script) -> None:
    script.topic(A, "t")
    seen = {script.state.hash}
    for _ in range(5):
        script.commit(A, (0, 1))
        seen.add(script.state.hash)
    assert len(seen) == 6
    other = script.replayed()
    assert other.hash == script.state.hash
    assert other.hash_at(4) == script.state.hash_at(4) != other.hash
    assert State().hash_at(0) == State().hash


def test_the_hash_sees_a_result_that_differs(script: Script) -> None:
    script.topic(A, "t")
    other = script.replayed()
    other.partitions[0].high_watermark = 1  # what a broken replica might hold
    entry = script.entry(A, [chunk(1, (0, 1))])
    assert isinstance(script.state.apply(entry).results[0], ChunkCommitted)
    other.apply(entry)
    assert other.hash != script.state.hash
