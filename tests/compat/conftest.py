"""Agents in processes of their own, for tests that bring real Kafka clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.services import Etcd, Minio, guardian
from deploy.services.kafka import Kafka
from deploy.services.launching import Process, launch
from deploy.services.ports import free_port
from tests.compat.cluster import Cluster
from tests.equipment import left_behind

SETTINGS = (
    "tables.enabled=false",
    "logging.level=warning",
    "shutdown.drain_ms=10",
)
START_S_MAX = 120.0


@dataclass(frozen=True)
class Embedded:
    """A running agent: addresses, its process and its folder."""

    bootstrap: str
    http: str
    process: Process
    data: Path

    def status(self) -> dict[str, object]:
        """What /status.json says."""
        with urllib.request.urlopen(f"{self.http}/status.json", timeout=60) as answer:
            found: dict[str, object] = json.load(answer)
            return found


def start(data: Path, *settings: str, module: Sequence[str] = ("agent",)) -> Embedded:
    """`floe dev` on free ports, ready to serve. `module`: what is run as `floe`, with what comes first."""
    kafka, http = free_port(), free_port()
    command = [sys.executable, "-m", *module, "dev", "--data-dir", str(data)]
    command += ["--kafka-port", str(kafka), "--http-port", str(http)]
    for setting in (*SETTINGS, *settings):
        command += ["--set", setting]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    process = launch(command, cwd=Path.cwd(), env=environment, log=data.parent / "agent.log")
    guardian.guard(process.pid)
    agent = Embedded(f"127.0.0.1:{kafka}", f"http://127.0.0.1:{http}", process, data)
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{agent.http}/readyz", timeout=1):
                return agent
        except OSError:
            time.sleep(0.05)
    stop(agent)
    raise AssertionError(f"the agent did not start:\n{(data.parent / 'agent.log').read_text()}")


def stop(agent: Embedded) -> int:
    """SIGTERM, then its exit status."""
    if agent.process.poll() is None:
        agent.process.send_signal(signal.SIGTERM)
    try:
        return agent.process.wait(30)
    except subprocess.TimeoutExpired:
        agent.process.kill()
        agent.process.wait(10)
        raise
    finally:
        guardian.release(agent.process.pid)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent shared by the session: use topics of your own."""
    agent = start(tmp_path_factory.mktemp("embedded") / "data")
    yield agent
    assert stop(agent) == 0


@pytest.fixture(scope="session")
def cluster(etcd: Etcd, minio: Minio) -> Iterator[Cluster]:
    """Two agents on etcd and MinIO shared by the session: use topics of your own. Do not break it."""
    with Cluster(etcd, minio) as running:
        yield running


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Apache Kafka itself, shared by the session: use topics of your own."""
    with Kafka(settings=("group.initial.rebalance.delay.ms=0",)) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Agents are processes of their own; here are the clients."""
    left_behind.allow(items, Path(__file__).parent)
