"""Agents that cannot do their work step aside, the others are named, and they come back by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.app import App
from agent.health.evidence import Evidence
from agent.health.others import Others
from agent.health.pace import FRESH_S, Bounds, Paces
from agent.health.standing import Standing
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import metadata as md
from coordination.commands import Heartbeat, JudgeAgent
from coordination.kafka_codes import Code
from coordination.state.types import Refused
from objectstore.adapters.memory import MemoryStore
from objectstore.store import PLAIN, Buffer, Denied, PutMode
from tests.bench.load import Wire
from tests.unit.agent.health.test_evidence import Hand
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import (
    WAIT_S,
    World,
    acknowledged,
    connect,
    http,
    poll,
    produce,
    topic,
    until,
)

QUICK: dict[str, Any] = {
    "health": {"patience_ms": 400, "probe_interval_ms": 500, "return_ms": 200, "silence_ms_max": 900},
    "replica": {"heartbeat_ms": 200, "queue_timeout_ms": 10_000, "outcome_timeout_ms": 10_000},
    "produce": {"commit_timeout_ms": 20_000},
}


class Road(MemoryStore):
    """One agent's way to the store that all share. `cut`: nothing is answered. `full`: nothing is written."""

    def __init__(self, whole: MemoryStore) -> None:
        super().__init__()
        self._objects = whole._objects
        self.cut = self.full = False
        self.slow_s = 0.0

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        await self._pass()
        if self.full:
            raise Denied(f"{key}: the bucket is full")
        await asyncio.sleep(self.slow_s)
        return await super().put(key, parts, mode)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await self._pass()
        return await super().get_range(key, start, length)

    async def head(self, key: str) -> Any:
        await self._pass()
        return await super().head(key)

    async def _pass(self) -> None:
        while self.cut:  # noqa: ASYNC110  # as a link that swallows everything
            await asyncio.sleep(0.01)


class Cluster(World):
    """Agents, each with its own road to the store."""

    def __init__(self) -> None:
        super().__init__()
        self.roads: list[Road] = []

    async def agents(self, *names: str, **health: Any) -> list[App]:
        """Started, and known to each other."""
        settings = {**QUICK, "health": {**QUICK["health"], **health}}
        for name in names:
            self.roads.append(Road(self.store))
            await self.start(name, store=self.roads[-1], **settings)
        await until(lambda: all(len(app.replica.state.brokers) == len(self.apps) for app in self.apps))
        return self.apps


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    async with asyncio.timeout(3 * WAIT_S):
        yield made
    for road in made.roads:
        road.cut = road.full = False
    for log in made.logs:
        log.faults.partitioned = False
    for app in made.apps:
        await app.stop()


def named(app: App) -> list[str]:
    """Whom this agent sends clients to."""
    services = app._services
    assert services is not None
    view = services.hints.view()
    return [each.name for each in app.replica.state.brokers.values() if each.node_id in view.nodes]


async def leader(wire: Wire) -> int:
    """Whom Metadata names for the topic's partition."""
    answer = await wire.call("Metadata", md.MetadataRequest(topics=[md.MetadataRequestTopic(name="t")]), 8)
    return int(answer.topics[0].partitions[0].leader_id)


async def everywhere(cluster: Cluster, wanted: Callable[[App], bool]) -> None:
    await until(lambda: all(wanted(app) for app in cluster.apps))


async def test_who_loses_only_the_store_is_named_no_more_and_comes_back(cluster: Cluster) -> None:
    sick, *well = await cluster.agents("a", "b", "c")
    await topic(sick)
    wire, other = await connect(sick), await connect(well[0])
    waiting = asyncio.create_task(produce(wire, batch(b"under way")))
    cluster.roads[0].cut = True
    told = await waiting
    assert told.error_code in (0, Code.NOT_LEADER_OR_FOLLOWER), "answered although its PUT hangs"
    await everywhere(cluster, lambda app: named(app) == ["b", "c"])
    assert (await produce(wire, batch(b"late"))).error_code == Code.NOT_LEADER_OR_FOLLOWER
    parked = (await wire.call("Fetch", poll(9, 60_000), 12)).responses[0].partitions[0]
    assert parked.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert await leader(wire) in {app.replica.node_id for app in well}
    found = await wire.call("FindCoordinator", fc.FindCoordinatorRequest(key="g"), 2)
    assert found.node_id != sick.replica.node_id
    assert sick.replica.incarnation not in {c.incarnation for c in sick.replica.state.claims.values()}
    assert "stepped aside: store" in " ".join((await http(sick, "/readyz")).json()["reasons"])
    assert (await produce(other, batch(b"there"))).error_code == 0
    cluster.roads[0].cut = False
    await everywhere(cluster, lambda app: named(app) == ["a", "b", "c"])
    await acknowledged(wire, batch(b"again"))
    assert (await http(sick, "/readyz")).status_code == 200
    for each in (wire, other):
        await each.close()


async def test_who_is_well_again_serves_who_comes_all_the_same_before_it_is_named(cluster: Cluster) -> None:
    """librdkafka may stay with an agent that Metadata does not name: it would wait for as long as that."""
    sick, *_ = await cluster.agents("a", "b", "c", return_ms=60_000)
    await topic(sick)
    wire = await connect(sick)
    cluster.roads[0].cut = True
    await everywhere(cluster, lambda app: named(app) == ["b", "c"])
    assert (await produce(wire, batch(b"ill"))).error_code == Code.NOT_LEADER_OR_FOLLOWER
    cluster.roads[0].cut = False
    stored = await acknowledged(wire, batch(b"x"))
    read = (await wire.call("Fetch", poll(stored.base_offset, 60_000), 12)).responses[0].partitions[0]
    assert (read.error_code, bytes(read.records)[-2:-1]) == (0, b"x")
    assert named(sick) == ["b", "c"]
    await wire.close()


async def test_who_leaves_serves_until_the_others_know(cluster: Cluster) -> None:
    """Else one Metadata names it and the next does not, and clients go to and fro."""
    for name in ("a", "b"):
        await cluster.start(name, **QUICK, shutdown={"drain_ms": 1_000})
    first, second = cluster.apps
    await topic(first)
    wire = await connect(first)
    async with second.replica.applying:  # it is slow to hear of it
        stopping = asyncio.create_task(first.stop())
        await until(lambda: len(first.replica.state.brokers) == 1)
        assert (await produce(wire, batch(b"x"))).error_code == 0
    while (told := await produce(wire, batch(b"y"))).error_code == 0:
        pass
    assert told.error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert list(second.replica.state.brokers) == [second.replica.node_id]
    await wire.close()
    await stopping


async def test_while_no_agent_can_store_all_of_them_stay(cluster: Cluster) -> None:
    apps = await cluster.agents("a", "b")
    await topic(apps[0])
    for road in cluster.roads:
        road.full = True
    await everywhere(cluster, lambda app: all(each.unwell for each in app.replica.state.brokers.values()))
    assert all(named(app) == ["a", "b"] for app in apps)
    wires = [await connect(app) for app in apps]
    for app, wire in zip(apps, wires, strict=True):
        assert (await produce(wire, batch(b"x"))).error_code == Code.NOT_ENOUGH_REPLICAS, (
            "nothing was written"
        )
        await is_unready_everywhere(app, "store write: Denied: ")
    for road in cluster.roads:
        road.full = False
    for wire in wires:
        await acknowledged(wire, batch(b"y"))
        await wire.close()
    await everywhere(cluster, lambda app: not any(each.unwell for each in app.replica.state.brokers.values()))


async def is_unready_everywhere(app: App, reason: str) -> None:
    """/readyz, floe_ready and /status say the same."""
    ready = (await http(app, "/readyz")).json()
    families = text_string_to_metric_families((await http(app, "/metrics")).text)
    gauges = {s.name + s.labels.get("name", ""): s.value for family in families for s in family.samples}
    status = (await http(app, "/status.json")).json()
    assert (ready["ready"], gauges["floe_ready"], status["ready"]) == (False, 0, False)
    assert gauges["floe_checkstore write"] == 0
    assert any(each.startswith(reason) for each in ready["reasons"])


async def test_who_loses_only_the_log_is_taken_out_by_the_others_and_comes_back(cluster: Cluster) -> None:
    sick, well, _ = await cluster.agents("a", "b", "c")
    await topic(sick)
    wire, other = await connect(sick), await connect(well)
    assert (await produce(wire, batch(b"x"))).error_code == 0
    cluster.logs[0].faults.partitioned = True
    told = await produce(wire, batch(b"under way"))
    assert told.error_code in (Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER)
    assert (await produce(wire, batch(b"late"))).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert await leader(wire) != sick.replica.node_id, "its own Metadata sends clients elsewhere too"
    known = (await wire.call("Fetch", poll(0, 60_000), 12)).responses[0].partitions[0]
    assert (known.error_code, bytes(known.records)[-2:-1]) == (0, b"x"), "what it knows it gives"
    end = (await wire.call("Fetch", poll(known.high_watermark, 60_000), 12)).responses[0].partitions[0]
    assert end.error_code == Code.NOT_LEADER_OR_FOLLOWER, "and nobody waits for what it will not hear of"
    await until(lambda: named(well) == ["b", "c"])
    assert "nothing was heard of it" in well.replica.state.brokers[sick.replica.node_id].unwell
    assert (await produce(other, batch(b"there"))).error_code == 0
    cluster.logs[0].faults.partitioned = False
    await everywhere(cluster, lambda app: named(app) == ["a", "b", "c"])
    for each in (wire, other):
        await each.close()


async def test_who_does_not_step_aside_comes_back_when_the_others_took_it_out(cluster: Cluster) -> None:
    """Its own checks do not count with health.step_aside off: neither for leaving nor for coming back."""
    (deaf,) = await cluster.agents("a", step_aside=False)
    _, other = await cluster.agents("b")
    cluster.logs[0].faults.partitioned = cluster.roads[0].full = True
    await until(lambda: named(other) == ["b"])
    assert "nothing was heard of it" in said_of(other, deaf)
    await until(lambda: any(each.startswith("store write") for each in deaf.health.faults()))
    cluster.logs[0].faults.partitioned = False
    await everywhere(cluster, lambda app: named(app) == ["a", "b"])
    assert any(each.startswith("store write") for each in deaf.health.faults())
    assert not deaf.standing.aside


async def test_a_log_that_stands_still_for_all_accuses_nobody(cluster: Cluster) -> None:
    apps = await cluster.agents("a", "b")
    for log in cluster.logs:
        log.faults.partitioned = True
    await until(lambda: all(app.standing.aside for app in apps))
    await asyncio.sleep(1.5)  # longer than silence_ms_max
    for log in cluster.logs:
        log.faults.partitioned = False
    await until(lambda: not any(app.standing.aside for app in apps))
    assert not any(each.unwell for each in apps[0].replica.state.brokers.values())


async def test_who_falls_ill_again_waits_longer(cluster: Cluster) -> None:
    sick, _ = await cluster.agents("a", "b")
    waits: list[float] = []
    for _ in range(3):
        cluster.roads[0].full = True
        await until(lambda: bool(sick.standing.aside))
        waits.append(sick.standing.return_s)
        cluster.roads[0].full = False
        await until(lambda: not sick.standing.aside)
    assert waits == [0.2, 0.4, 0.8]
    assert isinstance(sick.standing, Standing)


async def test_who_is_slow_steps_aside_unless_the_others_are_slow_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is slow is what the others do many times as fast; where most are slow nobody goes."""
    monkeypatch.setattr("agent.health.checks.SLOW_S", 0.5)
    slow, *others = await cluster.agents("a", "b", "c", slow_ratio=3, slow_ms_max=400, patience_ms=1_000)
    for road in cluster.roads:
        road.slow_s = 0.5

    def puts_s(app: App) -> float:
        return app.health.paces._writes.typical_s()

    await everywhere(cluster, lambda app: puts_s(app) > 0.4)
    await asyncio.sleep(2.5)  # more than SLOW_S, what one attempt takes, and patience_ms
    assert not any(app.standing.aside for app in cluster.apps)
    cluster.roads[0].slow_s = 0.3  # less than slow_ms_max, but many times what the others take from now on
    cluster.roads[1].slow_s = cluster.roads[2].slow_s = 0.0
    await everywhere(cluster, lambda app: named(app) == ["b", "c"])
    reason = slow.replica.state.brokers[slow.replica.node_id].unwell
    assert reason.startswith("store write: slow: half take 3")
    assert not any(app.standing.aside for app in others)
    cluster.roads[0].slow_s = 0.0
    await everywhere(cluster, lambda app: named(app) == ["a", "b", "c"])


async def test_a_full_log_is_told_as_such_and_moves_nobody(cluster: Cluster) -> None:
    """Under etcd's NOSPACE nothing is written anywhere: producers learn so at once, with a definite code."""
    apps = await cluster.agents("a", "b")
    await topic(apps[0])
    wire = await connect(apps[0])
    for log in cluster.logs:
        log.faults.full = True
    told = await produce(wire, batch(b"x"))
    assert (told.error_code, told.base_offset) == (Code.NOT_ENOUGH_REPLICAS, -1)
    assert "nothing was written" in told.error_message
    await until(lambda: any("NOSPACE" in reason for reason in apps[0].health.reasons()))
    await asyncio.sleep(1)  # more than patience_ms
    assert not any(app.standing.aside for app in apps)
    ready = await http(apps[0], "/readyz")
    assert (ready.status_code, "append: Full: " in " ".join(ready.json()["reasons"])) == (503, True)
    for log in cluster.logs:
        log.faults.full = False
    assert (await acknowledged(wire, batch(b"y"))).base_offset == 0, "what was refused is not there"
    await until(lambda: not apps[0].health.reasons())
    await wire.close()


async def test_only_what_well_agents_said_lately_counts_beside_ones_own_speed(cluster: Cluster) -> None:
    own, *others = await cluster.agents("a", "b", "c", step_aside=False)
    hand, bounds = Hand(), Bounds(min_s=0.1, max_s=1.0, ratio=10)
    writes = Evidence(hand.now)
    paces = Paces(own.replica, hand.now, Evidence(hand.now), writes, bounds)

    async def all_say(put_us: int) -> None:
        for _ in range(4):
            attempt = writes.begin()
            hand.s += 0.5
            writes.succeeded(attempt)
        for app in cluster.apps:
            await app.replica.propose(Heartbeat(put_us=put_us))
        await own.replica.barrier()

    def reason() -> str:
        slow = paces.writes_slow()
        return slow.reason if slow else ""

    await all_say(5_000)
    assert reason() == "slow: half take 500 ms, most of the others 5 ms"
    assert not paces.in_doubt()
    hand.s += FRESH_S + 0.1
    assert reason() == "", "what was said long ago does not count"
    await all_say(5_000)
    assert reason()
    await all_say(300_000)
    assert reason() == ""
    await all_say(5_000_000)
    assert paces.in_doubt(), "are they as slow here as there?"
    await all_say(5_000)
    await others[0].replica.propose(JudgeAgent(incarnation=others[0].replica.incarnation, unwell="ill"))
    await own.replica.barrier()
    assert reason() == "", "one that is well is no majority"


async def test_what_seems_slow_is_asked_again_before_it_counts(cluster: Cluster) -> None:
    """An agent with little to do would else be judged by what is long over."""
    (app,) = await cluster.agents("a", probe_interval_ms=3_600_000)
    puts, grave = app.health.paces._writes, []
    app.health.on_look.append(lambda: grave.extend(app.health.grave()))
    for _ in range(4):
        attempt = puts.begin()
        puts._under_way[attempt] -= 5  # so it took five seconds
        puts.succeeded(attempt)
    assert puts.slow(1.0)
    await until(lambda: puts.slow(1.0) is None)
    assert not grave


def judged_by_hand(app: App, hand: Hand) -> tuple[Standing, list[str]]:
    """A place in Metadata whose time goes by hand, and what is wrong with the agent: empty, nothing is.

    It is the only one that judges: the agent's own looks no more.
    """
    reason = [""]
    config = app.config.model_copy(
        update={"health": app.config.health.model_copy(update={"step_aside": True})}
    )
    app.health.on_look.remove(app.standing.look)
    standing = Standing(config, app.replica, app.health, hand.now)
    app.health.add("hand", lambda: reason[0])
    return standing, reason


def said_of(app: App, other: App) -> str:
    """What the log says of an agent, as `app` knows it; empty: it is well."""
    return app.replica.state.brokers[other.replica.node_id].unwell


async def test_nobody_goes_before_its_patience_or_returns_before_its_time(cluster: Cluster) -> None:
    app, _ = await cluster.agents("a", "b", step_aside=False)
    hand = Hand()
    standing, reason = judged_by_hand(app, hand)

    def unwell() -> str:
        return said_of(app, app)

    reason[0] = "broken"
    assert not app.health.grave(), "it has been bad for no time at all"
    await until(lambda: unwell() == "hand: broken")
    reason[0] = ""
    await until(lambda: standing._well_since is not None)
    hand.s += standing.return_s - 0.01
    await asyncio.sleep(1)  # several looks
    assert unwell()
    hand.s += 0.02
    await until(lambda: not unwell() and not standing.aside)


async def test_a_return_counts_once_the_log_has_taken_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said at each look until then, and would each time make the next way back twice as long."""
    app, _ = await cluster.agents("a", "b", step_aside=False)
    hand, refused = Hand(), 0
    standing, reason = judged_by_hand(app, hand)
    reason[0] = "broken"

    def unwell() -> str:
        return app.replica.state.brokers[app.replica.node_id].unwell

    def refuse(*_: Any, **__: Any) -> asyncio.Future[list[Refused]]:
        nonlocal refused
        refused += 1
        answer: asyncio.Future[list[Refused]] = asyncio.get_running_loop().create_future()
        answer.set_result([Refused(Code.INVALID_REQUEST, "not now")])
        return answer

    await until(lambda: bool(unwell()))
    at_first, reason[0] = standing.return_s, ""
    await until(lambda: standing._well_since is not None)
    with monkeypatch.context() as patch:
        patch.setattr(app.replica, "submit", refuse)
        hand.s += 100 * at_first
        await until(lambda: refused > 3)
        assert standing.return_s == at_first
    assert standing.aside
    await until(lambda: not unwell() and not standing.aside)
    assert standing.return_s == 2 * at_first


async def test_who_looked_at_nothing_for_a_while_accuses_nobody_for_it(cluster: Cluster) -> None:
    app, _ = await cluster.agents("a", "b", step_aside=False)
    hand = Hand()
    others = Others(app.replica, hand.now, 3.5, heartbeat_s=0.2)
    cluster.logs[1].faults.partitioned = True
    hand.s += 60
    assert others.silent() == [], "it was this agent itself that stood still"
    found = []
    for _ in range(12):
        hand.s += 0.5
        await app.replica.propose(Heartbeat())
        found.append(others.silent())
    assert not any(found[:6])
    assert found[-1][0].unwell.startswith("nothing was heard of it")


async def test_who_has_stepped_aside_accuses_nobody_until_it_is_well_again(cluster: Cluster) -> None:
    """Two that say it of each other would both be gone; it listens meanwhile, and knows when it is back."""
    app, silent = await cluster.agents("a", "b", step_aside=False)
    hand = Hand()
    standing, reason = judged_by_hand(app, hand)
    reason[0] = "broken"
    await until(lambda: said_of(app, app))
    cluster.logs[1].faults.partitioned = True
    for _ in range(8):
        hand.s += 0.5
        await app.replica.propose(Heartbeat())
        standing.look()
    assert not said_of(app, silent)
    reason[0] = ""
    await until(lambda: standing._well_since is not None)
    hand.s += standing.return_s
    await until(lambda: said_of(app, silent))
    assert not standing.aside
    assert said_of(app, silent).startswith("nothing was heard of it")
