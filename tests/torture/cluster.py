"""A cluster on this machine: etcd, an S3 server, agents as processes, a breakable link for each pair."""

from __future__ import annotations

import itertools
import json
import os
import urllib.request
from contextlib import ExitStack
from typing import Any, Self

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.ports import free_port
from deploy.services.s3 import S3Service
from tests.equipment.proxy import Proxy
from tests.torture.links import LinkLoop, StoreProxy
from tests.torture.strangers import LISTENER, Flood
from tests.torture.strangers import SETTINGS as STRANGERS

LEASE_S = 3
FAST: dict[str, dict[str, Any]] = {
    "log": {"lease_ttl_s": LEASE_S, "attempt_timeout_ms": 1_000, "silence_ms_max": 1_000},
    "replica": {"heartbeat_ms": 1_000},
    "store": {"request_timeout_ms": 3_000, "connect_timeout_ms": 1_000},
    "tables": {"interval_ms": 1_000},
    "snapshots": {"interval_s": 5},
    "collection": {"interval_s": 5, "grace_s": 1},
    "shutdown": {"drain_ms": 0},
}
"""Everything that takes minutes in production happens many times in a run."""
_numbers = itertools.count(1)


class Member:
    """An agent with its links: to etcd, to the store, and from its clients."""

    def __init__(
        self, agent: FloeAgent, etcd: Proxy, store: StoreProxy, clients: Proxy, strangers: Flood
    ) -> None:
        self.agent = agent
        self.strangers = strangers
        self.etcd = etcd
        self.store = store
        self.clients = clients
        self._read = 0  # bytes of the agent's log that were looked at

    @property
    def links(self) -> tuple[Proxy, ...]:
        """All of them."""
        return (self.etcd, self.store, self.clients)

    def status(self) -> dict[str, Any]:
        """What the agent says of itself."""
        with urllib.request.urlopen(f"{self.agent.http}/status", timeout=10) as response:
            told: dict[str, Any] = json.load(response)
            return told

    def new_lines(self) -> list[str]:
        """What the agent has written to its log since the last call."""
        with open(self.agent.log_path, "rb") as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        return text.decode(errors="replace").splitlines()

    def revision(self) -> int:
        """How far the agent has applied the log."""
        return int(self.status()["revision"])


class Cluster:
    """`agents` agents over one etcd and one S3 server. `bootstrap` lists the agents' client links."""

    def __init__(
        self,
        agents: int = 3,
        settings: dict[str, dict[str, Any]] | None = None,
        store: S3Service | None = None,
        agent: type[FloeAgent] = FloeAgent,
    ) -> None:
        self._count = agents
        self._settings = settings or {}
        self._agent = agent
        self._stack = ExitStack()
        self.members: list[Member] = []
        self.ended: list[str] = []  # agents that ended by themselves, and their last words
        self.etcd = Etcd()
        self.store = store or Minio()
        self.links = LinkLoop()

    @property
    def bootstrap(self) -> str:
        """For clients: the faulty way, through the links."""
        return ",".join(member.clients.address for member in self.members)

    @property
    def log_url(self) -> str:
        """The log without a link in between, for audits."""
        return f"etcd://{self.etcd.endpoint}/floe"

    @property
    def store_url(self) -> str:
        """The store, for audits with `store_options`."""
        return f"s3://{self.bucket}/floe"

    @property
    def store_options(self) -> dict[str, Any]:
        """Options of open_store() without a link in between."""
        store = self.store
        account = {"access_key": store.access_key, "secret_key": store.secret_key}
        return {"endpoint": store.endpoint, "allow_http": True, **account}

    @property
    def opened(self) -> tuple[str, str, dict[str, Any]]:
        """Log, store and the store's options, as audits open them."""
        return self.log_url, self.store_url, self.store_options

    @property
    def s3_properties(self) -> dict[str, str]:
        """What pyiceberg needs to read the tables' files without a link in between."""
        return {
            "s3.endpoint": self.store.endpoint,
            "s3.access-key-id": self.store.access_key,
            "s3.secret-access-key": self.store.secret_key,
            "s3.region": self.store.region,
        }

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.etcd)
            stack.enter_context(self.store)
            stack.enter_context(self.links)
            self.bucket = self.store.make_bucket(f"torture-{os.getpid()}-{next(_numbers)}")
            for index in range(self._count):
                self.members.append(self._member(index, stack))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _member(self, index: int, stack: ExitStack) -> Member:
        etcd = self.links.link(self.etcd.port)
        store = self.links.link(self.store.port, store=True)
        assert isinstance(store, StoreProxy)
        kafka_port, strangers = free_port(), Flood(free_port())
        clients = self.links.link(kafka_port)
        settings: dict[str, Any] = clustered(
            etcd=etcd.address,
            bucket_url=self.store_url,
            store=self.store,
            s3_endpoint=f"http://{store.address}",
        )
        settings["listeners"] = [
            {
                "host": "127.0.0.1",
                "port": kafka_port,
                "advertised_host": "127.0.0.1",
                "advertised_port": clients.port,
            },
            {**LISTENER, "port": strangers.port},
        ]
        for source in (FAST, STRANGERS, self._settings):
            for section, values in source.items():
                settings[section] = {**settings.get(section, {}), **values}
        agent = self._agent(f"agent-{index}", settings)
        stack.enter_context(agent)
        return Member(agent, etcd, store, clients, strangers)

    def heal(self) -> None:
        """End every fault: links whole, processes running. Notes agents that ended by themselves."""
        for member in self.members:
            self.links.do(member.strangers.end)
            for link in member.links:
                self.links.do(link.heal)
        for service in (self.etcd, self.store, *(member.agent for member in self.members)):
            if service.ended_by_itself is not None:
                self.ended.append(f"{service.name}, status {service.ended_by_itself}: {service.log_tail(5)}")
            if not service.running:
                service.start()
            elif service.paused:
                service.resume()
