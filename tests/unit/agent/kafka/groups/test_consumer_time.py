"""The clock of the groups of KIP-848 at an agent: each one's is its own, and a quiet group costs nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable

import pytest

from agent.kafka.groups.consumer import patterns
from agent.kafka.groups.consumer import runner as runners
from agent.kafka.groups.consumer.sessions import Key, Sessions
from coordination.kafka_codes import Code
from objectstore.tasks import DEFECTS
from tests.unit.agent.kafka.groups.conftest import StartGroups, quick_sessions, settings
from tests.unit.agent.kafka.groups.kip848 import Member, data_of
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

SESSION_MS = 200


@pytest.fixture
async def agent(begin: StartGroups) -> AsyncIterator[Agent]:
    one = await begin()
    await quick_sessions(one, SESSION_MS)
    one.services.consumer_groups.start()
    yield one
    await one.services.consumer_groups.stop()


async def test_a_group_with_too_many_requests_does_not_stop_the_clock_of_others(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own late member is proposed again a while later, when there is room."""
    under_way, go_on = asyncio.Event(), threading.Event()
    loop, told = asyncio.get_running_loop(), DEFECTS.counts.total()

    def slow(regex: str, topics: Iterable[str]) -> tuple[str, ...]:
        loop.call_soon_threadsafe(under_way.set)
        go_on.wait(30)
        return ()

    late, other = Member("busy", "a" * 22, ("t",)), Member("other", "b" * 22, ("t",))
    await late.beat(agent)
    monkeypatch.setattr(patterns, "matching", slow)
    monkeypatch.setattr(runners, "WORKS_MAX", 1)
    asked = [asyncio.create_task(Member("busy", "c" * 22, regex="slow").beat(agent))]
    await under_way.wait()
    asked.append(asyncio.create_task(Member("busy", "d" * 22, ("t",)).beat(agent)))
    await until(lambda: agent.services.consumer_groups.runner("busy")._queue)
    assert await Member("busy", "e" * 22, ("t",)).beat(agent) is Code.COORDINATOR_NOT_AVAILABLE
    await other.beat(agent)
    await until(lambda: not data_of(agent, "other").members)
    assert DEFECTS.counts.total() == told
    go_on.set()
    await asyncio.gather(*asked)


async def test_what_one_group_raises_does_not_stop_the_clock_of_others(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = Member("bad", "a" * 22, ("t",)), Member("good", "b" * 22, ("t",))
    await bad.beat(agent)
    await good.beat(agent)
    broken, told = agent.services.consumer_groups.runner("bad").sessions, DEFECTS.counts.total()
    really = Sessions.take_due

    def take_due(self: Sessions, now: float) -> list[Key]:
        if self is broken:
            raise RuntimeError("odd")
        return really(self, now)

    monkeypatch.setattr(Sessions, "take_due", take_due)
    await until(lambda: not data_of(agent, "good").members)
    assert DEFECTS.counts.total() > told
    assert data_of(agent, "bad").members
    monkeypatch.setattr(Sessions, "take_due", really)
    await until(lambda: not data_of(agent, "bad").members)


async def test_a_group_in_which_nothing_is_due_is_not_looked_at(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock looks at the one whose member is late, however many others run."""
    await settings(agent, group_consumer_session_timeout_ms="45000")
    for number in range(20):
        await Member(f"quiet{number}", "a" * 22, ("t",)).beat(agent)
    looked: list[Sessions] = []
    really = Sessions.take_due

    def take_due(self: Sessions, now: float) -> list[Key]:
        looked.append(self)
        return really(self, now)

    monkeypatch.setattr(Sessions, "take_due", take_due)
    await settings(agent, group_consumer_session_timeout_ms=str(SESSION_MS))
    for group in ("late", "later"):  # by the first one's time the others have been looked at when they began
        looked.clear()
        late = Member(group, "a" * 22, ("t",))
        await late.beat(agent)
        sessions = agent.services.consumer_groups.runner(group).sessions
        await until(lambda: agent.services.consumer_groups.running() == 20)
    assert set(looked) == {sessions}


async def test_a_group_without_members_does_not_run(agent: Agent) -> None:
    """Neither one that the last member has left, nor one that somebody asked for who is in none."""
    groups = agent.services.consumer_groups
    await settings(agent, group_consumer_session_timeout_ms="45000")
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    await one.beat(agent, -1)
    assert await Member("nowhere", "a" * 22).beat(agent, 5) is Code.GROUP_ID_NOT_FOUND
    await until(lambda: not groups.running())
