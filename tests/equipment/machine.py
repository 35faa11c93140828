"""A machine with several agents of one configuration, started and watched by one `floe serve`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.services.floe import FloeAgent
from deploy.services.ports import free_port
from deploy.services.service import answers

DRAWN_PER_PROCESS = 25


def equally_spaced(processes: int) -> tuple[int, int, int]:
    """Two free ports, and a step by which one more is free above them for each further process."""
    drawn = {free_port() for _ in range(DRAWN_PER_PROCESS * processes)}
    low, high = min(drawn), max(drawn)
    for step in range(1, high - low):
        found: list[set[int]] = []
        for port in sorted(drawn):
            ports = {port + number * step for number in range(processes)}
            if ports <= drawn and not any(ports & other for other in found):
                found.append(ports)
            if len(found) == 2:
                return min(found[0]), min(found[1]), step
    raise AssertionError(f"no two rows of {processes} among {sorted(drawn)} have one step")


class Machine(FloeAgent):
    """Several agents; `bootstrap` and `http` are the first one's, `supervisor` is that of all."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], directory: Path | None = None, processes: int = 2
    ) -> None:
        kafka, http, step = equally_spaced(processes)
        port = free_port()
        several = {"name": name, "processes": processes, "port_step": step, "supervisor_port": port}
        listener = {"host": "127.0.0.1", "port": kafka}
        more = {"agent": several, "listeners": [listener], "http": {"host": "127.0.0.1", "port": http}}
        super().__init__(name, {**settings, **more}, directory)
        self.supervisor, self.step, self._count = f"http://127.0.0.1:{port}", step, processes
        self.kafka_port, self.http_port = kafka, http
        self.bootstrap, self.http = f"127.0.0.1:{kafka}", f"http://127.0.0.1:{http}"

    @property
    def everywhere(self) -> str:
        """Where clients begin."""
        return ",".join(f"127.0.0.1:{self.kafka_port + each * self.step}" for each in range(self._count))

    def ready(self) -> bool:
        """Whether all are."""
        return answers(f"{self.supervisor}/readyz") and all(each["ready"] for each in self.processes())

    def processes(self) -> list[dict[str, Any]]:
        """What the supervisor says of each."""
        found: list[dict[str, Any]] = json.loads(self.asked("/status.json"))["processes"]
        return found

    def asked(self, path: str) -> str:
        """The supervisor's answer."""
        with urllib.request.urlopen(self.supervisor + path, timeout=30) as answer:
            return str(answer.read().decode())
