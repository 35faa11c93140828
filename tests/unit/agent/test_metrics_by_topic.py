"""Metrics that name topics: few of them, and none that is gone or another agent's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from agent.background.tables import committers_of, parts_of
from agent.http import gauges
from agent.telemetry.by_topic import OTHERS, TOPICS_MAX
from agent.telemetry.metrics import Metrics
from agent.telemetry.refusals import Refusals
from agent.telemetry.table_figures import TableFigures
from agent.telemetry.traffic import Traffic
from coordination.clock import ManualClock, SystemClock
from coordination.commands import AlterTopicConfigs, DeleteTopic
from iceberg import service as service_module
from iceberg.service import CommitterService
from objectstore.merged import MergedRanges
from tests.unit.agent import test_app
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.conftest import edge as edge
from tests.unit.agent.rig import batch
from tests.unit.agent.test_app import World, config
from tests.unit.agent.test_app import world as world
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig, until

MANY = 10_000


def told(metrics: Metrics, name: str) -> dict[str, float]:
    """A metric's values by topic, as the next reader would find them."""
    for refresh in metrics.before_reading:
        refresh()
    return {
        sample.labels["topic"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"floe_{name}"
    }


@asynccontextmanager
async def committing(rig: Rig) -> AsyncIterator[tuple[CommitterService, Metrics]]:
    """The rig's committers as an agent has them."""
    metrics, root = Metrics(), rig.warehouse.root
    settings = config("a", store={"url": root}, tables={"interval_ms": 50})
    merged = MergedRanges(rig.store)
    parts = parts_of(settings, rig.replica, rig.reader, merged, rig.store, SystemClock())
    service = committers_of(settings, parts, metrics)
    await service.start()
    try:
        yield service, metrics
    finally:
        await service.stop()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent with a topic of one record."""
    async with rigs.running(tmp_path) as found:
        await found.create_topic()
        await found.produce([b"a"])
        yield found


async def committed(metrics: Metrics, rows: int) -> None:
    """Wait for the topic's rows."""
    await until(lambda: told(metrics, "table_rows_total").get("t", 0) >= rows)
    assert told(metrics, "table_freshness_seconds")["t"] >= 0


def silent(metrics: Metrics) -> bool:
    """Whether nothing is told of any table."""
    return told(metrics, "table_rows_total") == told(metrics, "table_freshness_seconds") == {}


async def test_a_table_is_told_of_by_the_agent_that_commits_it_alone(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost its claim: what it said last would stand for ever, and an alert with it."""
    async with committing(rig) as (service, metrics):
        await committed(metrics, 1)
        async with rigs.running(tmp_path, server=rig.server, name="other") as other:
            monkeypatch.setattr(service, "_start_due", lambda now: None)  # it hears and does nothing
            rig.server.expire(rig.replica.incarnation)
            async with committing(other) as (_, others):
                await other.produce([b"b"])
                await committed(others, 1)
                await until(lambda: silent(metrics))


@pytest.mark.parametrize("how", ["deleted", "without a table", "stopped"])
async def test_what_has_no_table_here_any_more_is_not_told_of(rig: Rig, how: str) -> None:
    async with committing(rig) as (service, metrics):
        await committed(metrics, 1)
        if how == "deleted":
            await rig.delete_topic()
        elif how == "stopped":
            await service.stop()
        else:
            off = AlterTopicConfigs.Change(name="floe.table.enabled", value="false")
            await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[off]))
        await until(lambda: silent(metrics))


async def test_a_table_that_has_all_there_is_is_not_late(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, at its last commit, and nothing has come since."""
    async with committing(rig) as (_, metrics):
        await committed(metrics, 1)
        monkeypatch.setattr(service_module, "SHOWN_S", 0)
        await until(lambda: told(metrics, "table_freshness_seconds") == {})
        assert told(metrics, "table_rows_total") == {"t": 1}


def test_ever_more_topics_are_counted_together() -> None:
    """Nothing is lost of the sum, and places that topics leave are taken by others."""
    metrics, late = Metrics(), dict[str, float | None]()
    refusals, figures = Refusals(ManualClock(), metrics), TableFigures(metrics, lambda: late)
    with capture_logs():
        for number in range(MANY):
            late[f"t{number}"] = number if number % 2 else None
            figures.note(f"t{number}", 2)
            refusals.note(f"t{number}", 0, "INVALID_RECORD", "bad", "app", "10.0.0.7")
            refusals.note(f"t{number}", 0, "CORRUPT_MESSAGE", "bad", "app", "10.0.0.7")
    rows, freshness = told(metrics, "table_rows_total"), told(metrics, "table_freshness_seconds")
    assert (len(rows), rows["t0"], rows[OTHERS]) == (TOPICS_MAX + 1, 2, 2 * (MANY - TOPICS_MAX))
    assert sorted(freshness.values()) == [MANY - 2 * TOPICS_MAX + 1 + 2 * n for n in range(TOPICS_MAX)]
    assert len(told(metrics, "produce_rejected_total")) == TOPICS_MAX + 1
    assert len(generate_latest(metrics.registry)) < 200_000
    refusals.topics.keep(lambda topic: topic == "t7")
    assert set(told(metrics, "produce_rejected_total")) == {"t7", OTHERS}
    late.clear()
    late["new"] = None
    figures.note("new", 3)
    assert told(metrics, "table_rows_total")[OTHERS] == rows[OTHERS] + 3, (
        "until the next reader there is no place"
    )
    figures.note("new", 3)
    assert told(metrics, "table_rows_total") == {"new": 3, OTHERS: rows[OTHERS] + 3}
    assert told(metrics, "table_freshness_seconds") == {}


async def test_a_topic_that_is_deleted_is_not_named_any_more(world: World) -> None:
    app = await world.start()
    for name in ("kept", "gone"):
        await test_app.topic(app, name)
        app.refusals.note(name, 0, "INVALID_RECORD", "bad", "app", "10.0.0.7")
        app.damages.note(app.replica.state.topics[name].partitions[0], 0, 1, "lost")
    named = (await test_app.http(app, "/metrics")).text
    await app.replica.propose(DeleteTopic(name="gone"))
    left = (await test_app.http(app, "/metrics")).text
    assert ('floe_newest_damaged_read_seconds{topic="gone"}' in named) is True
    assert ('floe_newest_damaged_read_seconds{topic="gone"}' in left) is False
    for metric in ("damaged_reads_total{", 'produce_rejected_total{reason="INVALID_RECORD",'):
        for name, text, there in (
            ("kept", named, True),
            ("gone", named, True),
            ("kept", left, True),
            ("gone", left, False),
        ):
            assert (f'floe_{metric}topic="{name}"}} 1.0' in text) is there, (metric, name)


async def test_the_event_loop_turns_while_the_metrics_are_written_out(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader at a time, as figures go away and come back before each."""
    loop, goes_on, writing = asyncio.get_running_loop(), threading.Event(), asyncio.Semaphore(0)
    begun: list[str] = []
    edge.parts.metrics.before_reading.append(lambda: begun.append("a text"))

    def slow(registry: Any) -> bytes:
        loop.call_soon_threadsafe(writing.release)
        goes_on.wait(10)
        return generate_latest(registry)

    monkeypatch.setattr(gauges, "generate_latest", slow)
    async with connect(edge.app) as client:
        first = asyncio.ensure_future(client.get("/metrics"))
        await writing.acquire()
        second = asyncio.ensure_future(client.get("/metrics"))
        for _ in range(20):  # ample turns for the second to begin, if it may
            await asyncio.sleep(0)
            assert (await client.get("/livez")).status_code == 200
        assert begun == ["a text"]
        goes_on.set()
        for answer in await asyncio.gather(first, second):
            assert "floe_ready 1.0" in answer.text


def shown(traffic: Traffic, named_max: int) -> dict[str, dict[str, float]]:
    return {
        family.name: {sample.labels["topic"]: sample.value for sample in family.samples}
        for family in traffic.families(named_max)
    }


def test_the_busiest_topics_are_named_with_what_came_and_went() -> None:
    traffic = Traffic()
    for number in range(50):
        traffic.stored(f"t{number}", size=number, records=1)
        traffic.stored(f"t{number}", size=number, records=2)
    traffic.sent("t3", 1_000)
    assert shown(traffic, 2) == {
        "floe_topic_produce_bytes": {"t3": 6, "t49": 98},
        "floe_topic_produce_records": {"t3": 3, "t49": 3},
        "floe_topic_fetch_bytes": {"t3": 1_000, "t49": 0},
    }
    traffic.keep(lambda name: name != "t3")
    assert list(shown(traffic, 2)["floe_topic_fetch_bytes"]) == ["t49", "t48"]
    assert not any(shown(traffic, 0).values())


def test_so_many_topics_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.telemetry.traffic.COUNTED_MAX", 3)
    traffic = Traffic()
    for number in range(10):
        traffic.stored(f"t{number}", size=1 + number, records=1)
    assert set(shown(traffic, 100)["floe_topic_produce_bytes"]) == {"t0", "t1", "t2"}


async def test_an_agent_shows_what_came_for_its_topics(world: World) -> None:
    app = await world.start("a")
    await test_app.topic(app)
    wire = await test_app.connect(app)
    raw = batch(b"a", b"b")
    await test_app.produce(wire, raw)
    await wire.call("Fetch", test_app.poll(0, 0), 12)
    await wire.close()
    page = (await test_app.http(app, "/metrics")).text
    assert f'floe_topic_produce_bytes_total{{topic="t"}} {float(len(raw))}' in page
    assert 'floe_topic_produce_records_total{topic="t"} 2.0' in page
    assert f'floe_topic_fetch_bytes_total{{topic="t"}} {float(len(raw))}' in page
    assert "floe_leader_changes_total 0.0" in page
    await world.start("b")
    for _ in range(500):
        page = (await test_app.http(app, "/metrics")).text
        if "floe_leader_changes_total 1.0" in page:
            break
        await asyncio.sleep(0.02)
    assert "floe_leader_changes_total 1.0" in page
