"""Consumer groups at apply: who may change a group, who may commit, what is forgotten and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordination.commands import (
    AssignClassicGeneration,
    ClassicMember,
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DeleteTopic,
    ExpireOffsets,
    PutClassicGeneration,
    ReplaceClassicMember,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, Result
from coordination.state import groups as rules
from coordination.state.consumer_protocol import subscribed_topics
from coordination.state.group_types import CommittedOffset, OffsetTable
from tests.equipment.group_members import subscription
from tests.unit.coordination.kit import Script, for_good

A, B = 101, 102
DAY_MS = 86_400_000


@pytest.fixture
def script() -> Script:
    """Two agents and a topic with three partitions, handles 0 to 2."""
    script = Script()
    script.register(A)
    script.register(B)
    script.topic(A, "t", 3)
    return script


def member(name: str, *topics: str, instance: str | None = None) -> ClassicMember:
    metadata = subscription(topics or ("t",))
    return ClassicMember(
        member_id=name,
        instance_id=instance,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=[ClassicMember.Protocol(name="range", metadata=metadata)],
    )


def put(
    script: Script,
    *members: ClassicMember,
    author: int = A,
    expected: int | None = None,
    kind: str = "consumer",
) -> Result:
    known = rules.revision_of(script.state, "g") if expected is None else expected
    return script.one(
        author,
        PutClassicGeneration(
            group="g",
            expected_revision=known,
            protocol_type=kind,
            protocol="range" if members else "",
            leader=members[0].member_id if members else "",
            members=members,
        ),
    )


def assign(script: Script, *, author: int = A, expected: int | None = None, **shares: bytes) -> Result:
    known = rules.revision_of(script.state, "g") if expected is None else expected
    return script.one(
        author,
        AssignClassicGeneration(
            group="g", expected_revision=known, member_id=list(shares), assignment=list(shares.values())
        ),
    )


def stable(script: Script, *members: ClassicMember, kind: str = "consumer") -> int:
    """A generation with its assignments; its number."""
    result = put(script, *members, kind=kind)
    assert isinstance(result, Done), result
    assert isinstance(assign(script), Done)
    number: int = result.value[0]
    return number


def commit(
    script: Script,
    offsets: Sequence[int] = (5,),
    handles: Sequence[int] = (0,),
    generation: int = -1,
    member_id: str = "",
    **more: object,
) -> Result:
    command = CommitOffsets(
        group="g", generation=generation, member_id=member_id, partition=handles, offset=offsets, **more
    )
    return script.one(A, command)


def positions(script: Script) -> dict[int, int]:
    group = script.state.groups.get("g")
    return {} if group is None else {h: group.offsets.get(h).offset for h in group.offsets}


def code(result: Result) -> Code | None:
    return result.code if isinstance(result, Refused) else None


def expire(script: Script, retention_ms: int = DAY_MS) -> object:
    result = script.one(A, ExpireOffsets(retention_ms=retention_ms, group=list(script.state.groups)))
    assert isinstance(result, Done)
    return result.value


def test_of_two_coordinators_one_wins(script: Script) -> None:
    """Both saw the group at the same revision: the second is refused, and so is what it builds on that."""
    assert stable(script, member("m")) == 1
    seen = rules.revision_of(script.state, "g")
    assert put(script, member("m"), member("n"), expected=seen) == Done((2, seen + 1))
    assert code(put(script, member("m"), author=B, expected=seen)) is Code.NOT_COORDINATOR
    assert code(assign(script, author=B, expected=seen, m=b"x")) is Code.NOT_COORDINATOR
    replacing = ReplaceClassicMember(group="g", expected_revision=seen, member_id="m", member=member("o"))
    assert code(script.one(B, replacing)) is Code.NOT_COORDINATOR
    generation = script.state.groups["g"].classic
    assert (generation.generation, list(generation.members), generation.assigned) == (2, ["m", "n"], False)


def test_a_group_that_never_was_is_expected_at_zero(script: Script) -> None:
    assert code(put(script, member("m"), expected=7)) is Code.NOT_COORDINATOR
    commit(script)
    assert put(script, member("m"), expected=0) == Done((1, script.state.revision))


def test_what_is_no_generation_is_refused(script: Script) -> None:
    twice = PutClassicGeneration(group="g", leader="m", members=[member("m"), member("m")])
    assert code(script.one(A, twice)) is Code.INVALID_REQUEST
    leaderless = PutClassicGeneration(group="g", leader="x", members=[member("m")])
    assert code(script.one(A, leaderless)) is Code.INVALID_REQUEST
    assert code(assign(script, m=b"x")) is Code.INVALID_REQUEST
    large = member("m")
    large.protocols[0].metadata = bytes(rules.GENERATION_BYTES_MAX + 1)
    assert code(put(script, large)) is Code.UNKNOWN_SERVER_ERROR
    assert "g" not in script.state.groups


def test_a_static_member_goes_on_under_another_id(script: Script) -> None:
    put(script, member("a", instance="i"), member("b"))
    assign(script, a=b"share", b=b"other")
    seen = rules.revision_of(script.state, "g")
    replacing = ReplaceClassicMember(
        group="g", expected_revision=seen, member_id="a", member=member("a2", instance="i")
    )
    assert script.one(A, replacing) == Done((1, seen + 1))
    generation = script.state.groups["g"].classic
    assert (generation.leader, list(generation.members), generation.assigned) == ("a2", ["a2", "b"], True)
    assert generation.members["a2"].assignment == b"share"
    assert code(commit(script, generation=1, member_id="a", instance_id="i")) is Code.FENCED_INSTANCE_ID
    assert commit(script, generation=1, member_id="a2", instance_id="i") == Done()


def test_commits_are_decided_where_they_stand(script: Script) -> None:
    """Kafka's ClassicGroup.validateOffsetCommit, for a generation that changes under the commits."""
    assert code(commit(script, generation=1, member_id="m")) is Code.ILLEGAL_GENERATION
    newer = commit(script, generation=1, member_id="m", member_epochs_known=True)
    assert code(newer) is Code.GROUP_ID_NOT_FOUND
    assert commit(script, [3]) == Done()
    put(script, member("m"))
    assert code(commit(script, generation=1, member_id="m")) is Code.REBALANCE_IN_PROGRESS
    assign(script, m=b"")
    assert commit(script, [4], generation=1, member_id="m") == Done()
    assert code(commit(script, generation=0, member_id="m")) is Code.ILLEGAL_GENERATION
    assert code(commit(script, generation=1, member_id="x")) is Code.UNKNOWN_MEMBER_ID
    assert code(commit(script)) is Code.UNKNOWN_MEMBER_ID
    assert code(commit(script, generation=-1, member_id="m")) is Code.ILLEGAL_GENERATION
    assert code(commit(script, generation=1, member_id="m", instance_id="i")) is Code.UNKNOWN_MEMBER_ID
    put(script)
    assert code(commit(script, generation=2, member_id="m")) is Code.UNKNOWN_MEMBER_ID
    assert positions(script) == {0: 4}
    assert commit(script, [9]) == Done()


def test_commits_name_partitions_that_exist(script: Script) -> None:
    assert commit(script, [1, 2, 3], [0, 99, 2]) == Done((0, int(Code.UNKNOWN_TOPIC_OR_PARTITION), 0))
    assert positions(script) == {0: 1, 2: 3}
    assert code(script.one(A, CommitOffsets(group="g", generation=-1, partition=[1]))) is Code.INVALID_REQUEST
    only = CommitOffsets(group="other", generation=-1, partition=[99], offset=[1])
    assert isinstance(script.one(A, only), Done)
    assert "other" not in script.state.groups


def test_a_commit_held_back_does_not_overwrite_what_came_after_it(script: Script) -> None:
    """An agent was paused with it, and the group's next coordinator took a later one meanwhile."""
    stable(script, member("m"))
    late = CommitOffsets(group="g", generation=1, member_id="m", partition=[0], offset=[5])
    late.seen_revision = script.state.revision
    now = CommitOffsets(group="g", generation=1, member_id="m", partition=[0], offset=[9])
    now.seen_revision = script.state.revision
    assert script.one(B, now) == Done()
    script.through_snapshot()
    assert code(script.one(A, late)) is Code.NOT_COORDINATOR
    assert positions(script) == {0: 9}
    assert script.one(B, late) == Done(), "who stored the last ones keeps its own order"
    late.seen_revision = script.state.revision
    assert script.one(A, late) == Done()


def test_a_topic_made_anew_has_no_positions(script: Script) -> None:
    for_good(script, A)
    commit(script, [1, 2], [0, 1])
    script.one(A, DeleteTopic(name="t"))
    handles = script.topic(A, "t", 3)
    group = script.state.groups["g"]
    assert [group.offsets.get(handle) for handle in handles] == [None] * 3
    assert expire(script) == (2, 1)
    assert "g" not in script.state.groups


def test_commits_do_not_move_the_revision_of_the_membership(script: Script) -> None:
    stable(script, member("m"))
    seen = rules.revision_of(script.state, "g")
    commit(script, generation=1, member_id="m")
    assert rules.revision_of(script.state, "g") == seen


def test_retention_of_groups_without_members(script: Script) -> None:
    """From the moment when the group became empty, not from the commit (KIP-211)."""
    stable(script, member("m"))
    commit(script, generation=1, member_id="m")
    script.sleep(3 * DAY_MS)
    put(script)
    assert expire(script) == (0, 0)
    script.sleep(DAY_MS - 1)
    assert expire(script) == (0, 0)
    script.sleep(1)
    assert expire(script) == (1, 1)


def test_retention_of_groups_that_never_had_members(script: Script) -> None:
    commit(script, [1], [0])
    script.sleep(DAY_MS // 2)
    commit(script, [2], [1])
    commit(script, [3], [2], retention_ms=DAY_MS * 9)
    script.sleep(DAY_MS // 2)
    assert expire(script) == (1, 0)
    assert positions(script) == {1: 2, 2: 3}
    script.sleep(DAY_MS)
    assert expire(script) == (1, 0)
    script.sleep(DAY_MS * 9)
    assert expire(script) == (1, 1)


def test_retention_of_groups_with_members(script: Script) -> None:
    """What the members consume stays; what they consume no more goes; mid-rebalance nothing goes."""
    (other,) = script.topic(A, "other")
    commit(script, [1, 2], [0, other])
    put(script, member("m", "t"))
    script.sleep(DAY_MS)
    assert expire(script) == (0, 0)
    assign(script)
    assert expire(script) == (1, 0)
    assert positions(script) == {0: 1}


def test_retention_where_the_protocol_is_not_known(script: Script) -> None:
    commit(script)
    stable(script, member("m"), kind="connect")
    script.sleep(9 * DAY_MS)
    assert expire(script) == (0, 0)


def test_offsets_are_deleted_unless_consumed(script: Script) -> None:
    (other,) = script.topic(A, "other")
    commit(script, [1, 2, 3], [0, 1, other])
    delete = DeleteOffsets(group="g", partition=[0, 2, other, 99])
    stable(script, member("m", "t"))
    taken = int(Code.GROUP_SUBSCRIBED_TO_TOPIC)
    unknown = int(Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert script.one(A, delete) == Done((taken, taken, 0, unknown))
    assert positions(script) == {0: 1, 1: 2}
    put(script)
    assert script.one(A, delete) == Done((0, 0, 0, unknown))
    assert positions(script) == {1: 2}
    stable(script, member("m"), kind="connect")
    assert code(script.one(A, delete)) is Code.NON_EMPTY_GROUP
    nowhere = script.one(A, DeleteOffsets(group="nowhere", partition=[0]))
    assert code(nowhere) is Code.GROUP_ID_NOT_FOUND


def test_groups_are_deleted_when_nobody_is_in_them(script: Script) -> None:
    stable(script, member("m"))
    assert script.one(A, DeleteGroups(group=["g", "x"])) == Done((68, 69))
    put(script)
    assert script.one(A, DeleteGroups(group=["g", "g"])) == Done((0, 69))
    assert script.state.groups == {}


def test_groups_come_through_a_snapshot(script: Script) -> None:
    put(script, member("a", instance="i"), member("b", "t", "u"))
    assign(script, a=b"1")
    commit(script, [1, 2], [2, 0], 1, "a", metadata=["", "mine"], leader_epoch=[-1, 7], retention_ms=5)
    script.one(A, CommitOffsets(group="simple", generation=-1, partition=[1], offset=[1 << 60]))
    before, digest = script.state, canonical_digest(script.state)
    script.through_snapshot()
    assert canonical_digest(script.state) == digest
    for name, group in before.groups.items():
        after = script.state.groups[name]
        assert (after.classic, after.revision, after.state_ms, after.kind) == (
            group.classic,
            group.revision,
            group.state_ms,
            group.kind,
        )
        assert group.committer == A
        assert (after.committer, after.committed_revision) == (A, group.committed_revision)
        assert [after.offsets.get(h) for h in after.offsets] == [group.offsets.get(h) for h in group.offsets]
    assert commit(script, generation=1, member_id="a", instance_id="i") == Done()


def test_a_snapshot_in_progress_does_not_see_later_commits(script: Script) -> None:
    from coordination.state.freeze import freeze_now, sections

    commit(script, [1])
    frozen = freeze_now(script.state)
    commit(script, [2])
    told = [s.group_offsets for s in sections(frozen) if s.WhichOneof("kind") == "group_offsets"]
    assert [list(each.offset) for each in told] == [[1]]


def test_many_positions_cost_little() -> None:
    """10,000 groups with 100 positions each stay far below what the state may take."""
    table = OffsetTable()
    for handle in range(1000, 0, -1):
        table.put(handle, CommittedOffset(handle, -1, "", 1))
    columns = (table.handles, table.offsets, table.epochs, table.committed_ms)
    assert sum(column.itemsize for column in columns) == 24
    assert list(table) == list(range(1, 1001))
    assert table.get(500) == CommittedOffset(500, -1, "", 1)
    assert table.get(1001) is None
    assert table.remove(500)
    assert not table.remove(500)
    assert len(table) == 999


def test_subscriptions_that_do_not_parse_name_nothing() -> None:
    whole = subscription(["a", "bc"])
    assert subscribed_topics(whole) == ("a", "bc")
    for cut in range(len(whole) - 5):
        assert subscribed_topics(whole[:cut]) is None
    assert subscribed_topics(b"\x00\x00\x7f\xff\xff\xff") is None
    assert subscribed_topics(b"\x00\x00\x00\x00\x00\x01\x00\x01\xff") is None
    assert subscribed_topics(b"\xff\xff\x00\x00\x00\x00") is None


def test_a_group_of_a_snapshot_survives_an_encode(script: Script) -> None:
    """Thawed groups are as good as applied ones: another agent that starts from the snapshot agrees."""
    stable(script, member("m"))
    other = decode(encode(script.state))
    for entry in [script.entry(A, [DeleteGroups(group=["g"])]), script.entry(A, [DeleteGroups(group=["g"])])]:
        assert script.state.apply(entry).results == other.apply(entry).results
    assert other.hash == script.state.hash
