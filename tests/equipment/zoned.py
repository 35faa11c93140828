"""A cluster whose agents are in zones: etcd, an S3 server, one process per agent."""

from __future__ import annotations

import itertools
import json
import os
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from agent.telemetry.figures import READS
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered

SETTLE_S_MAX = 120
_numbers = itertools.count(1)


class Zoned:
    """One agent per element of `zones`, in that zone; `roles` and other settings by section."""

    def __init__(
        self, zones: Sequence[str], *, roles: Sequence[str] = (), settings: dict[str, Any] | None = None
    ) -> None:
        self.zones = list(zones)
        self._roles = list(roles) or ["all"] * len(self.zones)
        self._settings = settings or {}
        self._stack = ExitStack()
        self.agents: list[FloeAgent] = []

    @property
    def bootstrap(self) -> str:
        """All agents."""
        return ",".join(agent.bootstrap for agent in self.agents)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.etcd, self.store = stack.enter_context(Etcd()), stack.enter_context(Minio())
            bucket = self.store.make_bucket(f"zones-{os.getpid()}-{next(_numbers)}")
            base: dict[str, Any] = clustered(
                etcd=self.etcd.endpoint,
                bucket_url=f"s3://{bucket}/floe",
                store=self.store,
            )
            base["tables"] = {"enabled": False}
            base.update(self._settings)
            for index, (zone, roles) in enumerate(zip(self.zones, self._roles, strict=True)):
                name = f"agent-{index}"
                tree = {**base, "agent": {"name": name, "zone": zone, "roles": roles}}
                self.agents.append(stack.enter_context(FloeAgent(name, tree)))
            self.settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def settle(self) -> None:
        """Wait until every agent knows that all of them are there: each is ready for itself before that."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while any(
            sum(broker["named"] for broker in status(agent)["brokers"]) < len(self.agents)
            for agent in self.agents
        ):
            assert time.monotonic() < deadline, "agents do not hear of each other"
            time.sleep(0.05)

    def of_zone(self, zone: str) -> list[FloeAgent]:
        """The agents of a zone."""
        return [agent for agent, place in zip(self.agents, self.zones, strict=True) if place == zone]


def status(agent: FloeAgent) -> dict[str, Any]:
    """What the agent says of itself."""
    with urllib.request.urlopen(f"{agent.http}/status", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def reads(agent: FloeAgent) -> dict[str, float]:
    """What it read, by the names of figures.READS, and the chunks and record bytes that it wrote and sent."""
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    others = {
        "floe_chunk_bytes_count": "chunks",
        "floe_produce_bytes_total": "produced",
        "floe_fetch_bytes_total": "fetched",
    }
    names = {place: name for name, place in READS.items()}
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            place = (sample.name.removeprefix("floe_").removesuffix("_total"), tuple(sample.labels.values()))
            if place in names:
                found[names[place]] = sample.value
            elif sample.name in others:
                found[others[sample.name]] = sample.value
    return found


def bucket_reads(counts: dict[str, float]) -> float:
    """Requests that read records from the bucket."""
    return counts["gets"] + counts.get("whole_gets", 0)  # the latter only with peers
