"""A machine with several agents of one configuration, started and watched by one `floe serve`."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.services.floe import FloeAgent
from deploy.services.ports import free_port
from deploy.services.service import answers

DRAWN = 40


def equally_spaced() -> tuple[int, int, int]:
    """Two free ports, and a step by which two more are free above them."""
    drawn = sorted(free_port() for _ in range(DRAWN))
    pairs: dict[int, tuple[int, int]] = {}
    for low, high in itertools.combinations(drawn, 2):
        first = pairs.setdefault(high - low, (low, high))
        if not {low, high} & set(first):
            return first[0], low, high - low
    raise AssertionError(f"no two pairs of {drawn} are as far apart")


class Machine(FloeAgent):
    """Two agents; `bootstrap` and `http` are the first one's, `supervisor` is that of both."""

    def __init__(self, name: str, settings: Mapping[str, Any], directory: Path | None = None) -> None:
        kafka, http, step = equally_spaced()
        port = free_port()
        several = {"name": name, "processes": 2, "port_step": step, "supervisor_port": port}
        listener = {"host": "127.0.0.1", "port": kafka}
        more = {"agent": several, "listeners": [listener], "http": {"host": "127.0.0.1", "port": http}}
        super().__init__(name, {**settings, **more}, directory)
        self.supervisor, self.step = f"http://127.0.0.1:{port}", step
        self.kafka_port, self.http_port = kafka, http
        self.bootstrap, self.http = f"127.0.0.1:{kafka}", f"http://127.0.0.1:{http}"

    @property
    def both(self) -> str:
        """Where clients begin."""
        return f"{self.bootstrap},127.0.0.1:{self.kafka_port + self.step}"

    def ready(self) -> bool:
        """Whether both are."""
        return answers(f"{self.supervisor}/readyz") and all(each["ready"] for each in self.processes())

    def processes(self) -> list[dict[str, Any]]:
        """What the supervisor says of each."""
        found: list[dict[str, Any]] = json.loads(self.asked("/status.json"))["processes"]
        return found

    def asked(self, path: str) -> str:
        """The supervisor's answer."""
        with urllib.request.urlopen(self.supervisor + path, timeout=30) as answer:
            return str(answer.read().decode())
