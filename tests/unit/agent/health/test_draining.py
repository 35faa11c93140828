"""Who is drained gives away what it leads and holds, finishes what it has, and comes back when told."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.app import App
from agent.cli import draining
from agent.cli.failures import Failure
from agent.net.wire.generated import find_coordinator as fc
from coordination.kafka_codes import Code
from tests.unit.agent.cli.conftest import floe
from tests.unit.agent.health.test_standing import Cluster, cluster, everywhere, leader, named
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import acknowledged, connect, http, poll, produce, topic, until

__all__ = ["cluster"]  # the fixture


async def drain(app: App, wanted: object) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.post(f"http://127.0.0.1:{app.http_port}/admin/drain", json=wanted)


async def figures(app: App, *names: str) -> list[float]:
    """Metrics without labels, as Prometheus reads them."""
    families = text_string_to_metric_families((await http(app, "/metrics")).text)
    found = {sample.name: sample.value for family in families for sample in family.samples}
    return [found[name] for name in names]


async def done(app: App) -> dict[str, Any]:
    """Its answer once it is done."""
    while not (told := (await http(app, "/admin/drain")).json())["done"]:  # noqa: ASYNC110  # asks another
        await asyncio.sleep(0.02)
    assert isinstance(told, dict)
    return told


async def test_who_is_drained_is_named_no_more_until_it_is_taken_back(cluster: Cluster) -> None:
    gone, *others = await cluster.agents("a", "b", "c")
    await topic(gone)
    wire = await connect(gone)
    parked = asyncio.create_task(wire.call("Fetch", poll(0, 60_000), 12))
    writer = await connect(gone)
    begun = [asyncio.create_task(produce(writer, batch(b"before")))]
    assert (await begun[0]).error_code == 0
    assert (await parked).responses[0].partitions[0].error_code == 0
    parked = asyncio.create_task(wire.call("Fetch", poll(1, 60_000), 12))
    assert (await drain(gone, {"drained": True})).json()["drained"]
    told = await done(gone)
    assert told["claims"] == [], "its jobs go to others"
    assert (told["fetch_parked"], told["produce_held_bytes"]) == (0, 0)
    assert (await parked).responses[0].partitions[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
    await everywhere(cluster, lambda app: named(app) == ["b", "c"])
    assert (await produce(writer, batch(b"late"))).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert await leader(wire) in {app.replica.node_id for app in others}
    found = await wire.call("FindCoordinator", fc.FindCoordinatorRequest(key="g"), 2)
    assert found.node_id != gone.replica.node_id
    assert "stepped aside: drained by " in " ".join((await http(gone, "/readyz")).json()["reasons"])
    assert await figures(gone, "floe_ready", "floe_drained") == [0, 1]
    assert await figures(others[0], "floe_ready", "floe_drained") == [1, 0]
    await asyncio.sleep(1.0)  # more than return_ms: it is well, and stays away
    assert named(others[0]) == ["b", "c"]
    brokers = (await http(others[0], "/status.json")).json()["brokers"]
    assert {each["name"]: each["drained"] for each in brokers} == {"a": True, "b": False, "c": False}

    assert (await drain(gone, {"drained": False})).json()["drained"] is False
    await done(gone)
    await everywhere(cluster, lambda app: named(app) == ["a", "b", "c"])
    await acknowledged(writer, batch(b"again"))
    assert gone.standing.return_s == 0.2, "a drain is no illness: the next one does not keep it away longer"
    for each in (wire, writer):
        await each.close()


async def test_what_an_agent_has_taken_it_finishes(cluster: Cluster) -> None:
    """Unlike one that is ill: whatever was taken is written, so that nobody has to send it again."""
    gone, _ = await cluster.agents("a", "b")
    await topic(gone)
    wire = await connect(gone)
    cluster.roads[0].slow_s = 1.5  # the answer to the drain comes before
    under_way = asyncio.create_task(produce(wire, batch(b"under way")))
    await until(lambda: bool(gone._queues()["produce_held_bytes"]))
    told = (await drain(gone, {"drained": True})).json()
    assert (told["done"], told["produce_held_bytes"] > 0) == (False, True)
    assert (await under_way).error_code == 0
    await done(gone)
    await wire.close()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([], "a is not drained: it was restarted, or its drain taken back"),
        (["--undo"], "a does not come back"),
    ],
)
async def test_who_waits_for_what_was_undone_meanwhile_is_not_told_that_it_is_done(
    cluster: Cluster, more: list[str], why: str
) -> None:
    gone, _ = await cluster.agents("a", "b")
    if more:
        await drain(gone, {"drained": True})
        await done(gone)
    cluster.logs[0].faults.full = True  # the log is told of nothing, so that there is something to wait for
    command, http_of = ("drain", "a", *more, "--wait"), f"http://127.0.0.1:{gone.http_port}"
    waiting = asyncio.create_task(asyncio.to_thread(floe, *command, FLOE_HTTP=http_of))
    await until(lambda: gone.standing.drained is not bool(more))
    await drain(gone, {"drained": bool(more)})
    ran = await waiting
    assert (ran.status, why in ran.err.splitlines()[-1]) == (1, True), ran
    assert ran.err.endswith(f"; run floe {' '.join(command)} again\n")
    cluster.logs[0].faults.full = False


async def test_the_last_one_that_serves_cannot_be_drained(cluster: Cluster) -> None:
    first, second = await cluster.agents("a", "b")
    assert (await drain(first, {"drained": True})).status_code == 200
    await done(first)
    await until(lambda: named(second) == ["b"])
    answer = await drain(second, {"drained": True})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        409,
        "no other agent that is well serves clients",
    )
    assert (await drain(second, {"drained": "yes"})).status_code == 400


async def test_a_drain_and_an_illness_do_not_hide_one_another(cluster: Cluster) -> None:
    gone, other = await cluster.agents("a", "b")

    def why() -> str:
        return other.replica.state.brokers[gone.replica.node_id].unwell

    cluster.roads[0].full = True
    await until(lambda: why().startswith("store write"))
    assert (await drain(gone, {"drained": True})).status_code == 200
    await until(lambda: why().startswith("drained by "))
    assert (await drain(gone, {"drained": False})).status_code == 200
    await until(lambda: why().startswith("store write"))
    assert (await drain(gone, {"drained": True})).status_code == 200
    await until(lambda: why().startswith("drained by "))
    assert await figures(gone, "floe_ready", "floe_drained") == [0, 0], "the alert rings for that"
    cluster.roads[0].full = False
    await until(lambda: why().startswith("drained by ") and not gone.health.faults())
    assert await figures(gone, "floe_ready", "floe_drained") == [0, 1]
    await asyncio.sleep(0.5)  # more than return_ms
    assert why().startswith("drained by ")
    assert (await drain(gone, {"drained": False})).status_code == 200
    await until(lambda: not why())


async def test_a_drain_outlives_a_new_incarnation_of_the_process(cluster: Cluster) -> None:
    """A pause that costs the agent its lease does not bring its clients back."""
    gone, other = await cluster.agents("a", "b")
    await drain(gone, {"drained": True})
    await done(gone)
    before = gone.replica.incarnation
    cluster.server.expire(before)
    await until(lambda: gone.replica.incarnation not in (0, before) and gone.replica.ready)
    await until(lambda: other.replica.state.brokers[gone.replica.node_id].unwell.startswith("drained by "))


async def test_who_has_no_taste_for_health_can_be_drained_as_well(cluster: Cluster) -> None:
    gone, other = await cluster.agents("a", "b", step_aside=False)
    await drain(gone, {"drained": True})
    await done(gone)
    await until(lambda: named(other) == ["b"])
    await drain(gone, {"drained": False})
    await until(lambda: named(other) == ["a", "b"])


BROKERS = [
    {"name": "a", "node_id": 1, "http": "10.0.0.1:8080"},
    {"name": "b", "node_id": 2, "http": "10.0.0.2:8080"},
    {"name": "c", "node_id": 3, "http": ""},
]
STATUS = {"agent": "a", "brokers": BROKERS}


def test_the_agent_to_drain_is_asked_itself() -> None:
    base = "https://floe:8443"
    assert draining.address_of(STATUS, "a", base) == base, "who answers here need not be reached otherwise"
    assert draining.address_of(STATUS, "b", base) == draining.address_of(STATUS, "2", base)
    assert draining.address_of(STATUS, "2", base) == "https://10.0.0.2:8080"
    for name, why in (("c", "no HTTP address"), ("d", "it has a, b, c")):
        with pytest.raises(Failure, match=why):
            draining.address_of(STATUS, name, base)


def test_a_number_that_names_one_agent_and_counts_another_is_refused() -> None:
    brokers = [{**each, "name": name} for each, name in zip(BROKERS, ("2", "1", "7"), strict=True)]
    status, base = {"agent": "7", "brokers": brokers}, "http://10.0.0.3:8080"
    with pytest.raises(Failure, match=r"'1' is the name of the agent with node id 2.*say id:2 or id:1"):
        draining.address_of(status, "1", base)
    assert draining.address_of(status, "id:1", base) == "http://10.0.0.1:8080"
    assert draining.address_of(status, "id:2", base) == "http://10.0.0.2:8080"
    assert draining.address_of(status, "7", base) == base
    same = {"agent": "3", "brokers": [{**each, "name": str(each["node_id"])} for each in BROKERS]}
    assert draining.address_of(same, "2", base) == "http://10.0.0.2:8080"
