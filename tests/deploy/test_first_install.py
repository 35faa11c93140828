"""An agent that is there before etcd, store and bucket: it waits, alive, says for what, and then serves."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from tests.deploy.test_chart import CHART, agents_of, pod_of

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

ETCD_LATE_S = 20
BUCKET = "late-bucket"
STORY = (
    ("waiting for the log", "warning"),
    ("the log answers", "info"),
    ("waiting for the store", "warning"),
    ("the store answers", "info"),
    ("serving", "info"),
)
"""Lines of the agent, in their order, with their level."""


class Early(FloeAgent):
    """One that is started while nothing is there that it needs: up is what answers at all."""

    def ready(self) -> bool:
        """Whether the process answers."""
        return self.alive()


async def told(agent: FloeAgent, until: Callable[[str], bool]) -> str:
    """What `/readyz` says, once it says so."""
    async with httpx.AsyncClient(timeout=10) as client:
        while True:
            answer = await client.get(f"{agent.http}/readyz")
            reasons = "; ".join(answer.json()["reasons"])
            assert bool(reasons) is (answer.status_code == 503)
            if until(reasons):
                return reasons
            assert agent.running, agent.log_tail()
            await asyncio.sleep(0.2)


async def lives(agent: FloeAgent, seconds: float) -> None:
    """The kubelet's startup and liveness probes, for so long: one failure would be a restart some day."""
    async with httpx.AsyncClient(timeout=5) as client:
        for _ in range(int(seconds / 2)):
            assert (await client.get(f"{agent.http}/livez")).status_code == 200
            await asyncio.sleep(2)


def lines(agent: FloeAgent) -> list[tuple[str, str]]:
    """Event and level of what it wrote."""
    found = [json.loads(each) for each in agent.log_path.read_text().splitlines()]
    return [(each["event"], each["level"]) for each in found]


def ended(agent: FloeAgent) -> list[tuple[str, str]]:
    """The whole story: it is ready a moment before it says so."""
    while STORY[-1] not in (said := lines(agent)):
        time.sleep(0.05)
    return said


async def test_an_agent_outwaits_etcd_the_store_and_the_bucket(tmp_path: Path) -> None:
    etcd, store = Etcd(tmp_path / "etcd"), Minio(tmp_path / "minio")
    settings = clustered(etcd=etcd.endpoint, bucket_url=f"s3://{BUCKET}/a", store=store)
    agent = Early("early", settings, tmp_path / "agent")
    await asyncio.to_thread(agent.start)
    first = agent.pid
    try:
        waits = await told(agent, lambda reasons: "waits for" in reasons)
        assert "this agent waits for the log, and starts once it is there: " in waits
        await lives(agent, ETCD_LATE_S)
        await asyncio.to_thread(etcd.start)
        waits = await told(agent, lambda reasons: "waits for the log" not in reasons)
        waits = await told(agent, lambda reasons: "waits for the store" in reasons)
        await asyncio.to_thread(store.start)
        remedy = "the bucket does not exist; `floe bucket prepare` makes it"
        waits = await told(
            agent, lambda reasons: remedy in reasons
        )  # a store that has just begun says others
        await lives(agent, 6)
        store.make_bucket(BUCKET)
        assert await told(agent, lambda reasons: not reasons) == ""
        assert agent.pid == first
        os.kill(first, 0)
        said = await asyncio.to_thread(ended, agent)
        places = [said.index(line) for line in STORY]
        assert places == sorted(places), said
        assert len(said) < 30, "a line when it begins and ends, and one a minute"
    finally:
        for each in (agent, store, etcd):
            await asyncio.to_thread(each.stop)


def test_no_probe_of_the_chart_asks_what_an_agent_waits_for(tmp_path: Path) -> None:
    """Only readiness does, which restarts nothing; why an agent ends `kubectl describe` says."""
    ((workload, _),) = agents_of(CHART / "ci" / "minimal.yaml", tmp_path)
    agent = pod_of(workload)["containers"][0]
    asked = {kind: agent[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert asked == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert agent["terminationMessagePolicy"] == "FallbackToLogsOnError"
