"""Whoever asked a group that is given up while the log is being asked hears of it at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import Join, Joined, Limits, Synced
from coordination.kafka_codes import Code
from tests.equipment.group_members import subscription

GONE, PROTOCOLS = Code.NOT_COORDINATOR, ("consumer", "range")
JOIN = Join(
    "", None, "c", "/h", 10, 20, "consumer", (("range", subscription(["t"])),), "first", id_required=False
)


def joined_by_two(*instances: str | None) -> tuple[ClassicGroup, list[Joined]]:
    """A group whose first generation the log has just decided on; its members first and second."""
    group, answers = ClassicGroup("g", lambda: Limits(initial_delay_s=0)), list[Joined]()
    for new_id, instance in zip(("first", "second"), instances, strict=True):
        group.join(0, replace(JOIN, new_id=new_id, instance_id=instance), answers.append)
    group.tick(0)  # waits once more, as somebody came
    group.tick(0)
    group.decided(0, 1, 1)
    assert [(each.code, each.generation) for each in answers] == [(Code.NONE, 1)] * 2
    return group, answers


def test_a_static_member_that_returns_is_told_of_the_end_of_its_coordinator() -> None:
    """Its place was being asked of the log: it is no member yet, and waits all the same."""
    group, answers = joined_by_two("i", "j")
    group.sync(0, "first", "i", 1, PROTOCOLS, [("first", b"1"), ("second", b"2")], lambda _: None)
    group.decided(0, 1, 2)
    group.join(1, replace(JOIN, new_id="again", instance_id="j"), answers.append)
    assert group.busy
    group.abandon(GONE)
    assert [each.code for each in answers[2:]] == [GONE]


def test_a_timer_that_waits_for_the_log_revives_no_group_that_was_given_up() -> None:
    """Behind it a follower waits for its assignment, and an administrator for the end of all changes."""
    group, _ = joined_by_two(None, None)
    told: list[Any] = []
    group.sync(0, "first", None, 1, PROTOCOLS, [("first", b"1"), ("second", b"2")], told.append)
    group.tick(0)
    group.sync(0, "second", None, 1, PROTOCOLS, [], told.append)
    group.when_settled(lambda: told.append("settled"))
    assert (group.busy, told) == (True, [])
    group.abandon(GONE)
    assert not group.busy
    assert told == [Synced(GONE), Synced(GONE), "settled"]
    group.rebalance(1)
    assert not group.busy
