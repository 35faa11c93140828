"""Tables are published to Iceberg's own REST server (iceberg-open-api's fixture over JDBC), and read there.

One server serves all stories, each in a namespace of its own: a start takes seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog as Reader

from coordination.commands import DropTable, ReleaseClaim
from coordination.state.types import Done
from iceberg.publish.plan import Rules
from iceberg.publish.publisher import WHOLE
from iceberg.publish.rest import RestCatalog, RestOptions
from iceberg.publish.sql import SqlCatalog, SqlOptions
from tests.engines.rest_server import CATALOG, Gate, free_port, gated, other_catalog
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.publishing import KillAt, configure, location, look, publisher_of, rows
from tests.unit.iceberg.rig import Killed, Rig

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="module")]


DATABASES: dict[str, Path] = {}
"""Of the servers that run, by URL."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("other")
    async with other_catalog(folder) as url:
        DATABASES[url] = folder / "catalog.db"
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        yield found


def client(url: str, **options: Any) -> RestCatalog:
    return RestCatalog(RestOptions(url, **options))


async def committed(rig: Rig, topic: str = "t") -> str:
    """One record more in the topic's table; where its metadata is then."""
    if topic not in rig.replica.state.topics:
        await rig.create_topic(topic)
    await rig.produce([b"x"], topic=topic)
    await rig.drain(rig.committer(topic))
    return location(rig, topic)


async def where(url: str, name: str) -> str | None:
    """Metadata location of a table there; None without such a table."""
    namespace, table = name.split(".")
    async with httpx.AsyncClient() as asking:
        found = await asking.get(f"{url}/v1/namespaces/{namespace}/tables/{table}")
        if found.status_code == 404:
            return None
        told: str = found.json()["metadata-location"]
        return told.replace("file:/", "file:///").replace("file://///", "file:///")


def is_there(location: str) -> bool:
    return Path(location.removeprefix("file://")).exists()


def reader(url: str) -> Catalog:
    return Reader("there", uri=url)


async def test_an_entry_follows_its_table_and_is_read_there(server: str, rig: Rig) -> None:
    publisher = publisher_of(rig, client(server), rules=Rules("follow"))
    await committed(rig)
    await look(publisher)
    newest = await committed(rig)
    await look(publisher)
    assert await where(server, "follow.t") == newest
    assert not publisher.failures
    there = await asyncio.to_thread(reader, server)
    assert await rows(there, "follow.t") == [0, 1]

    await configure(rig, "t", floe__table__name="other")
    await rig.committer("t").run_once()
    await look(publisher)
    assert (await where(server, "follow.t"), await where(server, "follow.other")) == (None, newest)

    await rig.delete_topic()
    assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="other")), Done)
    await look(publisher)
    assert await where(server, "follow.other") is None
    assert is_there(newest)  # the entry goes, never the files
    await publisher.stop()


async def test_where_entries_may_be_overwritten_none_is_dropped(server: str, rig: Rig) -> None:
    gate = Gate(server, overwrites=True)
    async with gated(gate) as url:
        publisher = publisher_of(rig, client(url), rules=Rules("over"))
        await committed(rig)
        await look(publisher)
        newest = await committed(rig)
        await look(publisher)
        assert await where(server, "over.t") == newest
        assert not [each for each in gate.seen if each.startswith("DELETE")]
        await publisher.stop()


async def test_a_server_without_overwrite_may_be_left_as_it_is(server: str, rig: Rig) -> None:
    publisher = publisher_of(rig, client(server), rules=Rules("never"), drops=False)
    first = await committed(rig)
    await look(publisher)
    await committed(rig)
    await look(publisher)
    assert await where(server, "never.t") == first
    assert "`replace: drop`" in publisher.failures["table never.t"].error
    await publisher.stop()


@pytest.mark.parametrize(("step", "times"), [("drop", 1), ("create", 1), ("replace", 1), ("look", 2)])
async def test_killed_between_drop_and_register_the_next_one_registers(
    server: str, rig: Rig, step: str, times: int
) -> None:
    rules = Rules(f"killed_{step}")
    await committed(rig, "a")
    before = publisher_of(rig, client(server), rules=rules)
    await look(before)
    await before.stop()
    await committed(rig, "a")
    await committed(rig, "b") if step == "look" else None
    killed = publisher_of(rig, client(server), rules=rules, steps=KillAt(step, times))
    with pytest.raises(Killed):
        await look(killed)
    await killed.stop()
    after = publisher_of(rig, client(server), rules=rules)
    await look(after)
    assert await where(server, f"killed_{step}.a") == location(rig, "a")
    assert not after.failures
    await after.stop()


async def test_wrong_credentials_are_told_and_nothing_else_suffers(server: str, rig: Rig) -> None:
    async with gated(Gate(server, secret="right")) as url:
        wrong = publisher_of(rig, client(url, credential="floe:wrong"), rules=Rules("denied"))
        right = publisher_of(rig, client(url, credential="floe:right"), rules=Rules("allowed"))
        right.claim = "publish/right"
        newest = await committed(rig)
        await look(wrong)
        await look(right)
        assert "unknown client" in wrong.failures[WHOLE].error
        assert "look at its credential or token" in wrong.failures[WHOLE].error
        assert "wrong" not in wrong.failures[WHOLE].error  # the secret itself is never told
        assert await where(server, "allowed.t") == newest
        assert not right.failures
        await wrong.stop()

        stale = publisher_of(rig, client(url, token="stale"), rules=Rules("denied"))
        await look(stale)
        assert "401 NotAuthorizedException: no such token" in stale.failures[WHOLE].error
        await stale.stop()
        await right.stop()


async def test_a_token_that_is_over_is_asked_for_anew(server: str, rig: Rig) -> None:
    gate = Gate(server, secret="right")
    async with gated(gate) as url:
        publisher = publisher_of(rig, client(url, credential="floe:right"), rules=Rules("renewed"))
        await committed(rig)
        await look(publisher)
        gate.tokens.clear()
        newest = await committed(rig)
        await look(publisher)
        assert await where(server, "renewed.t") == newest
        assert not publisher.failures
        await publisher.stop()


async def test_a_catalog_that_is_away_comes_back(server: str, rig: Rig) -> None:
    gate, port = Gate(server), free_port()
    publisher = publisher_of(rig, client(f"http://127.0.0.1:{port}"), rules=Rules("away"))
    for _ in range(2):
        await committed(rig)
        await look(publisher)
        assert "is not reached" in publisher.failures[WHOLE].error
        assert publisher.late()["t"] > 0
        async with gated(gate, port):
            newest = await committed(rig)
            await look(publisher)
            assert await where(server, "away.t") == newest
            assert not publisher.failures
    await publisher.stop()


async def test_what_only_one_table_gets_stays_with_it(server: str, rig: Rig) -> None:
    gate = Gate(server)
    async with gated(gate) as url, httpx.AsyncClient() as asking:
        publisher = publisher_of(rig, client(url), rules=Rules("one"))
        schema = {"type": "struct", "schema-id": 0, "fields": []}
        await asking.post(f"{server}/v1/namespaces", json={"namespace": ["one"]})
        made = await asking.post(f"{server}/v1/namespaces/one/tables", json={"name": "t", "schema": schema})
        foreign = made.json()["metadata-location"]
        await committed(rig, "t")
        newest = await committed(rig, "u")
        await look(publisher)
        assert "is not Floe's" in publisher.failures["table one.t"].error
        assert set(publisher.failures) == {"table one.t"}
        assert await where(server, "one.u") == newest
        assert (await where(server, "one.t") or "").endswith(foreign.rpartition("/")[2])

        gate.status = 503
        await look(publisher)
        assert "503" in publisher.failures[WHOLE].error
        await publisher.stop()


async def test_of_two_agents_one_publishes(server: str, tmp_path: Path) -> None:
    async with (
        rigs.running(tmp_path) as one,
        rigs.running(tmp_path, server=one.server, name="other") as two,
    ):
        publishers = [publisher_of(each, client(server), rules=Rules("two")) for each in (one, two)]
        await committed(one)
        await two.replica.barrier()
        for _ in range(2):
            await asyncio.gather(*(look(each) for each in publishers))
        active = next(each for each in publishers if each.publishes)
        passive = next(each for each in publishers if not each.publishes)
        held = active.held()
        assert held is not None
        await active.replica.propose(ReleaseClaim(name=active.claim, claim_revision=held.revision))
        newest = await committed(one)
        await passive.replica.barrier()
        await look(passive, 2)
        assert await where(server, "two.t") == newest
        for each in publishers:
            await each.stop()


async def test_a_java_catalog_reads_what_was_published_into_its_database(server: str, rig: Rig) -> None:
    database = DATABASES[server]
    publisher = publisher_of(
        rig, SqlCatalog(SqlOptions(f"sqlite:///{database}", CATALOG)), rules=Rules("jdbc")
    )
    await committed(rig)
    await look(publisher)
    newest = await committed(rig)
    await look(publisher)
    assert await where(server, "jdbc.t") == newest
    there = await asyncio.to_thread(reader, server)
    assert await rows(there, "jdbc.t") == [0, 1]
    assert ("jdbc",) in await asyncio.to_thread(there.list_namespaces)
    await publisher.stop()
