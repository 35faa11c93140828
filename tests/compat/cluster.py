"""A cluster for real clients: etcd, an S3 server and two or three agents, each a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from deploy.services import Etcd
from deploy.services.floe import FloeAgent, clustered
from deploy.services.s3 import S3Service

_numbers = itertools.count(1)


class Cluster:
    """Agents over a given etcd and S3 server, under a cluster name and a bucket of their own.

    With a `directory` an agent that was stopped can be started again.
    """

    def __init__(
        self,
        etcd: Etcd,
        store: S3Service,
        agents: int = 2,
        directory: Path | None = None,
        kind: type[FloeAgent] = FloeAgent,
        more: dict[str, dict[str, object]] | None = None,
        **log: object,
    ) -> None:
        """`kind`: of the agents; `more`: sections of settings; `log`: settings of their log section."""
        number = f"{os.getpid()}-{next(_numbers)}"
        settings: dict[str, Any] = clustered(
            etcd=etcd.endpoint,
            bucket_url=f"s3://{store.make_bucket(f'compat-{number}')}/floe",
            store=store,
        )
        self.log_url = f"etcd://{etcd.endpoint}/compat-{number}"
        settings["log"] = {"url": self.log_url, **log}
        settings["tables"] = {"enabled": False}
        settings["shutdown"] = {"drain_ms": 100}
        settings.update(more or {})
        names = [f"agent-{index}" for index in range(agents)]
        self.agents = [kind(name, settings, directory and directory / name) for name in names]
        self._stack = ExitStack()

    @property
    def bootstrap(self) -> str:
        """All agents."""
        return ",".join(agent.bootstrap for agent in self.agents)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for agent in self.agents:
                stack.enter_context(agent)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def status(agent: FloeAgent) -> dict[str, Any]:
    """What the agent's /status.json says."""
    with urllib.request.urlopen(f"{agent.http}/status.json", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
