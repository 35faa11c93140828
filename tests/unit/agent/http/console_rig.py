"""An agent with both of its sides for tests of the console: HTTP that asks who it is, and Kafka's records."""

from __future__ import annotations

import asyncio
import html.parser
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from agent.health.standing import Standing
from agent.kafka.asking import Asking
from agent.kafka.assembly import assemble, open_reader
from agent.kafka.showing import Showing
from agent.net.doors import keys_of
from coordination.commands import AclBinding, AddToTransaction, CommitOffsets, CreateAcls, InitTransactions
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from coordination.state.types import Done
from iceberg.committer import Committer, CommitterOptions
from iceberg.committer import Parts as TableParts
from iceberg.warehouse import Warehouse
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, chunk_key
from objectstore.reader import ChunkReader
from objectstore.store import Buffer
from tests.unit.agent.http.closed import closed_agent
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.rig import Agent


@asynccontextmanager
async def console(folder: Path, mode: str = "off", **more: Any) -> AsyncIterator[tuple[Edge, Agent]]:
    """The HTTP side of `closed_agent`, and Kafka's over the same replica. `mode`: of the authorizer."""
    async with closed_agent(folder, mode, **more) as edge:
        parts = edge.parts
        reader = open_reader(parts.config, edge.store)

        async def put(chunk: ChunkId, content: Sequence[Buffer]) -> None:
            await edge.store.put(chunk_key(chunk), content)

        standing = Standing(parts.config, parts.replica, parts.health, asyncio.get_running_loop().time)
        services = assemble(
            parts.config,
            parts.clock,
            parts.replica,
            reader,
            MergedRanges(edge.store),
            put,
            bytes(16),
            parts.metrics,
            standing,
            keys=keys_of(parts.config, parts.metrics),
        )
        services.groups.start()
        showing = Showing(services)
        edge.have(kafka=lambda: showing, asked=lambda: Asking(services))
        agent = Agent(services, edge.log)
        agent.client.principal = "root"
        yield edge, agent
        await services.groups.stop()
        await services.produce.close()
        await services.rules.close()
        await reader.close()


def by(edge: Edge, user: str) -> httpx.AsyncClient:
    """A client of this user; `root` may do everything."""
    client = connect(edge.app)
    client.auth = httpx.BasicAuth(user, f"{user}'s")
    return client


async def let(edge: Edge, user: str, operation: Operation, kind: ResourceType, name: str) -> None:
    """One ACL that allows it."""
    binding = AclBinding(
        resource_type=kind,
        pattern_type=PatternType.LITERAL,
        name=name,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )
    assert isinstance(await edge.replica.propose(CreateAcls(acls=[binding])), Done)


def table_of(edge: Edge, topic: str, options: CommitterOptions | None = None) -> Committer:
    """What commits the topic's table, by hand, in the bucket of `edge`."""
    parts = edge.parts
    merged, reader = MergedRanges(edge.store), ChunkReader(edge.store, 1 << 20)
    warehouse = Warehouse.of(parts.config.store.url, parts.config.warehouse)
    shared = TableParts(
        edge.replica, reader, merged, edge.store, warehouse, parts.clock, options or CommitterOptions()
    )
    return Committer(shared, topic)


async def commit(edge: Edge, group: str, topic: str, offset: int) -> None:
    """A position of the group in partition 0."""
    handle = edge.replica.state.topics[topic].partitions[0].handle
    message = CommitOffsets(group=group, generation=-1, partition=[handle], offset=[offset])
    assert isinstance(await edge.replica.propose(message), Done)


async def in_transaction(edge: Edge, handle: int) -> dict[str, Any]:
    """A transaction `tx` with this partition in it, left open: the names that its commands go by."""
    begun = InitTransactions(transactional_id="tx", timeout_ms=60_000, producer_id=-1)
    assert isinstance(await edge.replica.propose(begun), Done)
    known = edge.replica.state.transactions["tx"]
    names = {"transactional_id": "tx", "producer_id": known.producer_id, "producer_epoch": known.epoch}
    assert isinstance(await edge.replica.propose(AddToTransaction(**names, partition=[handle])), Done)
    return names


class Page(html.parser.HTMLParser):
    """A page as a browser takes it: elements, their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.facts: dict[str, str] = {}
        """What stands in lists of names with their values."""
        self._name, self._in = "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("dt", "dd"):
            self._in = tag
            if tag == "dt":
                self._name = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == self._in:
            self._in = ""

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._in == "dt":
            self._name += data
        elif self._in == "dd":
            self.facts[self._name] = self.facts.get(self._name, "") + data

    @property
    def links(self) -> list[str]:
        """Where it leads."""
        return [str(attributes["href"]) for tag, attributes in self.elements if tag == "a"]

    @property
    def said(self) -> str:
        """All of its text."""
        return " ".join(self.words)


async def page(client: httpx.AsyncClient, path: str, status: int = 200, **query: object) -> Page:
    """A page of the console."""
    answer = await client.get(path, params={key: str(value) for key, value in query.items()} or None)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)
