"""How long the event loop stands still at an agent with very many groups, or with a large subscription.

Each figure is CPU time of the loop's thread, of the longest round of the event loop: what everybody else
waits for. The groups stand in the state as if they had come by the log; the rest is an agent without sockets.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated.list_groups import ListGroupsRequest
from coordination.commands import CreateTopic
from coordination.memory_server import MemoryServer
from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember
from coordination.state.data import StateData
from coordination.state.group_types import CONSUMER, ClassicGeneration, ClassicMember, Group
from objectstore.adapters.memory import MemoryStore
from tests.bench.figure import Figure
from tests.unit.agent.rig import Agent, start_agent

STEP_MS_GOAL = 5.0
COUNTS = (10_000, 30_000)
PARTITIONS, PER_TOPIC = (10_000, 100_000), 100
SETTLE_S = 0.3  # what an agent begins with is not measured
CLOCK_S = 1.0  # the clock of the groups is watched for so long
MEMBER = "m" * 22


def classic_group(name: str) -> Group:
    """A stable group of one member."""
    member = ClassicMember(MEMBER, None, "bench", "/h", 1_800_000, 60_000, (("range", b""),), b"all")
    generation = ClassicGeneration(1, "consumer", "range", MEMBER, True, {MEMBER: member})
    return Group(name, revision=1, classic=generation)


def consumer_group(name: str) -> Group:
    """A group of KIP-848 with one member that has nothing to do."""
    data = ConsumerGroupData(1, 1)
    data.put(ConsumerMember(MEMBER, rebalance_timeout_ms=60_000, epoch=1))
    return Group(name, CONSUMER, revision=1, consumer=data)


class Rounds:
    """The longest round of the event loop while the block runs, in CPU seconds of its thread."""

    async def __aenter__(self) -> Rounds:
        self.worst = 0.0
        gc.collect()
        gc.disable()  # its stalls are another matter
        self._last = time.thread_time()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.worst = max(self.worst, time.thread_time() - self._last)
        self._task.cancel()
        gc.enable()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.worst, self._last = max(self.worst, now - self._last), now


async def _worst(work: Callable[[], Awaitable[object]]) -> float:
    async with Rounds() as rounds:
        await work()
    return rounds.worst


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - nobody tells it
        await asyncio.sleep(0)


def _running(agent: Agent) -> int:
    return (
        len(agent.services.groups._running) + agent.services.consumer_groups.running()
    )  # no copy: it counts


async def _answered(agent: Agent) -> float:
    """ListGroups with the encoding of its answer."""
    api = BY_NAME["ListGroups"]
    body = memoryview(b"".join(api.codec().encode_request(ListGroupsRequest(), 5)))
    header = RequestHeader(api.key, 5, 1, "bench", 0)
    return await _worst(lambda: agent.dispatcher.answer(agent.client, header, body))


def _another_broker(state: StateData) -> None:
    """As if another agent had come: half of the groups are its own now."""
    (own,) = state.brokers.values()
    state.brokers[own.node_id + 1] = replace(own, node_id=own.node_id + 1, name="b")


async def _moves(agent: Agent, others: int) -> float:
    """The longest round until half of what runs here is let go of."""
    services = agent.services

    async def move() -> None:
        _another_broker(services.replica.state)
        services.groups.brokers_changed()
        await _until(lambda: _running(agent) < 0.6 * others)

    return await _worst(move)


async def groups(count: int, make: Callable[[str], Group], kind: str) -> list[Figure]:
    """Very many groups of one kind: adoption, the clock, ListGroups, and half of them move away."""
    agent = await start_agent(MemoryServer(), MemoryStore())
    services = agent.services
    state = services.replica.state
    await asyncio.sleep(SETTLE_S)
    listed = await _answered_with(agent, {f"group-{n:06}": make(f"group-{n:06}") for n in range(count)})

    async def adopt() -> None:
        services.consumer_groups.start()
        services.groups._moved()
        await _until(lambda: _running(agent) == count)

    adopted = await _worst(adopt)
    await asyncio.sleep(SETTLE_S)
    clock = await _worst(lambda: asyncio.sleep(CLOCK_S))
    moved = await _moves(agent, count)
    state.groups.clear()
    await services.consumer_groups.stop()
    await agent.stop()
    name = f"{count:,} {kind} groups"
    return [
        _step(f"{name}: all are taken over", adopted),
        _step(f"{name}: nothing happens for a second", clock),
        _step(f"{name}: half of them move away", moved),
        _step(f"{name}: ListGroups, none runs", listed),
    ]


async def _answered_with(agent: Agent, made: dict[str, Group]) -> float:
    agent.services.replica.state.groups.update(made)
    return await _answered(agent)


async def first_plan(partitions: int) -> Figure:
    """A first member subscribes to very many partitions."""
    agent = await start_agent(MemoryServer(), MemoryStore())
    names = [f"topic-{number:04}" for number in range(partitions // PER_TOPIC)]
    for number, name in enumerate(names):
        create = CreateTopic(name=name, topic_id=b"%016d" % number, partitions=PER_TOPIC)
        await agent.services.replica.propose(create)
    request = ch.ConsumerGroupHeartbeatRequest(
        "g", MEMBER, 0, None, None, 60_000, names, None, None, []
    )  # fmt: skip
    api = BY_NAME["ConsumerGroupHeartbeat"]
    body = memoryview(b"".join(api.codec().encode_request(request, 1)))
    header = RequestHeader(api.key, 1, 1, "bench", 0)
    worst = await _worst(lambda: agent.dispatcher.answer(agent.client, header, body))
    await agent.stop()
    return _step(f"the first member of a group subscribes to {partitions:,} partitions", worst)


def _step(name: str, seconds: float) -> Figure:
    return Figure(name, seconds * 1e3, "ms", goal=STEP_MS_GOAL, better="less")


def figures() -> Iterable[Figure]:
    """All of them."""
    for count in COUNTS:
        yield from asyncio.run(groups(count, classic_group, "classic"))
        yield from asyncio.run(groups(count, consumer_group, "KIP-848"))
    for partitions in PARTITIONS:
        yield asyncio.run(first_plan(partitions))


if __name__ == "__main__":
    for one in figures():
        print(one.line(), flush=True)
