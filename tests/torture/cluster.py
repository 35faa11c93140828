"""A cluster on this machine: etcd, an S3 server, agents as processes, a breakable link for each pair."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from typing import Any, Self

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.service import free_port
from tests.equipment.proxy import Proxy
from tests.torture.links import LinkLoop, StoreProxy

_numbers = itertools.count(1)


class Member:
    """An agent with its links: to etcd, to the store, and from its clients."""

    def __init__(self, agent: FloeAgent, etcd: Proxy, store: StoreProxy, clients: Proxy) -> None:
        self.agent = agent
        self.etcd = etcd
        self.store = store
        self.clients = clients

    @property
    def links(self) -> tuple[Proxy, ...]:
        """All of them."""
        return (self.etcd, self.store, self.clients)


class Cluster:
    """`agents` agents over one etcd and one MinIO. `bootstrap` lists the agents' client links."""

    def __init__(self, agents: int = 3, settings: dict[str, dict[str, Any]] | None = None) -> None:
        self._count = agents
        self._settings = settings or {}
        self._stack = ExitStack()
        self.members: list[Member] = []
        self.etcd = Etcd()
        self.store = Minio()
        self.links = LinkLoop()

    @property
    def bootstrap(self) -> str:
        """For clients: the faulty way, through the links."""
        return ",".join(member.clients.address for member in self.members)

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
        kafka_port = free_port()
        clients = self.links.link(kafka_port)
        settings: dict[str, Any] = clustered(
            etcd=etcd.address,
            bucket_url=f"s3://{self.bucket}/floe",
            s3_endpoint=f"http://{store.address}",
            access_key=self.store.access_key,
            secret_key=self.store.secret_key,
        )
        settings["log"] |= {"lease_ttl_s": 3, "attempt_timeout_ms": 1_000, "silence_ms_max": 1_000}
        settings["replica"] = {"heartbeat_ms": 1_000}
        settings["store"] |= {"request_timeout_ms": 3_000, "connect_timeout_ms": 1_000}
        settings["listeners"] = [
            {
                "host": "127.0.0.1",
                "port": kafka_port,
                "advertised_host": "127.0.0.1",
                "advertised_port": clients.port,
            }
        ]
        for section, values in self._settings.items():
            settings[section] = {**settings.get(section, {}), **values}
        agent = FloeAgent(f"agent-{index}", settings)
        stack.enter_context(agent)
        return Member(agent, etcd, store, clients)

    def heal(self) -> None:
        """End every fault: links whole, processes running."""
        for member in self.members:
            for link in member.links:
                self.links.do(link.heal)
        for service in (self.etcd, self.store, *(member.agent for member in self.members)):
            if not service.running:
                service.start()
            elif service.paused:
                service.resume()
