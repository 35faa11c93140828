"""Three agents asked at once, real etcd, real S3: one registry, and a topic that follows it under load."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from coordination.kafka_codes import RETRIABLE, Code
from deploy.services import Etcd, Minio
from objectstore.batch import NewRecord, build
from schema.framing import prefix
from tests.bench.load import create_topic
from tests.compat.cluster import Cluster, status
from tests.compat.raw import produce

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

AGENTS, ROUNDS, CHANGES = 3, 40, 12
WAIT_S_MAX = 60
QUICK: dict[str, dict[str, object]] = {"tables": {"interval_ms": 200}}
OLD = 'syntax = "proto3"; message M { int64 a = 1; }'
NEW = 'syntax = "proto3"; message M { int64 a = 1; int64 b = 2; }'
Answer = tuple[int, Any]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(etcd: Etcd, minio: Minio) -> Iterator[Cluster]:
    """Agents that commit tables at once."""
    with Cluster(etcd, minio, AGENTS, more=QUICK) as cluster:
        yield cluster


@pytest.fixture
async def clients(three: Cluster) -> AsyncIterator[list[httpx.AsyncClient]]:
    """One of each agent."""
    async with AsyncExitStack() as stack:
        made = (httpx.AsyncClient(base_url=each.http, timeout=WAIT_S_MAX) for each in three.agents)
        yield [await stack.enter_async_context(each) for each in made]


def avro(*fields: str) -> dict[str, str]:
    """A record of longs that may be absent: any two of them go together."""
    told = [{"name": each, "type": "long", "default": 0} for each in fields]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": told})}


async def answered(asked: Awaitable[httpx.Response]) -> Any:
    """The JSON of an answer that must be good."""
    answer = await asked
    assert answer.status_code == 200, answer.text
    return answer.json()


async def registered(
    clients: Sequence[httpx.AsyncClient], subject: str, schemas: Sequence[dict[str, str]]
) -> list[tuple[int, int]]:
    """Each schema by another agent, all at once: versions and ids; then every agent finds each of them."""
    path = f"/subjects/{subject}"
    asked = (
        answered(client.post(f"{path}/versions", json=one))
        for client, one in zip(clients, schemas, strict=True)
    )
    told = [(each["version"], each["id"]) for each in await asyncio.gather(*asked)]
    looks = [(client, one) for client in clients for one in schemas]
    found = await asyncio.gather(*(answered(client.post(path, json=one)) for client, one in looks))
    assert [(each["version"], each["id"]) for each in found] == told * len(clients)
    return told


async def test_one_text_at_three_agents_at_once_is_one_version(clients: list[httpx.AsyncClient]) -> None:
    ids = set()
    for number in range(ROUNDS):
        told = await registered(clients, f"same{number}", [avro(f"f{number}")] * AGENTS)
        assert len(set(told)) == 1, told
        assert told[0][0] == 1
        ids.add(told[0][1])
        assert await answered(clients[number % AGENTS].get(f"/subjects/same{number}/versions")) == [1]
    assert len(ids) == ROUNDS


async def test_three_texts_at_three_agents_at_once_are_three_versions(
    clients: list[httpx.AsyncClient],
) -> None:
    """Dense, and in the order of their ids; who was overtaken judged again."""
    for number in range(ROUNDS):
        schemas = [avro(f"n{number}", f"of{agent}") for agent in range(AGENTS)]
        told = sorted(await registered(clients, f"others{number}", schemas))
        assert [version for version, _ in told] == [1, 2, 3]
        ids = [schema_id for _, schema_id in told]
        assert ids == sorted(set(ids))


@dataclass
class Sent:
    """A record of schema `schema_id`, from when to when it was asked for (s), and what came of it."""

    number: int
    schema_id: int
    began: float
    ended: float
    code: int
    offset: int


@dataclass
class Story:
    """A topic, its subject's schemas, and when the second one was certainly there, or certainly not."""

    name: str
    ids: tuple[int, int]
    there: list[tuple[float, float]] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    unbound: list[tuple[float, float]] = field(default_factory=list)
    """When the topic may have been bound to nothing."""
    sent: list[Sent] = field(default_factory=list)
    over: bool = False

    async def write(self, bootstrap: str, place: int) -> None:
        """Records of both schemas by turns, one a batch, until it is over."""
        for number in itertools.count(place, AGENTS):
            if self.over:
                return
            schema_id = self.ids[number // AGENTS % 2]
            value = prefix(schema_id, (0,)) + (b"\x08\x07" if schema_id == self.ids[0] else b"\x10\x09")
            batch = build([NewRecord(int(time.time() * 1000), str(number).encode(), value)])
            began = time.monotonic()
            answer = await produce(bootstrap, self.name, batch)
            done = Sent(
                number, schema_id, began, time.monotonic(), answer.error_code, int(answer.base_offset)
            )
            self.sent.append(done)

    async def change(self, clients: Sequence[httpx.AsyncClient], subject: str) -> None:
        """Hide the second version and register it again, each by another agent; bind anew in between."""
        turns = itertools.cycle(clients)
        begun = time.monotonic()
        for number in range(CHANGES):
            await asyncio.sleep(0.1)
            self.there.append((begun, time.monotonic()))
            version = (await answered(next(turns).get(f"/subjects/{subject}/versions")))[-1]
            await answered(next(turns).delete(f"/subjects/{subject}/versions/{version}"))
            begun = time.monotonic()
            if number % 3 == 2:  # unbound, all may come
                before = time.monotonic()
                await bind(next(turns), self.name, unbind=True)
                await asyncio.sleep(0.05)
                await bind(next(turns), self.name, subject=subject)
                begun = time.monotonic()
                self.unbound.append((before, begun))
            await asyncio.sleep(0.1)
            self.away.append((begun, time.monotonic()))
            await registered_text(next(turns), subject, NEW)
            begun = time.monotonic()
        self.over = True


async def bind(client: httpx.AsyncClient, topic: str, **how: object) -> None:
    """Change what the topic's values are bound to."""
    await answered(client.post(f"/admin/topics/{topic}/schema", json=how))


async def registered_text(client: httpx.AsyncClient, subject: str, text: str) -> int:
    """The id of a protobuf schema."""
    body = {"schema": text, "schemaType": "PROTOBUF"}
    return int((await answered(client.post(f"/subjects/{subject}/versions", json=body)))["id"])


def within(one: Sent, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether all of its time lies in one of them."""
    return any(begin < one.began and one.ended < end for begin, end in spans)


async def test_versions_and_bindings_change_while_records_and_tables_are_written(
    three: Cluster, minio: Minio, clients: list[httpx.AsyncClient]
) -> None:
    """What is hidden is refused by every agent at once, taken again when it is back; rows are by their id."""
    name = f"moving{next(_numbers)}"
    await create_topic(three.agents[0].bootstrap, name, 1)
    ids = [
        await registered_text(client, name, text) for client, text in zip(clients, (OLD, NEW), strict=False)
    ]
    await bind(clients[2], name, subject=name)
    story = Story(name, (ids[0], ids[1]))
    async with asyncio.TaskGroup() as group:
        group.create_task(story.change(clients, name))
        for place, agent in enumerate(three.agents):
            group.create_task(story.write(agent.bootstrap, place))
    judged = judge(story)
    assert min(judged) > 0, judged
    rows = await asyncio.to_thread(rows_of, three, minio, name)
    taken = {one.offset: one for one in story.sent if not one.code}
    assert len(taken) == sum(not one.code for one in story.sent)
    assert rows.keys() >= taken.keys()
    for offset, one in taken.items():
        expected = [(7, None) if one.schema_id == ids[0] else (0, 9)]
        if any(begin < one.ended and one.began < end for begin, end in story.unbound):
            expected.append((None, None))
        assert rows[offset] in [(str(one.number), each, None) for each in expected]


def judge(story: Story) -> tuple[int, int, int]:
    """How many records were taken that had to be, and refused that had to be; and of the first schema."""
    first = [one for one in story.sent if one.schema_id == story.ids[0]]
    assert {one.code for one in first} <= {0, *RETRIABLE}
    second = [one for one in story.sent if one.schema_id == story.ids[1]]
    there = [one for one in second if within(one, story.there)]
    assert {one.code for one in there} <= {0, *RETRIABLE}
    away = [one for one in second if within(one, story.away)]
    assert {one.code for one in away} <= {int(Code.INVALID_RECORD), *RETRIABLE}
    good = sum(not one.code for one in there), sum(one.code == Code.INVALID_RECORD for one in away)
    return *good, sum(not one.code for one in first)


def rows_of(three: Cluster, minio: Minio, name: str) -> dict[int, tuple[str, tuple[Any, Any], str | None]]:
    """The table's rows by offset: key, a and b, and what is wrong, when it has all there is."""
    end = time.monotonic() + WAIT_S_MAX
    behind: list[Any] = [None]
    while behind != [0] and time.monotonic() < end:
        tables = status(three.agents[0])["tables"]
        behind = [each["records_behind"] for each in tables if each["table"] == f"floe.{name}"]
        time.sleep(0.1)
    assert behind == [0]
    catalog = RestCatalog("floe", uri=f"{three.agents[0].http}/iceberg", warehouse="floe", **{
        "s3.endpoint": minio.endpoint,
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
        "s3.region": minio.region,
    })  # fmt: skip
    found = catalog.load_table(f"floe.{name}").scan().to_arrow().to_pylist()
    rows = {
        each["kafka"]["offset"]: (
            each["key"]["__raw__"].decode(),
            (each["value"]["a"], each["value"]["b"]),
            each["value"]["__err__"],
        )
        for each in found
    }
    assert len(rows) == len(found)
    return rows
