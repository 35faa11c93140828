"""Tables are published to the AWS Glue Data Catalog, by its API reference (no real one was seen)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.glue import GlueCatalog as Reader

from coordination.commands import DropTable
from coordination.state.types import Done
from iceberg.publish.glue import GlueCatalog, GlueOptions, glue_type
from iceberg.publish.publisher import WHOLE
from tests.equipment.glue import Glue, served
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.publishing import location, look, publisher_of, rows
from tests.unit.iceberg.rig import Rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        yield found


def client(url: str, key: str = "AKIA") -> GlueCatalog:
    return GlueCatalog(GlueOptions("eu-central-1", endpoint=url, access_key=key, secret_key="secret"))


async def committed(rig: Rig, topic: str = "t") -> None:
    if topic not in rig.replica.state.topics:
        await rig.create_topic(topic)
    await rig.produce([b"x"], topic=topic)
    await rig.drain(rig.committer(topic))


async def test_an_entry_follows_its_table_and_is_read_there(rig: Rig) -> None:
    glue = Glue()
    async with served(glue) as url:
        publisher = publisher_of(rig, client(url))
        for topic in ("t", "Two", "three"):
            await committed(rig, topic)
        await look(publisher)
        await committed(rig)
        await look(publisher)
        tables = glue.databases["floe"]
        assert set(tables) == {"t", "two", "three"}  # Glue's names are in lower case
        assert tables["t"]["VersionId"] == "1"
        assert tables["t"]["Parameters"]["metadata_location"] == location(rig)
        assert tables["t"]["Parameters"]["table_type"] == "ICEBERG"
        columns = {each["Name"]: each["Type"] for each in tables["t"]["StorageDescriptor"]["Columns"]}
        assert columns["headers"] == "array<struct<key:string,value:binary>>"
        assert columns["kafka"].startswith("struct<partition:int,offset:bigint,timestamp:timestamp")
        assert not publisher.failures

        access = {"glue.region": "eu-central-1", "glue.access-key-id": "A", "glue.secret-access-key": "s"}
        there = await asyncio.to_thread(Reader, "there", **{"glue.endpoint": url, **access})
        assert await rows(there, "floe.t") == [0, 1]

        asked = len(glue.asked)
        await look(publisher)
        assert set(glue.asked[asked:]) == {"GetTables"}  # nothing is due
        await rig.delete_topic()
        assert isinstance(await rig.replica.propose(DropTable(namespace="floe", name="t")), Done)
        await look(publisher)
        assert set(tables) == {"two", "three"}
        await publisher.stop()


async def test_an_update_from_an_older_version_is_refused_and_made_anew(rig: Rig) -> None:
    glue = Glue()
    async with served(glue) as url:
        publisher = publisher_of(rig, client(url))
        await committed(rig)
        await look(publisher)
        await committed(rig)
        entry = await asyncio.to_thread(client(url).look, ("floe", "t"))
        assert entry is not None
        glue.databases["floe"]["t"]["VersionId"] = "7"  # somebody else was here
        with pytest.raises(Exception, match="ConcurrentModification"):
            await asyncio.to_thread(client(url).replace, ("floe", "t"), entry, await pointer(rig))
        await look(publisher)
        assert glue.databases["floe"]["t"]["Parameters"]["metadata_location"] == location(rig)
        assert glue.databases["floe"]["t"]["VersionId"] == "8"
        await publisher.stop()


async def pointer(rig: Rig):
    """Of the table as it is."""
    from iceberg.publish.other import Pointer

    head = await rig.head()
    return Pointer(head.location, head.metadata)


async def test_wrong_keys_are_told(rig: Rig) -> None:
    async with served(Glue(key="AKIAGOOD")) as url:
        publisher = publisher_of(rig, client(url, "AKIABAD"))
        await committed(rig)
        await look(publisher)
        error = publisher.failures[WHOLE].error
        assert "UnrecognizedClientException" in error
        assert "look at its keys and region" in error
        await publisher.stop()
        right = publisher_of(rig, client(url, "AKIAGOOD"))
        await look(right)
        assert not right.failures
        await right.stop()


async def test_glue_that_is_away_is_told(rig: Rig) -> None:
    publisher = publisher_of(rig, client("http://127.0.0.1:9"))
    await committed(rig)
    await look(publisher)
    assert "Glue is not reached" in publisher.failures[WHOLE].error
    await publisher.stop()


def test_types_are_glues() -> None:
    assert glue_type("decimal(20, 0)") == "decimal(20,0)"
    assert glue_type("fixed[16]") == "binary"
    assert glue_type("timestamptz") == "timestamp"
    assert glue_type({"type": "map", "key": "string", "value": "long"}) == "map<string,bigint>"
    assert glue_type({"type": "list", "element": "double"}) == "array<double>"


async def test_two_tables_make_their_database_at_the_same_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = Glue()
    async with served(glue) as url:
        one, other = client(url), client(url)
        await committed(rig)
        wanted = await pointer(rig)
        asked = one._ask

        def too_early(ask: Any, missing: Any) -> Any:
            first = not glue.asked  # which finds no database
            found = asked(ask, missing)
            if first:
                other.create(("floe", "b"), wanted)
            return found

        monkeypatch.setattr(one, "_ask", too_early)
        await asyncio.to_thread(one.create, ("floe", "a"), wanted)
        assert set(glue.databases["floe"]) == {"a", "b"}
        one.close()
        other.close()
