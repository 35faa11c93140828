"""What faults are made on: three agents, one over three members of etcd, and an embedded one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from agent.config import embedded_values
from deploy.services import Minio
from deploy.services.etcd import EtcdCluster
from deploy.services.floe import FloeAgent, clustered
from tests.equipment.certificates import Authority, Pair
from tests.torture.cluster import Cluster
from tests.torture.jumping_agent import JumpingAgent
from tests.torture.late_ends import Agent
from tests.torture.pauses import as_configured
from tests.torture.run import create_topic
from tests.torture.test_disk_full import SmallFiles
from tests.torture.workload import Writer

TOPIC, PARTITIONS = "alarms", (0, 1, 2)
RATE, SIZE = 50, 200
QUOTA_BYTES = 16 << 20
ENOUGH_DAYS = 30


class Rig(ABC):
    """Agents with a little load. Use as a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    @abstractmethod
    def agents(self) -> Sequence[FloeAgent]:
        """Whom Prometheus scrapes."""

    @property
    def targets(self) -> list[str]:
        """host:port of each agent's HTTP."""
        return [agent.http.removeprefix("http://") for agent in self.agents()]

    @abstractmethod
    def open(self, stack: ExitStack) -> None:
        """Start everything; what has to end goes on the stack."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _load(bootstrap: str, stack: ExitStack, settings: dict[str, Any] | None = None) -> None:
    """A few records every second, for as long as the rig stands. `settings`: of the client."""
    settings = settings or {}
    create_topic(bootstrap, TOPIC, len(PARTITIONS), **settings)
    writer = Writer("load", bootstrap, TOPIC, PARTITIONS, rate=RATE, size=SIZE, **settings)
    writer.start()
    stack.callback(writer.stop)


class Three(Rig):
    """Three agents with breakable links, and their makers' patience with etcd and the store."""

    cluster: Cluster

    def open(self, stack: ExitStack) -> None:
        self.cluster = stack.enter_context(Cluster(3, as_configured(), agent=JumpingAgent))
        _load(self.cluster.bootstrap, stack)

    def agents(self) -> Sequence[FloeAgent]:
        return [member.agent for member in self.cluster.members]


class Quorum(Rig):
    """An agent over three members of etcd, which hold QUOTA_BYTES each."""

    etcd: EtcdCluster
    agent: FloeAgent

    def open(self, stack: ExitStack) -> None:
        self.etcd = EtcdCluster()
        for member in self.etcd.members:
            member.quota_bytes = QUOTA_BYTES
        stack.enter_context(self.etcd)
        store = stack.enter_context(Minio())
        bucket = f"s3://{store.make_bucket('alarms')}/floe"
        settings = clustered(etcd=",".join(self.etcd.endpoints), bucket_url=bucket, store=store)
        self.agent = stack.enter_context(Agent("quorum", settings))
        _load(self.agent.bootstrap, stack)

    def agents(self) -> Sequence[FloeAgent]:
        return [self.agent]


class Embedded(Rig):
    """An agent alone, whose disk can be full, behind TLS."""

    agent: SmallFiles

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.authority = Authority(folder / "ca")
        self.pair = self.authority.pair("agent", days=ENOUGH_DAYS)

    def open(self, stack: ExitStack) -> None:
        settings = embedded_values(self._folder / "disk", kafka_port=0, http_port=0)
        for filled_in in ("agent", "listeners", "http"):
            del settings[filled_in]
        self.agent = SmallFiles("embedded", settings, self._folder, file_kib_max=0)
        text = self.agent.config_file.read_text()
        plain = "- host: 127.0.0.1\n"
        assert plain in text, text
        tls = f"- protocol: SSL\n  tls_cert_file: {self.pair.cert}\n  tls_key_file: {self.pair.key}\n"
        self.agent.config_file.write_text(text.replace(plain, f"{tls}  host: 127.0.0.1\n", 1))
        stack.enter_context(self.agent)
        trusted = {"security.protocol": "SSL", "ssl.ca.location": str(self.authority.cert)}
        _load(self.agent.bootstrap, stack, trusted)

    def show(self, pair: Pair) -> None:
        """Renew the listener's certificate on the disk."""
        for fresh, old in ((pair.key, self.pair.key), (pair.cert, self.pair.cert)):
            if fresh != old:
                old.write_bytes(fresh.read_bytes())

    def agents(self) -> Sequence[FloeAgent]:
        return [self.agent]
