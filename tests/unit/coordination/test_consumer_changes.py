"""Changes of groups of KIP-848 at apply: two coordinators cannot both win, and no plan is trusted blindly."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.commands import (
    ChangeConsumerGroup,
    CommitOffsets,
    ConsumerAssignment,
    ConsumerMember,
    DeleteOffsets,
    DowngradeConsumerGroup,
    GivenPartitions,
)
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, Result
from tests.unit.coordination.kit import Script
from tests.unit.coordination.reflect import plain

TOPIC = b"t".ljust(16, b".")
UNEVEN = GivenPartitions(topic_id=TOPIC, partition=[1, 2], given_at=[1])


def given(*numbers: int, at: int = 1) -> list[GivenPartitions]:
    return [GivenPartitions(topic_id=TOPIC, partition=numbers, given_at=[at] * len(numbers))]


def stands(member: str, epoch: int, *numbers: int, at: int = 1) -> ConsumerAssignment:
    return ConsumerAssignment(
        member_id=member, epoch=epoch, previous_epoch=epoch - 1, assigned=given(*numbers, at=at)
    )


class Group:
    """One group in a log of its own, of two members with a partition each, at epoch 3."""

    def __init__(self) -> None:
        self.script = Script()
        self.script.register(101)
        self.handles = self.script.topic(101, "t", 3)
        first = self.change(
            0,
            members=[
                ConsumerMember(member_id="a", topics=["t"]),
                ConsumerMember(member_id="b", topics=["t"]),
            ],
            assignments=[stands("a", 3, 0, at=2), stands("b", 3, 1, at=3)],
        )
        assert first == Done()

    @property
    def revision(self) -> int:
        return self.script.state.groups["g"].revision

    def change(self, expected: int, epoch: int = 3, **fields: Any) -> Result:
        return self.script.one(
            101,
            ChangeConsumerGroup(
                group="g", expected_revision=expected, group_epoch=epoch, assignment_epoch=epoch, **fields
            ),
        )

    def commit(self, member: str, epoch: int, *places: int, known: bool = True) -> Code:
        result = self.script.one(
            101,
            CommitOffsets(
                group="g",
                generation=epoch,
                member_id=member,
                member_epochs_known=known,
                partition=[self.handles[place] for place in places],
                offset=[7] * len(places),
            ),
        )
        return result.code if isinstance(result, Refused) else Code.NONE


def code(result: Result) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def test_of_two_plans_on_one_revision_the_second_is_refused() -> None:
    group = Group()
    seen = group.revision
    assert group.change(seen, 4) == Done()
    assert code(group.change(seen, 4)) is Code.NOT_COORDINATOR
    assert code(group.change(0, 4)) is Code.NOT_COORDINATOR


def test_a_plan_that_gives_a_partition_twice_changes_nothing() -> None:
    group = Group()
    data = group.script.state.groups["g"].consumer
    assert data is not None
    before = data.copy()
    for rows in ([stands("a", 4, 0, 1)], [stands("a", 4, 2), stands("b", 4, 1, 2)]):
        assert code(group.change(group.revision, 4, assignments=rows)) is Code.UNKNOWN_SERVER_ERROR
        assert data == before


def test_what_one_member_gives_back_another_may_take_in_one_plan() -> None:
    group = Group()
    rows = [stands("a", 4, 0, 1), stands("b", 4, 2)]
    assert group.change(group.revision, 4, assignments=rows) == Done()
    assert group.change(group.revision, 5, removed=["b"], assignments=[stands("a", 5, 0, 1, 2)]) == Done()


def test_epochs_do_not_go_back_and_strangers_are_not_removed() -> None:
    group = Group()
    assert code(group.change(group.revision, 2)) is Code.UNKNOWN_SERVER_ERROR
    assert code(group.change(group.revision, assignments=[stands("a", 2)])) is Code.UNKNOWN_SERVER_ERROR
    assert code(group.change(group.revision, removed=["c"])) is Code.UNKNOWN_SERVER_ERROR
    assert code(group.change(group.revision, assignments=[stands("c", 3)])) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "broken",
    [
        {"assignments": [ConsumerAssignment(member_id="a", epoch=4, state=3)]},
        {"assignments": [ConsumerAssignment(member_id="a", epoch=4, state=(1 << 32) - 1)]},
        {"assignments": [ConsumerAssignment(member_id="a", epoch=4, assigned=[UNEVEN])]},
        {"assignments": [ConsumerAssignment(member_id="a", epoch=4, revoking=[UNEVEN])]},
        {"removed": ["a", "a"]},
    ],
    ids=["state 3", "no state", "uneven assigned", "uneven revoking", "removed twice"],
)
def test_a_malformed_plan_is_refused_and_changes_nothing(broken: dict[str, Any]) -> None:
    """It raised, which would have stopped every agent at that entry, for ever."""
    group = Group()
    before = plain(group.script.state.groups)
    assert code(group.change(group.revision, 4, **broken)) is Code.UNKNOWN_SERVER_ERROR
    assert plain(group.script.state.groups) == before


def test_an_instance_id_is_of_one_member() -> None:
    """Of two that had it, the later one was found by it, until the agent started from a snapshot."""
    group = Group()
    first = [ConsumerMember(member_id="a", topics=["t"], instance_id="i")]
    assert group.change(group.revision, 4, members=first) == Done()
    second = [ConsumerMember(member_id="b", topics=["t"], instance_id="i")]
    assert code(group.change(group.revision, 5, members=second)) is Code.UNKNOWN_SERVER_ERROR
    both = [ConsumerMember(member_id=name, instance_id="j") for name in ("x", "y")]
    assert code(group.change(group.revision, 5, members=both)) is Code.UNKNOWN_SERVER_ERROR
    swapped = [ConsumerMember(member_id="a", instance_id="j"), second[0]]
    assert group.change(group.revision, 5, members=swapped) == Done()
    after = [ConsumerMember(member_id="c", instance_id="i")]
    assert group.change(group.revision, 6, removed=["b"], members=after) == Done()
    data = group.script.state.groups["g"].consumer
    assert data is not None
    assert data.static == {"j": "a", "i": "c"}


def test_commits_need_the_epoch_or_a_partition_held_since() -> None:
    group = Group()
    assert group.commit("a", 3, 0, 2) is Code.NONE
    assert group.commit("a", 2, 0) is Code.NONE, "held since epoch 2 (KIP-1251)"
    assert group.commit("a", 1, 0) is Code.STALE_MEMBER_EPOCH
    assert group.commit("a", 2, 0, 1) is Code.STALE_MEMBER_EPOCH
    assert group.commit("b", 2, 1) is Code.STALE_MEMBER_EPOCH
    assert group.commit("a", 4, 0) is Code.STALE_MEMBER_EPOCH
    assert group.commit("c", 3, 0) is Code.UNKNOWN_MEMBER_ID
    assert group.commit("a", 3, 0, known=False) is Code.UNSUPPORTED_VERSION


def test_an_old_request_commits_only_for_a_member_that_speaks_the_classic_protocol() -> None:
    group = Group()
    speaks = ConsumerMember(member_id="a", topics=["t"], classic=True, session_timeout_ms=9_000)
    assert group.change(group.revision, members=[speaks]) == Done()
    assert group.commit("a", 3, 0, known=False) is Code.NONE
    assert group.commit("a", 2, 2, known=False) is Code.ILLEGAL_GENERATION
    assert group.commit("b", 3, 1, known=False) is Code.UNSUPPORTED_VERSION


def test_a_snapshot_keeps_members_epochs_and_owners() -> None:
    group = Group()
    other = decode(encode(group.script.state))
    assert canonical_digest(other) == canonical_digest(group.script.state)
    ours, theirs = group.script.state.groups["g"].consumer, other.groups["g"].consumer
    assert ours == theirs
    assert ours is not None
    assert ours.owners == {TOPIC: {0: "a", 1: "b"}}


def test_a_group_goes_on_as_a_classic_one() -> None:
    group = Group()
    change = DowngradeConsumerGroup(group="g", expected_revision=group.revision, generation=3, leader="a")
    assert code(group.script.one(101, change)) is Code.INVALID_REQUEST
    change.members.add(member_id="a")
    assert group.script.one(101, change) == Done(3)
    state = group.script.state.groups["g"]
    assert (state.kind, state.consumer) == ("classic", None)
    assert state.classic is not None
    assert state.classic.generation == 3
    assert code(group.script.one(101, change)) is Code.NOT_COORDINATOR


@pytest.mark.parametrize("how", [{"topics": ["t"]}, {"regex": "t.*"}], ids=["by name", "by pattern"])
def test_positions_of_what_a_member_consumes_are_not_deleted(how: dict[str, Any]) -> None:
    group = Group()
    group.script.topic(101, "u", 1)
    change = group.change(
        group.revision, members=[ConsumerMember(member_id="a", **how)], removed=["b"], epoch=3
    )
    assert change == Done()
    asked = DeleteOffsets(group="g", partition=[0, 3])
    other = 0 if "topics" in how else int(Code.GROUP_SUBSCRIBED_TO_TOPIC)  # a pattern may mean any
    assert group.script.one(101, asked) == Done((int(Code.GROUP_SUBSCRIBED_TO_TOPIC), other))
