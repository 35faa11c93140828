"""Registering, again and for the last time: who may, who must not, and what a full log leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordination.chain import AttemptFailed
from coordination.commands import command
from coordination.log import Full
from coordination.memory_log import MemoryChain
from coordination.replica import Superseded
from coordination.replica.proposals import Line, Results
from coordination.state import Done
from tests.unit.coordination.conftest import Agents, registration, until
from tests.unit.coordination.test_replica import topic


async def test_who_lost_its_lease_hears_of_its_successor_before_it_registers_again(agents: Agents) -> None:
    """Else two processes of one name would end each other for ever."""
    first = await agents.start("same", heartbeat_s=60, members_s=60)
    old, link = first.incarnation, agents.logs["same"].faults
    link.delivery_delay_s = 0.2
    second = await agents.start("same")
    agents.server.expire(old)
    assert first.incarnation == old, "it has not heard of the second one"
    first.submit([command(topic("t"))])
    await until(lambda: first.failed.done() or second.failed.done())
    assert not second.failed.done()
    assert isinstance(first.failed.exception(), Superseded)
    assert len(second.state.incarnations) == 2
    assert isinstance(await second.propose(topic("t")), Done)


async def test_an_earlier_process_of_this_name_that_is_fenced_is_no_other_process(agents: Agents) -> None:
    """It is in the state for a while; an agent that was started anew may lose its lease as any other."""
    await (await agents.start("same")).stop()
    a = await agents.start("same")
    assert [one.live for one in a.state.incarnations.values()] == [False, True]
    first = a.incarnation
    await agents.logs["same"].fence(first)
    await until(lambda: a.failed.done() or a.incarnation not in (0, first))
    assert not a.failed.done()
    assert isinstance(await a.propose(topic("t")), Done)


async def test_who_is_stopping_does_not_register_again(agents: Agents) -> None:
    """Its last entry gets no answer and its lease ends: nobody would end a new incarnation for it."""
    a = await agents.start("a", heartbeat_s=60, members_s=60)
    b = await agents.start("b", heartbeat_s=60, members_s=60)
    link, old = agents.logs["a"].faults, a.incarnation
    link.lose_requests = 1
    stopping = asyncio.ensure_future(a.stop())
    await until(lambda: link.lose_requests == 0)
    agents.server.expire(old)
    await stopping
    await b.barrier()
    assert [number for number, one in b.state.incarnations.items() if one.name == "a"] == [old]


async def test_what_a_full_log_refused_leaves_no_gap_behind_itself(agents: Agents) -> None:
    """The next entry takes its number: else its answer would be waited for under another."""
    a = await agents.start("a", heartbeat_s=60, members_s=60)
    agents.logs["a"].faults.full = True
    with pytest.raises(Full):
        await a.propose(topic("t"))
    agents.logs["a"].faults.full = False
    before = a.state.incarnations[a.incarnation].sequence
    assert isinstance(await asyncio.wait_for(a.propose(topic("t")), 4), Done)
    assert a.state.incarnations[a.incarnation].sequence == before + 1


async def test_what_a_full_log_refused_is_not_overtaken_by_what_was_queued_behind_it(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 9002000 of the simulation: room came between the two, and the second landed without the first."""
    a = await agents.start("a", heartbeat_s=60, members_s=60)
    line, real = Line(), MemoryChain._attempt
    behind: list[Results] = []

    async def refused_once(chain: MemoryChain, *given: Any) -> Any:
        if behind:
            return await real(chain, *given)
        behind.append(a.submit([command(topic("second"))], line=line))
        raise AttemptFailed("NOSPACE", ambiguous=False, full=True)

    monkeypatch.setattr(MemoryChain, "_attempt", refused_once)
    first = a.submit([command(topic("first"))], line=line)
    with pytest.raises(Full):
        await first
    with pytest.raises(Full):
        await behind[0]
    assert isinstance(await a.propose(topic("another")), Done), "who stands in no line is not concerned"
    assert sorted(a.state.topics) == ["another"]


async def test_who_registers_waits_while_the_log_is_full(agents: Agents) -> None:
    a = agents.make("a")
    agents.logs["a"].faults.full = True
    starting = asyncio.ensure_future(a.start(registration("a")))
    await until(lambda: a.status()["last_error"] or starting.done())
    agents.logs["a"].faults.full = False
    await asyncio.wait_for(starting, 10)
    assert a.ready
    assert isinstance(await a.propose(topic("t")), Done)
