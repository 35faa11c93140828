"""Plans of KIP-848 that are long are made in a thread: by what is wanted as well, not only what is owned."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

import pytest

from agent.kafka.groups.consumer import runner as runners
from agent.kafka.groups.consumer.topics import NAMES_PER_PARTITION, wanted_partitions
from agent.net.wire.generated import join_group as jg
from coordination.kafka_codes import Code
from tests.equipment.group_members import subscription
from tests.unit.agent.kafka.groups.conftest import StartGroups
from tests.unit.agent.kafka.groups.kip848 import Member


@pytest.fixture
def planned_in(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each plan, whether it was made beside the loop; three partitions are very many."""
    beside: list[bool] = []
    really = runners.plan_all

    def plan_all(*args: Any) -> int:
        beside.append(threading.current_thread() is not threading.main_thread())
        return really(*args)

    monkeypatch.setattr(runners, "plan_all", plan_all)
    monkeypatch.setattr(runners, "OFFLOAD_FROM", 3)
    return beside


@pytest.mark.parametrize("wishes", [{"topics": ("t",)}, {"regex": "t"}], ids=["names", "pattern"])
async def test_the_first_plan_of_a_large_subscription_is_made_beside_the_loop(
    begin: StartGroups, planned_in: list[bool], wishes: dict[str, Any]
) -> None:
    """Nobody owns anything yet."""
    agent = await begin()
    assert await Member("g", "a" * 22, **wishes).beat(agent) is Code.NONE
    assert planned_in == [True]


async def test_so_is_that_of_a_classic_member_that_joins(begin: StartGroups, planned_in: list[bool]) -> None:
    """The group of KIP-848 wanted nothing before."""
    agent = await begin()
    await Member("g", "a" * 22, ("none",)).beat(agent)
    mine = [jg.JoinGroupRequestProtocol("range", subscription(["t"]))]
    request = jg.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", mine)
    answer = await agent.call("JoinGroup", request, 3)
    assert answer.error_code == Code.NONE
    assert planned_in == [False, True]


async def test_a_small_plan_is_made_at_once(begin: StartGroups, planned_in: list[bool]) -> None:
    agent = await begin()
    await Member("g", "a" * 22, ("none",)).beat(agent)
    assert planned_in == [False]


class Topics:
    """Each topic has ten partitions; how often they were asked for."""

    asked = 0

    def find(self, name: str) -> tuple[bytes, int] | None:
        self.asked += 1
        return name.encode(), 10

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id.decode()

    def matching(self, regex: str, view: Hashable = None) -> tuple[str, ...]:
        return ("x", "y")

    def view(self, member_id: str) -> Hashable:
        return None


def test_what_is_wanted_is_counted_once_and_not_beyond_what_counts() -> None:
    topics = Topics()
    wishes = [(("a", "b"), None), (("b",), "x|y"), (("a",), "")]
    assert wanted_partitions(topics, wishes, 1_000) == 40
    assert wanted_partitions(topics, wishes, 15) == 15
    topics.asked = 0
    assert wanted_partitions(topics, [([str(n) for n in range(9_999)], None)], 100) == 100
    assert topics.asked == 10
    alike = [(("a",), None)] * 9_999  # looking at names takes time, too
    assert wanted_partitions(topics, alike, 9_999 // NAMES_PER_PARTITION) == 9_999 // NAMES_PER_PARTITION
    assert wanted_partitions(topics, alike, 9_999) == 10
