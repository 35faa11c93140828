"""Probes: liveness is the process's own, readiness is the log's and the store's (rule 10)."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.health.health import AGE_S_MAX, Health, Signals
from agent.http import gauges
from agent.telemetry.damages import Damages
from agent.telemetry.measured import MeasuredLog
from agent.telemetry.metrics import Metrics
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state.errors import InvariantBroken
from coordination.trouble import Troubles
from objectstore.faulty import Fault
from objectstore.tasks import Defects
from tests.unit.agent.http.conftest import Edge, connect


async def test_a_registered_agent_is_live_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).json() == {"alive": True, "reasons": []}
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["ready"], body["reasons"], set(body["checks"])) == (
        True,
        [],
        {"log", "append", "store", "store write", "applying", "event loop", "clock", "state"},
    )
    assert body["jobs"] == []


async def test_without_the_log_an_agent_is_live_but_not_ready(edge: Edge, client: httpx.AsyncClient) -> None:
    edge.log.faults.partitioned = True
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"][0].startswith("log: ")
    assert (await client.get("/livez")).status_code == 200
    edge.log.faults.partitioned = False


async def test_without_the_store_an_agent_is_live_but_not_ready(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    edge.store.order("head", Fault.REFUSED)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"][0].startswith("store: Retryable")
    shown = (await client.get("/metrics")).text
    assert 'floe_dependency_up{name="store"} 0.0' in shown
    assert 'floe_dependency_up{name="log"} 1.0' in shown
    assert (await client.get("/livez")).status_code == 200


async def test_probes_ask_the_store_once_however_often_they_come(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    assert AGE_S_MAX >= 1
    assert (await client.get("/readyz")).status_code == 200
    edge.store.order("head", Fault.REFUSED)  # would fail a second question
    assert (await client.get("/readyz")).status_code == 200


async def test_who_probes_an_agent_that_starts_learns_of_it_when_it_has(edge: Edge) -> None:
    """Else the next probe would, a second or two later. What keeps a start waiting is told at once."""
    parts, loop = edge.parts, asyncio.get_running_loop()
    began = Health(parts.config, edge.replica, parts.store, Signals(), Troubles(parts.clock.now_ms))
    edge.have(health=began)
    async with connect(edge.app) as client:
        loop.call_later(0.2, began.entered)
        began.waits_for = "this agent waits for the store"
        assert (await client.get("/readyz")).status_code == 503
        began.waits_for = ""
        assert (await client.get("/readyz")).status_code == 200


async def test_an_agent_that_leaves_is_not_ready(edge: Edge) -> None:
    edge.parts.health.stopping = True
    async with connect(edge.app) as client:
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["the agent is shutting down"]


async def test_a_broken_invariant_ends_liveness_with_its_evidence(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    edge.replica.failed.set_exception(InvariantBroken("offset 7 twice"))
    answer = await client.get("/livez")
    assert (answer.status_code, answer.json()) == (503, {"alive": False, "reasons": ["offset 7 twice"]})
    assert "must be restarted: offset 7 twice" in (await client.get("/readyz")).json()["reasons"][0]


async def test_metrics_are_prometheus_text_with_cpu_and_histograms(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    edge.parts.metrics.put_seconds.observe(0.003)
    edge.parts.metrics.request("Fetch").count.inc()
    families = {f.name: f for f in text_string_to_metric_families((await client.get("/metrics")).text)}
    assert families["floe_put_seconds"].type == "histogram"
    assert families["process_cpu_seconds"].samples[0].value > 0
    assert [s.labels for s in families["floe_requests"].samples if s.name.endswith("total")] == [
        {"api": "Fetch"}
    ]


async def test_requests_are_counted_by_route_not_by_path(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("a")
    for path in ("/admin/topics/a/schema", "/admin/topics/b/schema", "/nowhere", "/elsewhere"):
        await client.get(path)
    families = {f.name: f for f in text_string_to_metric_families((await client.get("/metrics")).text)}
    counted = {
        (s.labels["route"], s.labels["status"]): s.value
        for s in families["floe_http_requests"].samples
        if s.name.endswith("total")
    }
    schema = "/admin/topics/{name}/schema"
    assert counted == {(schema, "200"): 1, (schema, "404"): 1, ("none", "404"): 2}


async def test_the_place_in_the_log_and_the_queues_are_read_when_asked(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    async def scrape() -> dict[str, float]:
        families = text_string_to_metric_families((await client.get("/metrics")).text)
        return {s.name + s.labels.get("cache", ""): s.value for family in families for s in family.samples}

    before = await scrape()
    await edge.topic("a")
    after = await scrape()
    assert after["floe_applied_entries_total"] == before["floe_applied_entries_total"] + 1
    assert after["floe_revision"] == edge.replica.revision > before["floe_revision"]
    assert (after["floe_lag_revisions"], after["floe_lag_seconds"], after["floe_ready"]) == (0, 0, 1)
    assert after["floe_cache_bytesrecords"] == 7


async def test_appends_are_measured(edge: Edge) -> None:
    metrics = Metrics()
    log = MeasuredLog(edge.log, metrics)
    chain = await log.register(77, b"info", 5)
    revision = await chain.append(b"x" * 100)
    assert (chain.incarnation, revision <= await log.current()) == (77, True)
    await chain.close()
    samples = {s.name: s.value for family in metrics.registry.collect() for s in family.samples}
    assert samples["floe_append_seconds_count"] == 1
    assert samples["floe_append_bytes_total"] == 100
    assert samples["floe_incarnations_total"] == 1


async def test_a_job_that_fails_again_and_again_is_seen_from_outside(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    """It makes the agent not unready: another one would do no better."""
    job = SnapshotKeeper(edge.replica, edge.log, edge.parts.store, SnapshotOptions(seconds=0, poll_s=0.01))
    troubles = job.troubles = edge.parts.health.troubles
    troubles.more.append(lambda: list(job.failing_items(edge.parts.clock.now_ms())))  # as jobs.py does
    edge.store.order("put", *[Fault.REFUSED] * 100)
    job.start()
    try:
        async with asyncio.timeout(10):
            while sum(each.failures for each in troubles.now()) < 2:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.01)
        answer = await client.get("/readyz")
        (told,) = answer.json()["jobs"]
        assert (told["job"], told["failures"] >= 2) == ("snapshot: snapshot", True)
        assert told["since"] <= told["last"]
        assert "Retryable" in told["error"]
        assert (await client.get("/status.json")).json()["failing_jobs"][0]["job"] == "snapshot: snapshot"
        assert (
            'floe_job_failing_since_seconds{name="snapshot: snapshot"} 1'
            in (await client.get("/metrics")).text
        )
        assert "snapshot" in (await client.get("/status.html")).text
        async with asyncio.timeout(10):
            while troubles.now():
                await edge.topic(f"t{edge.replica.revision}")
                await asyncio.sleep(0.01)
    finally:
        await job.stop()
    assert (await client.get("/readyz")).json()["jobs"] == []


async def test_the_first_defect_and_the_first_damaged_read_are_told_with_their_time(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that begins at 1 has not increased, for Prometheus: one event would be no alert."""
    defects, clock = Defects(), edge.parts.clock
    monkeypatch.setattr(gauges, "DEFECTS", defects)
    await edge.topic("t")
    before_s = clock.now_ms() // 1000
    defects.note("here", RuntimeError("odd"), asyncio.get_running_loop().time())
    damages = Damages(clock, edge.parts.metrics)
    damages.note(edge.replica.state.topics["t"].partitions[0], 0, 1, "lost")
    text = (await client.get("/metrics")).text
    for metric in ('newest_defect_seconds{place="here"}', 'newest_damaged_read_seconds{topic="t"}'):
        (value,) = [line.split()[1] for line in text.splitlines() if line.startswith(f"floe_{metric}")]
        assert before_s <= round(float(value)) <= clock.now_ms() // 1000 + 1
    defects.note("here", RuntimeError("odd"), asyncio.get_running_loop().time() + 100)
    again = (await client.get("/metrics")).text
    (value,) = re.findall(r'floe_newest_defect_seconds\{place="here"\} (\S+)', again)
    assert float(value) > before_s + 99, "the newest"
