"""Probes: liveness is the process's own, readiness is the log's and the store's (rule 10)."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from agent.http.probes import PROBE_AGE_MS_MAX
from coordination.state.errors import InvariantBroken
from objectstore.faulty import Fault
from tests.unit.agent.http.conftest import Edge, connect


async def test_a_registered_agent_is_live_and_ready(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).json() == {"alive": True, "reasons": []}
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["ready"], body["reasons"], set(body["checks"])) == (True, [], {"log", "store"})


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
    assert (await client.get("/livez")).status_code == 200


async def test_probes_ask_the_store_once_however_often_they_come(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    assert PROBE_AGE_MS_MAX >= 1_000
    assert (await client.get("/readyz")).status_code == 200
    edge.store.order("head", Fault.REFUSED)  # would fail a second question
    assert (await client.get("/readyz")).status_code == 200


async def test_an_agent_that_leaves_is_not_ready(edge: Edge) -> None:
    async with connect(edge.rebuilt(stopping=lambda: True)) as client:
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
    edge.parts.metrics.produce_seconds.observe(0.003)
    edge.parts.metrics.request("Fetch").count.inc()
    families = {f.name: f for f in text_string_to_metric_families((await client.get("/metrics")).text)}
    assert families["floe_produce_seconds"].type == "histogram"
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
