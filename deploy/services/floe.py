"""A Floe agent as a child process, for local clusters and for tests that kill it."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.services.ports import free_port
from deploy.services.s3 import S3Service
from deploy.services.service import Service, answers


def clustered(*, etcd: str, bucket_url: str, store: S3Service, s3_endpoint: str = "") -> dict[str, Any]:
    """The settings of an agent on etcd and an S3-compatible server, as a tree for FloeAgent.

    `s3_endpoint`: where the server is reached when not directly, such as a proxy's URL.
    """
    return {
        "log": {"url": f"etcd://{etcd}/floe"},
        "store": {
            "url": bucket_url,
            "endpoint": s3_endpoint or store.endpoint,
            "access_key": store.access_key,
            "secret_key": store.secret_key,
            "allow_http": True,
        },
    }


class FloeAgent(Service):
    """`bootstrap` is host:port for Kafka clients, `http` the URL of health, metrics and the catalog.

    `settings` is a configuration tree (docs/configuration.md); addresses and name are filled in.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, object],
        directory: Path | None = None,
        *,
        listener: Mapping[str, object] | None = None,
        ca: Path | None = None,
    ) -> None:
        """`listener`: settings of the one listener beside its address. `ca`: its HTTP speaks TLS."""
        self.name = name
        super().__init__(directory)
        self.kafka_port = free_port()
        self.http_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.kafka_port}"
        self.http = f"{'https' if ca else 'http'}://127.0.0.1:{self.http_port}"
        self._context = ssl.create_default_context(cafile=str(ca)) if ca else None
        door = {"host": "127.0.0.1", "port": self.kafka_port, **(listener or {})}
        tree: dict[str, Any] = {
            "agent": {"name": name},
            "listeners": [door],
            "http": {"host": "127.0.0.1", "port": self.http_port},
            "logging": {"format": "json"},
        }
        for section, values in settings.items():
            base = tree.get(section)
            merged = {**base, **values} if isinstance(base, dict) and isinstance(values, dict) else values
            tree[section] = merged
        self._tree = tree
        self.config_file = self.directory / f"{name}.yaml"
        self.config_file.touch(mode=0o600)  # it may hold passwords
        self.config_file.write_text(yaml.safe_dump(tree))

    def move(self) -> None:
        """Have the next start be under another address, as that of a pod that was replaced."""
        self.kafka_port = self._tree["listeners"][0]["port"] = free_port()
        self.bootstrap = f"127.0.0.1:{self.kafka_port}"
        self.config_file.write_text(yaml.safe_dump(self._tree))

    def command(self) -> list[str]:
        """`floe serve` with this agent's file."""
        return [sys.executable, "-m", "agent", "serve", "--config", str(self.config_file)]

    def ready(self) -> bool:
        """Whether it follows the log and reaches the bucket."""
        return answers(f"{self.http}/readyz", self._context)

    def alive(self) -> bool:
        """Whether the process itself answers, whatever it waits for."""
        return answers(f"{self.http}/livez", self._context)
