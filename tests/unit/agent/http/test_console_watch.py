"""What an agent remembers and asks for its console: lag over time, all agents, alarms, who changed what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.server import PeerServer
from agent.cluster.peers.wire import FIGURES_BYTES_MAX, PeerAnswered
from agent.config.console import ConsoleConfig
from agent.http.console import chart
from agent.http.console.others import Others
from agent.telemetry.lag_history import LagHistory, Sample
from agent.telemetry.told_figures import ToldFigures, decoded, told_now
from agent.telemetry.trail import Trail
from coordination.clock import ManualClock, SystemClock
from coordination.state.acl_types import Operation, ResourceType
from objectstore.store import Buffer
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_rig import by, commit, console, let, page
from tests.unit.agent.rig import Agent

SECRET = b"s" * 32
GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Edge, Agent]]:
    """ACLs are not asked."""
    async with console(tmp_path) as made:
        yield made


def test_lags_are_kept_in_bounds_and_the_furthest_stay() -> None:
    history = LagHistory(ConsoleConfig(lag_series_max=2, lag_samples_max=3, lag_every_ms=10_000))
    history.note([(5, "a", "t"), (1, "b", "t")], 0.0, 1_000)
    history.note([(7, "a", "t")], 9.0, 9_000)
    assert history.of("a") == {"t": [Sample(1_000, 5)]}, "the second came too soon"
    history.note([(6, "a", "t")], 10.0, 11_000)
    history.note([(9, "a", "t"), (8, "c", "t"), (3, "b", "t")], 20.0, 21_000)
    assert history.of("a") == {"t": [Sample(1_000, 5), Sample(11_000, 6), Sample(21_000, 9)]}
    assert history.of("c") == {"t": [Sample(21_000, 8)]}, "nothing of before it was known"
    assert history.of("b") == {}, "one too many, and not as far behind"
    history.note([(4, "c", "t")], 30.0, 31_000)
    assert history.of("a")["t"][-1] == Sample(31_000, None), "it was not looked at"
    for number in range(5):
        history.note([(number, "c", "t")], 40.0 + 10 * number, number)
    assert history.of("a") == {}
    assert history.of("c")["t"] == [Sample(2, 2), Sample(3, 3), Sample(4, 4)]


def test_a_chart_is_of_the_highest_lines_and_lifts_its_pen_over_gaps() -> None:
    lines = {f"l{number}": [(0, number), (10, None), (20, number)] for number in range(9)}
    shown = chart.chart(lines, "Records")
    assert shown.count('class="line line-') == chart.LINES
    assert "l8 (8 now)" in shown
    assert "l3" not in shown
    assert shown.count("L720") == 0, "a point behind a gap begins a line"
    assert "no two samples" in chart.chart({"a": [(5, 1)]}, "Records")
    assert "<script" not in chart.chart({"<script>": [(0, 1), (1, 2)]}, "Records")


async def test_a_group_s_lag_over_time_is_of_topics_that_may_be_seen(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, _):
        history = LagHistory(edge.parts.config.console)
        for name in ("orders", "secret"):
            await edge.topic(name)
            await commit(edge, "g", name, 0)
        for moment in range(3):
            at_s = 100.0 * moment
            history.note([(3, "g", "orders"), (4, "g", "secret")], at_s, int(at_s * 1_000))
        edge.have(lags=history)
        await let(edge, "ann", Operation.DESCRIBE, GROUP, "g")
        await let(edge, "ann", Operation.DESCRIBE, TOPIC, "orders")
        async with by(edge, "ann") as client:
            shown = await page(client, "/console/group", id="g")
    assert [name for name, _ in shown.elements].count("svg") == 1
    assert "orders (3 now)" in shown.said
    assert "secret" not in shown.said


async def nothing(*_: object) -> list[Buffer]:
    return []


async def serving(figures: bytes | None) -> tuple[PeerServer, str]:
    server = PeerServer(
        nothing, SECRET, SystemClock(), 1_000, figures=None if figures is None else lambda: figures
    )
    return server, f"127.0.0.1:{await server.start('127.0.0.1', 0)}"


async def test_figures_go_between_agents_that_know_each_other(both: tuple[Edge, Agent]) -> None:
    told = told_now("b", both[0].parts.metrics, ["no log"] * 100)
    client = PeerClient(SECRET, SystemClock())
    server, address = await serving(told.encoded())
    for _ in range(2):  # on the same connection
        assert decoded(await client.figures(address)) == told
    assert len(told.reasons) == 20
    for wrong in (b"", b"[]", b'{"agent": 1}', b'{"agent":"a","version":"1","counts":{"bytes_in":"x"}}'):
        with pytest.raises(ValueError, match=r"figures|Expecting|convert"):
            decoded(wrong)
    await server.stop()
    for nothing_told in (None, b"x" * (FIGURES_BYTES_MAX + 1)):
        server, address = await serving(nothing_told)
        with pytest.raises(PeerAnswered):
            await client.figures(address)
        await server.stop()
    client.close()


@asynccontextmanager
async def cluster_of(edge: Edge, counted: dict[str, float]) -> AsyncIterator[PeerClient]:
    """`far` answers with these counts, `gone` does not, `aside` is not well."""
    state = edge.replica.state
    own = next(iter(state.brokers.values()))
    server = PeerServer(
        nothing,
        SECRET,
        SystemClock(),
        1_000,
        figures=lambda: ToldFigures("far", "1", dict(counted)).encoded(),
    )
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    state.brokers[70] = replace(own, node_id=70, name="far", incarnation=70, peer_address=address)
    state.brokers[71] = replace(own, node_id=71, name="gone", incarnation=71, peer_address="127.0.0.1:1")
    state.brokers[72] = replace(own, node_id=72, name="aside", incarnation=72, unwell="no disk")
    for run in (70, 71, 72):
        state.incarnations[run] = state.incarnations[own.incarnation]
    client = PeerClient(SECRET, SystemClock())
    edge.have(peers=lambda: client)
    yield client
    client.close()
    await server.stop()


async def lines_of(others: Others) -> dict[str, tuple[float | None, str]]:
    """Records per second, and what is wrong, by agent."""
    while len(found := await others.lines()) < 4:
        pass
    return {each.agent: (each.rates["records_in"], each.why) for each in found}


async def test_rates_are_of_all_agents_and_the_silent_ones_are_named(both: tuple[Edge, Agent]) -> None:
    edge, clock = both[0], ManualClock()
    counted = {"records_in": 100.0, "bytes_in": 0.0, "bytes_out": 0.0}
    async with cluster_of(edge, counted):
        others = Others(replace(edge.parts, clock=clock))
        assert (await lines_of(others))["far"] == (None, "")
        counted["records_in"] = 150.0
        clock.advance(5)
        found = await lines_of(others)
        while found["far"][0] is None:
            found = await lines_of(others)
        assert found["far"] == (10.0, "")
        assert found["edge"][1] == ""
        assert "no disk" in found["aside"][1]
        assert found["gone"][1]
        counted["records_in"] = 1.0  # it was started anew
        clock.advance(5)
        while (found := await lines_of(others))["far"][0] == 10.0:
            pass
        assert found["far"] == (None, "")


async def test_pages_show_all_agents(both: tuple[Edge, Agent]) -> None:
    edge, _ = both
    async with cluster_of(edge, {}), by(edge, "root") as browser:
        shown = await page(browser, "/console")
        while "They are being asked" in shown.said:
            shown = await page(browser, "/console")
        assert "2 agents, 2 not known" in shown.said
        assert "it has stepped aside: no disk" in (await page(browser, "/console/alarms")).said


async def test_alarms_are_what_the_doctor_says_of_this_agent(both: tuple[Edge, Agent]) -> None:
    edge, _ = both
    edge.log.faults.refused = True
    await edge.parts.health.refresh()
    async with by(edge, "root") as client:
        shown = await page(client, "/console/alarms")
    assert "WRONG" in shown.said, shown.said
    assert "look after etcd" in shown.said
    assert "docs/operations.md#health" in shown.said


async def test_who_changed_what_is_remembered_for_whom_it_is_for(tmp_path: Path) -> None:
    async with console(tmp_path, "enforce") as (edge, _):
        config = edge.parts.config
        trail = Trail(config.audit_log, edge.parts.clock, "edge", edge.parts.metrics, 3)
        edge.have(trail=trail)
        async with by(edge, "root") as client:
            for number in range(5):
                body = {"schema": '{"type":"string"}'}
                answer = await client.post(f"/subjects/s{number}-value/versions", json=body)
                assert answer.status_code == 200
            assert "nothing is wrong" in (await page(client, "/console/alarms")).said
            trail.take(100)
            shown = await page(client, "/console/trail")
            assert "RegisterSchema" in shown.said
            assert "User:root" in shown.said
            names = [each for each in shown.words if each.endswith("-value")]
            assert names == ["s4-value", "s3-value", "s2-value"], "the newest first, so many"
            found = await page(client, "/console/trail", search="S3-")
            assert [each for each in found.words if each.endswith("-value")] == ["s3-value"]
            assert "none that" in (await page(client, "/console/trail", kind="ACCESS")).said
            await page(client, "/console/trail", 400, kind="x")
        async with by(edge, "ann") as client:
            for path in ("/console/trail", "/console/alarms"):
                assert "may not Describe" in (await page(client, path, 403)).said
            await let(edge, "ann", Operation.DESCRIBE, CLUSTER, "kafka-cluster")
            assert "s4-value" in (await page(client, "/console/trail")).said
