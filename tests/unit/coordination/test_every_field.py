"""Every field of every class of the state goes through a snapshot, whoever adds it (freeze*.py, thaw.py).

One state has something in every field: which fields there are is found by reflection, so that a new one
fails here until it is set, and then until it is frozen and thawed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from coordination.commands import (
    AbortTransaction,
    AclBinding,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    AssignClassicGeneration,
    Begin,
    BindSchema,
    ChangeConsumerGroup,
    Claim,
    ClassicMember,
    CommitOffsets,
    CommitTable,
    ConsumerAssignment,
    ConsumerMember,
    ConsumerTarget,
    CreateAcls,
    CreateDelegationToken,
    DeleteSchemaVersions,
    DeleteTopic,
    Fence,
    FenceIncarnation,
    GivenPartitions,
    JudgeAgent,
    LeaveMetadata,
    Listener,
    MoveLogStart,
    Part,
    PutClassicGeneration,
    PutNamespace,
    PutScramCredential,
    PutSubjectSettings,
    RegisterAgent,
    RegisterSchema,
    SchemaReference,
    SkipDamaged,
    UpdateFeatures,
    config_entries,
)
from coordination.proto import snapshot_pb2 as pb
from coordination.snapshot import decode, encode
from coordination.state import (
    ChunkCommitted,
    Done,
    Refused,
    State,
    UnsupportedFeature,
    freeze_partitions,
    leaving,
)
from coordination.state.freeze import freeze_now, sections
from coordination.state.slices import ROW_BYTES
from coordination.state.thaw import BadSnapshot, Thaw
from coordination.state.types import SnapshotRecord
from tests.unit.coordination.kit import A, B, Producer, Script, chunk, for_good, swap
from tests.unit.coordination.reflect import attributes, objects, plain

Set = AlterTopicConfigs.Change
Update = UpdateFeatures.Update
TOPIC = b"t".ljust(16, b".")

ONLY_IN_MEMORY = {
    ("State", "_hashes"): "of revisions gone by",
    ("SliceIndex", "_chunks"): "the state's own table",
    ("SliceIndex", "head"): "bytes that are dead: a snapshot leaves them out",
}
"""Attributes that no snapshot has, with the reason."""


def full() -> State:
    """A state in which every field of every class holds something, through commands as far as they go."""
    script = Script()
    script.now_ms += 5
    register(script)
    topics(script)
    tables(script)
    groups(script)
    transactions(script)
    schemas(script)
    registry(script)
    logins(script)
    acls(script)
    limits(script)
    holds(script)
    rest(script)
    return script.state


def logins(script: Script) -> None:
    """Two credentials of one user, and a token of it."""
    for mechanism, size in ((1, 32), (2, 64)):
        put = PutScramCredential(
            user="u", mechanism=mechanism, iterations=4096, salt=b"s", stored_key=b"k" * size,
            server_key=b"l" * size, secret=bytes([mechanism]) * 32,
        )  # fmt: skip
        assert script.one(A, put) == Done()
    token = CreateDelegationToken(
        token_id="t", owner="u", requester="r", renewers=["v", "w"], lifetime_ms=90_000, renew_ms=60_000
    )
    assert script.one(A, token) == Done()


def acls(script: Script) -> None:
    """One by name, one by the beginning of names."""
    rows = [
        AclBinding(
            resource_type=2, pattern_type=pattern, name="t", principal="User:u", host="*", operation=3,
            permission=3,
        )
        for pattern in (3, 4)
    ]  # fmt: skip
    assert script.one(A, CreateAcls(acls=rows)) == Done(2)


def limits(script: Script) -> None:
    """Quotas of a user, of a user's client, of the default client, and of an address."""
    key, of_ip = "producer_byte_rate", "connection_creation_rate"
    for alter in (
        AlterClientQuotas(user="u", changes=[AlterClientQuotas.Change(key=key, value=2.0)]),
        AlterClientQuotas(client_id="", changes=[AlterClientQuotas.Change(key=key, value=3.0)]),
        AlterClientQuotas(user="v", client_id="c", changes=[AlterClientQuotas.Change(key=key, value=3.0)]),
        AlterClientQuotas(ip="::1", changes=[AlterClientQuotas.Change(key=of_ip, value=4.0)]),
    ):
        assert script.one(A, alter) == Done()


def register(script: Script) -> None:
    """Agents: live, joining, fenced, gone from Metadata, and one that says that it is unwell."""
    script.register(A)
    agent = RegisterAgent(
        name="b", node_id=7, zone="z", http_address="h:1", version="v", feature_min=1, feature_max=2,
        roles=["fetch"], peer_address="p:2", joining=True, listeners=[Listener(name="l", host="h", port=3)],
    )  # fmt: skip
    script.one(B, agent)
    for number in (13, 14, 15):
        script.register(number)
    script.one(A, FenceIncarnation(incarnation=13))
    script.one(14, LeaveMetadata())
    for one in script.state.brokers.values():
        if one.incarnation == 15:
            unwell(script, one.incarnation)


def unwell(script: Script, incarnation: int) -> None:
    """The agent cannot do its work."""
    assert script.one(incarnation, JudgeAgent(incarnation=incarnation, unwell="disk full")) == Done()


def topics(script: Script) -> None:
    """Partitions with rows, producers, merged ranges and garbage of each kind."""
    script.topic(A, "t", 3)
    script.topic(A, "gone", 1)
    script.topic(A, "old", 1)
    for number in range(12):
        script.commit(A, (0, 3, 7, 1, 3 * number), (1, 2), (3, 1), timestamps=[number, 5, 1])
        script.commit(B, (4, 1))
    script.commit(A, (1, 2, 9, 0, 3))
    script.one(A, MoveLogStart(partition=[0], offset=[4]))
    for number, (handle, end) in enumerate(((0, 9), (0, 18), (1, 4), (1, 8), (4, 2))):
        released = ((A, 5),) if number == 3 else ()
        message = swap(script.state, handle, number + 1, end, released=released)
        message.merged.first_dirty_offset, message.merged.clean_bytes = 3, 4
        assert script.one(A, message) == Done()
    for_good(script)
    script.one(A, DeleteTopic(name="gone"))
    script.one(A, DeleteTopic(name="old"))
    change = Set(name="retention.ms", value="5")
    script.apply(A, AlterTopicConfigs(topic="t", changes=[change]), AlterClusterConfigs(changes=[change]))


def tables(script: Script) -> None:
    """A namespace and a table."""
    script.one(A, PutNamespace(name="floe", properties=config_entries({"a": "b"})))
    script.one(
        A, CommitTable(namespace="floe", name="t", metadata_location="m", topic="t", next_offsets=[1, 2, 0])
    )


def schemas(script: Script) -> None:
    """Schemas of the topic's keys and values, the second version of one, with a record judged by them."""
    for content, role, tombstones in ((b"d", 1, True), (b"e", 1, True), (b"f", 0, False)):
        bind = BindSchema(
            topic="t", role=role, descriptor_set=content, message="M", framing=2, tombstones=tombstones
        )
        script.one(A, bind)
    written = chunk(20, (0, 1))
    written.judged_revision = script.state.revision
    assert isinstance(script.one(A, written), ChunkCommitted)


def registry(script: Script) -> None:
    """Subjects in two contexts, versions deleted and not, one that refers to another, settings."""
    first = RegisterSchema(
        subject="s", schema_type="T", text="t", canonical=b"c", metadata="{}", rule_set="[]",
        judged_revision=1 << 40,
    )  # fmt: skip
    assert script.one(A, first) == Done((4, 1))
    second = RegisterSchema(
        subject=":.x:s", schema_type="T", text="u", canonical=b"d", judged_revision=1 << 40,
        references=[SchemaReference(name="a", subject="s", version=1)],
    )  # fmt: skip
    assert script.one(A, second) == Done((5, 1))
    third = RegisterSchema(subject="s", schema_type="T", canonical=b"e", judged_revision=1 << 40)
    assert script.one(A, third) == Done((6, 2))
    assert script.one(A, DeleteSchemaVersions(subject="s", version=[2])) == Done((2,))
    script.topic(A, "follows")
    follow = BindSchema(topic="follows", subject="s", subject_version=1, message="M")
    assert script.one(A, follow) == Done(7)
    for scope, settings in (
        ("s", PutSubjectSettings(compatibility=PutSubjectSettings.FULL, compatibility_group="g")),
        ("a", PutSubjectSettings(alias="s")),
        (":.x:", PutSubjectSettings(normalize=PutSubjectSettings.ON, mode=PutSubjectSettings.READONLY)),
    ):
        settings.scope = scope
        assert isinstance(script.one(A, settings), Done)


def groups(script: Script) -> None:
    """A classic group with members, one of KIP-848 with members of both protocols, and positions."""
    member = ClassicMember(
        member_id="m", instance_id="i", client_id="c", client_host="h", session_timeout_ms=5,
        rebalance_timeout_ms=6, protocols=[ClassicMember.Protocol(name="range", metadata=b"x")],
    )  # fmt: skip
    put = PutClassicGeneration(group="c", protocol_type="p", protocol="range", leader="m", members=[member])
    assert script.one(A, put) == Done((1, script.state.revision))
    given = AssignClassicGeneration(
        group="c", expected_revision=script.state.revision, member_id=["m"], assignment=[b"y"]
    )
    assert script.one(A, given) == Done((1, script.state.revision))
    other = PutClassicGeneration(group="d", protocol_type="p", leader="m", members=[member])
    assert script.one(A, other) == Done((1, script.state.revision))
    commit = CommitOffsets(
        group="c", generation=1, member_id="m", instance_id="i", partition=[0, 1], offset=[5, 6],
        leader_epoch=[2, 3], metadata=["n", ""], retention_ms=1000,
    )  # fmt: skip
    assert script.one(A, commit) == Done()
    said = ConsumerMember(
        member_id="k", instance_id="s", rack="r", client_id="c", client_host="h", rebalance_timeout_ms=9,
        topics=["t"], regex="u.*", assignor="range", classic=True, session_timeout_ms=8,
        protocols=member.protocols,
    )  # fmt: skip
    row = ConsumerAssignment(
        member_id="k",
        epoch=3,
        previous_epoch=2,
        state=1,
        assigned=[GivenPartitions(topic_id=TOPIC, partition=[0], given_at=[2])],
        revoking=[GivenPartitions(topic_id=TOPIC, partition=[1], given_at=[1])],
    )
    target = ConsumerTarget(member_id="k", partitions=[GivenPartitions(topic_id=TOPIC, partition=[0, 2])])
    change = ChangeConsumerGroup(
        group="k", group_epoch=4, assignment_epoch=3, assignment_ms=77, metadata_hash=b"#", members=[said],
        assignments=[row], targets=[target],
    )  # fmt: skip
    assert script.one(A, change) == Done()


def transactions(script: Script) -> None:
    """One that timed out, one of v1 that ended and is ongoing again, with a group's positions."""
    first = Producer(script, A, "x")
    first.init(timeout_ms=60_000)
    assert first.send(2) == (0, 0)
    assert isinstance(first.end(commit=True), Done), "kept until the table has it"
    assert first.send(2)[0] == 0
    assert isinstance(first.end(commit=False), Done)
    assert first.send(2)[0] == 0
    number = script.state.transactions["x"].number
    assert isinstance(script.one(A, AbortTransaction(transactional_id="x", number=number, forced=True)), Done)
    second = Producer(script, A, "y", v2=False)
    second.init()
    fence = Fence(connection=4, stamp=script.state.revision)
    assert second.add(0, groups=["c"], fence=fence) == Done()
    assert isinstance(second.end(commit=True, fence=fence), Done)
    young = Fence(connection=6, stamp=script.state.revision)
    assert second.add(0, 2, groups=["c"], fence=young) == Done()
    assert second.send(2)[0] == 0
    waiting = second.commit_offsets("c", (1, 9), fence=young, generation=1, member_id="m", instance_id="i")
    assert waiting == Done()
    pending = script.state.pending_offsets["c"]["y"]
    pending[1] = pending[1]._replace(leader_epoch=4, metadata="w")
    third = Producer(script, A, "z", v2=False)
    third.init()
    old, main = Fence(connection=7), Fence(connection=8, stamp=script.state.revision)
    third.add(0, fence=main)
    third.end(commit=True, fence=main)
    assert third.add(0, groups=["d"], fence=main) == Done()
    assert third.commit_offsets("d", (1, 9), fence=old) == Done()
    young = Fence(connection=9, stamp=script.state.revision)
    assert isinstance(third.commit_offsets("d", (0, 9), fence=young), Refused), "it can only be aborted"


def rest(script: Script) -> None:
    """What is small."""
    change = Set(name="consumer.session.timeout.ms", value="50000")
    script.one(A, AlterGroupConfigs(group="g", changes=[change]))
    down = Update(name="group.version", level=0, kind=Update.SAFE_DOWNGRADE)
    up = Update(name="group.version", level=1, kind=Update.UPGRADE)
    script.apply(A, UpdateFeatures(updates=[down]), UpdateFeatures(updates=[up]))
    script.apply(A, Claim(name="job"), applied=5)
    skip = SkipDamaged(partition=0, start=[8, 20], end=[9, 22], by="me")
    assert script.one(A, skip) == Done(3)
    script.apply(B, Begin(id=3), Part(id=3, content=b"abc"))
    script.one(A, chunk(99, (7 << 20, 1)))
    comes_back(script)
    leaves(script)
    script.state.snapshots.append(SnapshotRecord(3, "k", 4))
    script.state.trimmed_through = 2
    script.state.clock_doubt_ms = 6
    script.state.clock_doubt_rounds, script.state.clock_doubt_revision = 4, 2


def holds(script: Script) -> None:
    """Records below the log start that can come back."""
    change = Set(name="floe.records.grace.ms", value="1000")
    assert script.one(A, AlterTopicConfigs(topic="t", changes=[change])) == Done()
    script.one(A, MoveLogStart(partition=[0], offset=[6]))


def comes_back(script: Script) -> None:
    """A deleted topic that can come back, with a binding."""
    (handle,) = script.topic(A, "back")
    keep = AlterTopicConfigs(topic="back", changes=[Set(name="floe.delete.retention.ms", value="1000")])
    assert script.one(A, keep) == Done()
    script.one(A, BindSchema(topic="back", descriptor_set=b"g", message="M"))
    script.commit(B, (handle, 1, 7, 0, 0))
    assert isinstance(script.one(A, DeleteTopic(name="back", by="User:u")), Done)


def leaves(script: Script) -> None:
    """A deleted topic that holds much: behind all commands, since every entry lets go of some of it."""
    (handle,) = script.topic(A, "large")
    for _ in range(9):
        script.commit(B, (handle, 1))
    assert script.one(A, swap(script.state, handle, 1, 2)) == Done()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "ROWS_AT_ONCE_MAX", 3)
        script.one(A, DeleteTopic(name="large"))


FULL = full()


def test_every_field_goes_through_a_snapshot() -> None:
    assert plain(decode(encode(FULL))) == plain(FULL)


def held() -> Iterator[tuple[type, str, list[Any]]]:
    """Every class that the state is made of, each of its attributes, and what it holds in all its objects."""
    by_class: dict[type, list[object]] = {}
    for one in objects(FULL):
        by_class.setdefault(type(one), []).append(one)
    for kind, found in by_class.items():
        for name in attributes(found[0]):
            yield kind, name, [getattr(one, name) for one in found]


HELD = list(held())


@pytest.mark.parametrize(
    ("kind", "name", "values"), HELD, ids=[f"{kind.__name__}.{name}" for kind, name, _ in HELD]
)
def test_nothing_is_left_at_its_default(kind: type, name: str, values: list[Any]) -> None:
    """A field that nobody sets is a field that nobody sees get lost. Of a flag, both values are needed."""
    if (kind.__name__, name) in ONLY_IN_MEMORY:
        return
    if isinstance(values[0], bool):
        assert {True, False} <= set(values)
        return
    nothing = [None, 0, -1, "", b"", *(d for d in [default_of(kind, name)] if d is not MISSING)]
    assert [value for value in values if not (empty(value) or value in nothing)]


def default_of(kind: type, name: str) -> Any:
    """What a dataclass puts into the field when nobody says anything."""
    if not is_dataclass(kind):
        return MISSING
    return next(field.default for field in fields(kind) if field.name == name)


def empty(value: Any) -> bool:
    """Whether a container holds nothing."""
    return not isinstance(value, Enum) and hasattr(value, "__len__") and not len(value)


INSIDE: dict[tuple[str, str], type[Message]] = {
    ("Partition", "producers"): pb.Producers,
    ("Partition", "transactions"): pb.PartitionTransactions,
}
"""Fields that hold a message as bytes."""


def messages(message: Message) -> Iterator[Message]:
    """The message and all inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                yield from messages(one)


def lose(section: Message, lost: str) -> None:
    """Take one field, by its full name, out of everything in the section."""
    for message in messages(section):
        for (kind, name), inner in INSIDE.items():
            if message.DESCRIPTOR.name == kind and getattr(message, name):
                content = inner.FromString(getattr(message, name))
                lose(content, lost)
                setattr(message, name, content.SerializeToString())
        for field in message.DESCRIPTOR.fields:
            if field.full_name == lost:
                message.ClearField(field.name)


def fields_of(*found: Message) -> Iterator[str]:
    """The full name of every field of these messages and of those inside them."""
    for one in found:
        for message in messages(one):
            yield from (field.full_name for field in message.DESCRIPTOR.fields)
            for (kind, name), inner in INSIDE.items():
                if message.DESCRIPTOR.name == kind:
                    yield from fields_of(inner.FromString(getattr(message, name)))


def in_sections() -> list[pb.Section]:
    """FULL in sections, and some partition in pieces as if it were large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freeze_partitions, "SECTION_BYTES", freeze_partitions.PRODUCER_BYTES + 2 * ROW_BYTES)
        return list(sections(freeze_now(FULL)))


WAYS = (list(sections(freeze_now(FULL))), in_sections())
FIELDS = [
    name for name in dict.fromkeys(fields_of(*WAYS[0], *WAYS[1])) if name != "floe.snapshot.v1.Section.tail"
]


@pytest.mark.parametrize("lost", FIELDS, ids=lambda name: name.removeprefix("floe.snapshot.v1."))
def test_a_field_that_is_lost_is_missed(lost: str) -> None:
    """Freezing that forgets one field, whichever: the state is another, or does not load."""
    assert any(is_missed(lost, way) for way in WAYS)


def is_missed(lost: str, way: list[pb.Section]) -> bool:
    """Whether these sections without the field do not make the state that they were made of."""
    thaw = Thaw()
    try:
        for section in way:
            copy = pb.Section()
            copy.CopyFrom(section)
            lose(copy, lost)
            if copy.WhichOneof("kind") is not None:
                thaw.take(copy)
    except (BadSnapshot, UnsupportedFeature, KeyError, IndexError, ValueError):
        return True
    return plain(thaw.state) != plain(FULL)


def test_every_message_of_a_snapshot_is_looked_into() -> None:
    """FULL has one of each, so the test above has lost a field of each."""
    known = {name.rpartition(".")[0] for name in FIELDS}

    def of(descriptor: Descriptor) -> Iterator[str]:
        yield descriptor.full_name
        for inner in descriptor.nested_types:
            yield from of(inner)

    written = {name for one in pb.DESCRIPTOR.message_types_by_name.values() for name in of(one)}
    assert known == written


def test_what_no_snapshot_has_is_there() -> None:
    """A row for an attribute that is gone would hide the next one of that name."""
    known = {(kind.__name__, name) for kind, name, _ in HELD} | {("State", "_hashes")}
    assert set(ONLY_IN_MEMORY) <= known
