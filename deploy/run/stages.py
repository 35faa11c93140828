"""Where the job runs: Floe embedded in one process, or a cluster of three agents on etcd and MinIO."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

from deploy.run.secure import Secured
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.ports import free_port
from deploy.services.service import Service, answers
from iceberg.spark.session import S3Access

AGENTS = 3
KILL_AT = 0.3
PAUSE_AT = 0.5
PAUSE_SECONDS = 6.0
LEASE_SECONDS = 3
SECURED = "; TLS everywhere, SCRAM, ACLs enforced, OAuth2 and lent keys for Spark"


class Stage(Protocol):
    """A running Floe, as its clients see it."""

    title: str
    bootstrap: str
    http: list[str]
    s3: S3Access | None
    secured: Secured | None

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def loaded(self, share: float) -> None:
        """Called as the load goes on, with the share of records acknowledged: time for faults."""
        ...


def file_io(stage: Stage) -> dict[str, str]:
    """pyiceberg's properties for reaching the tables' files."""
    if stage.s3 is None:
        return {}
    s3 = asdict(stage.s3)
    return {
        "s3.endpoint": s3["endpoint"],
        "s3.access-key-id": s3["access_key"],
        "s3.secret-access-key": s3["secret_key"],
        "s3.region": s3["region"],
    }


class _Dev(Service):
    """`floe dev`."""

    name = "floe"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.kafka_port = free_port()
        self.http_port = free_port()

    def command(self) -> list[str]:
        ports = ["--kafka-port", str(self.kafka_port), "--http-port", str(self.http_port)]
        return [sys.executable, "-m", "agent", "dev", "--data-dir", str(self.directory / "data"), *ports]

    def ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.http_port}/readyz")


class Embedded:
    """One process on SQLite and a local folder."""

    title = "floe dev: one process, SQLite and a local folder"
    s3: S3Access | None = None
    secured: Secured | None = None

    def __init__(self, directory: Path) -> None:
        self._dev = _Dev(directory)
        self.bootstrap = f"127.0.0.1:{self._dev.kafka_port}"
        self.http = [f"http://127.0.0.1:{self._dev.http_port}"]

    def __enter__(self) -> Self:
        self._dev.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._dev.stop()

    def loaded(self, share: float) -> None:
        """Nothing goes wrong here."""


class Cluster:
    """Three agents behind one bootstrap list; one is killed and one paused in the middle of the load."""

    title = "three agents on etcd and MinIO, one killed and one paused during the load"

    def __init__(self, directory: Path, on_fault: Callable[[str], None], *, secure: bool = False) -> None:
        """`secure`: TLS everywhere, logins, ACLs (deploy/run/secure.py)."""
        self._directory = directory
        self.secured = Secured(directory / "secrets") if secure else None
        if self.secured is not None:
            self.title += SECURED
        self._on_fault = on_fault
        self._stack = ExitStack()
        self._faults: dict[float, Callable[[], None]] = {KILL_AT: self._kill, PAUSE_AT: self._pause}
        self._resume: threading.Timer | None = None
        self.s3: S3Access | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            etcd = stack.enter_context(self._etcd())
            minio = stack.enter_context(self._minio())
            settings = self._settings(etcd, minio)
            listener = self.secured.listener if self.secured else None
            ca = self.secured.authority.cert if self.secured else None
            self._agents = [
                FloeAgent(name, settings, self._directory / name, listener=listener, ca=ca)
                for name in (f"agent-{number}" for number in range(AGENTS))
            ]
            for agent in self._agents:
                stack.enter_context(agent)
            self.bootstrap = ",".join(agent.bootstrap for agent in self._agents)
            if self.secured is not None:
                self.secured.let_in(self.bootstrap)
            self._stack = stack.pop_all()
        self.http = [agent.http for agent in self._agents]
        self.s3 = S3Access(minio.endpoint, minio.access_key, minio.secret_key, minio.region)
        return self

    def __exit__(self, *_: object) -> None:
        if self._resume is not None:
            self._resume.cancel()
        self._stack.close()

    def loaded(self, share: float) -> None:
        """Kill one agent at KILL_AT, pause another at PAUSE_AT for PAUSE_SECONDS. The first one stays."""
        for due in sorted(self._faults):
            if share >= due:
                self._faults.pop(due)()

    def _etcd(self) -> Etcd:
        return Etcd(self._directory / "etcd", tls=self.secured.etcd if self.secured else None)

    def _minio(self) -> Minio:
        where = self._directory / "minio"
        if self.secured is None:
            return Minio(where)
        pair = self.secured.minio
        return Minio(where, ca=self.secured.authority.cert, cert=pair.cert, key=pair.key)

    def _settings(self, etcd: Etcd, minio: Minio) -> Mapping[str, Any]:
        bucket = minio.make_bucket("floe-run")
        settings: dict[str, Any] = clustered(
            etcd=etcd.endpoint,
            bucket_url=f"s3://{bucket}/run",
            store=minio,
        )
        settings["log"]["lease_ttl_s"] = LEASE_SECONDS
        settings["replica"] = {"heartbeat_ms": LEASE_SECONDS * 300}
        settings["tables"] = {"interval_ms": 1_000}
        for section, more in (self.secured.settings() if self.secured else {}).items():
            settings[section] = {**settings.get(section, {}), **more}
        return settings

    def _kill(self) -> None:
        self._on_fault(f"SIGKILL of {self._agents[1].name}")
        self._agents[1].kill()

    def _pause(self) -> None:
        paused = self._agents[2]
        self._on_fault(f"SIGSTOP of {paused.name}")
        paused.pause()
        self._resume = threading.Timer(PAUSE_SECONDS, self._wake, (paused,))
        self._resume.start()

    def _wake(self, paused: FloeAgent) -> None:
        self._on_fault(f"SIGCONT of {paused.name}")
        paused.resume()
