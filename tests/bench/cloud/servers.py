"""The servers behind the delays: an object store, and an etcd of three members with a millisecond between."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from deploy.services import Etcd, Minio
from deploy.services.etcd import EtcdCluster
from deploy.services.floe import FloeAgent, clustered
from deploy.services.ports import free_port
from deploy.services.service import Service, answers

ROOT = Path(__file__).resolve().parents[3]


class Delays(Service):
    """tests/bench/cloud/proxy.py as a process. `pairs`: ports that it listens on, and what is behind them."""

    name = "delays"

    def __init__(self, pairs: Sequence[tuple[int, int]], profile: str = "", seed: int = 1) -> None:
        super().__init__()
        self._pairs, self._profile, self._seed = pairs, profile, seed
        self.endpoint = f"http://127.0.0.1:{pairs[0][0]}"

    def command(self) -> list[str]:
        """The proxy with this interpreter."""
        words = [sys.executable, "-m", "tests.bench.cloud.proxy", f"--seed={self._seed}"]
        words += [f"--pair={port}:{target}" for port, target in self._pairs]
        return [*words, f"--profile={self._profile}"] if self._profile else words

    def environment(self) -> dict[str, str]:
        """With the tree in Python's path."""
        return {**super().environment(), "PYTHONPATH": str(ROOT)}

    def ready(self) -> bool:
        """A link has nothing to ask; etcd dials again and again."""
        return not self._profile or answers(f"{self.endpoint}/floe-bench-counts")

    def counts(self) -> dict[str, int]:
        """Requests so far, by method and `chunk` or `other`."""
        with urllib.request.urlopen(f"{self.endpoint}/floe-bench-counts", timeout=10) as answer:
            found: dict[str, int] = json.load(answer)
            return found


class FarEtcd(Etcd):
    """A member whose peers find it behind a link."""

    def __init__(self) -> None:
        super().__init__()
        self.far_port = free_port()

    @property
    def peer_url(self) -> str:
        """The link's near end."""
        return f"http://127.0.0.1:{self.far_port}"

    def command(self) -> list[str]:
        """Listening at the far end of it."""
        listen = f"--listen-peer-urls=http://127.0.0.1:{self.peer_port}"
        return [listen if word.startswith("--listen-peer-urls=") else word for word in super().command()]


class FarEtcdCluster(EtcdCluster):
    """Three members in three zones."""

    def __init__(self) -> None:
        far = [FarEtcd() for _ in range(3)]
        self.members = [*far]
        for member in far:
            member.peers = self.members
        self._links = Delays([(member.far_port, member.peer_port) for member in far])

    def start(self) -> Self:
        """The links, then the members."""
        self._links.start()
        try:
            return super().start()
        except BaseException:
            self._links.stop()
            raise

    def stop(self) -> None:
        """All of it."""
        super().stop()
        self._links.stop()


class Cloud:
    """etcd, MinIO and the delays of one profile; `agent` starts agents of a cluster of their own."""

    def __init__(self, profile: str, seed: int = 1) -> None:
        self.profile, self._seed = profile, seed
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.etcd = stack.enter_context(FarEtcdCluster())
            self.minio = stack.enter_context(Minio())
            self.delays = stack.enter_context(
                Delays([(free_port(), self.minio.port)], self.profile, self._seed)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def cluster(self, name: str, zones: Sequence[str], produce: dict[str, Any]) -> list[FloeAgent]:
        """An agent in each of the zones, with these settings of the produce path; they end with the cloud."""
        bucket = self.minio.make_bucket(f"cloud-{name}")
        tree = clustered(
            etcd=",".join(self.etcd.endpoints),
            bucket_url=f"s3://{bucket}/floe",
            store=self.minio,
            s3_endpoint=self.delays.endpoint,
        )
        tree["log"]["url"] = f"etcd://{','.join(self.etcd.endpoints)}/{name}"
        tree |= {"logging": {"level": "warning"}, "tables": {"enabled": False}, "produce": produce}
        agents = []
        for zone in zones:
            settings = {**tree, "agent": {"name": f"{name}-{zone}", "zone": zone}}
            agents.append(self._stack.enter_context(FloeAgent(f"{name}-{zone}", settings)))
        return agents
