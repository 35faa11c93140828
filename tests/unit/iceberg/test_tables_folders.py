"""No two tables share a folder: who removes the files of one would remove the other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import CommitTable
from coordination.state.types import Done
from iceberg.catalog import Catalog
from iceberg.folders import folder_of, neighbour
from iceberg.pointer_commit import TableConflict
from iceberg.rest_locations import PATHS
from iceberg.warehouse import Warehouse
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask

SCHEMA = {
    "type": "struct",
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}
PURGE = {"purgeRequested": "true"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent with the table of topic t, of one record."""
    async with rigs.running(tmp_path) as found:
        await found.create_topic()
        await found.produce([b"1"])
        await found.drain(found.committer())
        yield found


@pytest.fixture
async def catalog(rig: Rig) -> Catalog:
    """The catalog, with a namespace for clients' own tables."""
    found = serving.catalog_of(rig)
    assert (await ask(found, "POST", "/v1/namespaces", {"namespace": ["mine"]}))[0] == 200
    return found


async def create(catalog: Catalog, name: str, location: str = "", **properties: str) -> tuple[int, Any]:
    body = {"name": name, "schema": SCHEMA, "properties": properties}
    if location:
        body["location"] = location
    return await ask(catalog, "POST", "/v1/namespaces/mine/tables", body)


async def change(catalog: Catalog, name: str, *updates: object) -> tuple[int, Any]:
    body = {"requirements": [], "updates": list(updates)}
    return await ask(catalog, "POST", f"/v1/namespaces/mine/tables/{name}", body)


async def files(rig: Rig, location: str) -> list[str]:
    return [each.key async for page in rig.store.list(rig.warehouse.key(location)) for each in page]


async def folder_of_t(rig: Rig) -> str:
    location: str = (await rig.head()).metadata["location"]
    return location


AROUND: list[Callable[[str], str]] = [
    lambda found: found,
    lambda found: f"{found}/",
    lambda found: f"{found}/data",
    lambda found: f"{found}/data/deeper",
    lambda found: found.rpartition("/")[0],
    lambda found: f"{found.rpartition('/')[0]}/",
]


@pytest.mark.parametrize("around", AROUND)
async def test_a_table_is_not_made_in_around_or_below_a_topics(
    rig: Rig, catalog: Catalog, around: Callable[[str], str]
) -> None:
    """A purge of it deleted the topic's table, or those of all topics."""
    theirs = await folder_of_t(rig)
    status, answer = await create(catalog, "x", around(theirs))
    assert status == 400
    assert theirs.rpartition("/")[0] in answer["error"]["message"]
    assert "the catalog chooses one" in answer["error"]["message"]
    status, answer = await create(catalog, "x")
    assert status == 200
    status, answer = await change(catalog, "x", {"action": "set-location", "location": around(theirs)})
    assert status == 400, answer
    assert (await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x", **PURGE))[0] == 204
    await rig.assert_table_is_topic({0: [b"1"]})


async def test_a_folder_beside_a_topics_table_is_free(rig: Rig, catalog: Catalog) -> None:
    theirs = await folder_of_t(rig)
    assert (await create(catalog, "x", f"{theirs}2"))[0] == 200
    assert (await create(catalog, "y", f"{theirs[:-1]}"))[0] == 200
    for name in ("x", "y"):
        assert (await ask(catalog, "DELETE", f"/v1/namespaces/mine/tables/{name}", **PURGE))[0] == 204
    await rig.assert_table_is_topic({0: [b"1"]})


@pytest.mark.parametrize("location", ["{w}/../chunks", "{w}/mine//x", "{w}/mine/./x", "{w}", "{w}/"])
async def test_a_location_that_no_folder_can_be_at_is_refused(
    rig: Rig, catalog: Catalog, location: str
) -> None:
    assert (await create(catalog, "x", location.format(w=rig.warehouse.location)))[0] == 400


@pytest.mark.parametrize("namespace", ["floe", "mine"])
async def test_a_namespaces_own_folder_is_no_tables(tmp_path: Path, namespace: str) -> None:
    """Tables that are still to be made lie in it, those of topics too."""
    async with rigs.running(tmp_path) as rig:
        catalog = serving.catalog_of(rig)
        await ask(catalog, "POST", "/v1/namespaces", {"namespace": ["mine"]})
        status, answer = await create(catalog, "x", f"{rig.warehouse.location}/{namespace}")
        assert status == 400
        assert "folder of a namespace" in answer["error"]["message"]


async def test_a_topics_table_is_not_made_in_anothers_folder(rig: Rig, catalog: Catalog) -> None:
    """Nothing says yet that a namespace will be: a topic's name of its table brings it."""
    assert (await create(catalog, "x", f"{rig.warehouse.location}/later"))[0] == 200
    await rig.create_topic("u", floe__table__name="later.u")
    with pytest.raises(TableConflict, match=r"in one folder with table mine\.x: drop that one"):
        await rig.committer("u").run_once()
    assert (await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x", **PURGE))[0] == 204
    await rig.produce([b"2"], topic="u")
    assert await rig.drain(rig.committer("u")) == 1


@pytest.mark.parametrize("name", PATHS)
async def test_properties_do_not_lead_files_into_anothers_folder(
    rig: Rig, catalog: Catalog, name: str
) -> None:
    """The topic's collection of orphans would delete them after a day."""
    theirs = await folder_of_t(rig)
    status, answer = await create(catalog, "x", **{name: f"{theirs}/data"})
    assert status == 400
    assert name in answer["error"]["message"]
    elsewhere = "s3://another-bucket/files"
    assert (await create(catalog, "x", **{name: elsewhere}))[0] == 200
    status, _ = await change(catalog, "x", {"action": "set-properties", "updates": {name: theirs}})
    assert status == 400
    own = rig.replica.state.tables["mine", "x"].metadata_location
    status, _ = await change(
        catalog, "x", {"action": "set-properties", "updates": {name: f"{folder_of(own)}/data"}}
    )
    assert status == 200


async def test_only_metadata_of_a_folder_of_its_own_is_registered(rig: Rig, catalog: Catalog) -> None:
    async def register(name: str, location: str) -> tuple[int, Any]:
        body = {"name": name, "metadata-location": location}
        return await ask(catalog, "POST", "/v1/namespaces/mine/register", body)

    assert (await create(catalog, "x"))[0] == 200
    own = rig.replica.state.tables["mine", "x"].metadata_location
    status, answer = await register("y", own)
    assert status == 400, "one folder, two tables"
    assert "table mine.x" in answer["error"]["message"]
    copied = f"{await folder_of_t(rig)}/metadata/{own.rpartition('/')[2]}"
    content = await rig.store.get(rig.warehouse.key(own))
    await rig.store.put(rig.warehouse.key(copied), [content])
    status, answer = await register("y", copied)
    assert status == 400, "it lies below t's folder and says that it is x"
    assert (await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x"))[0] == 204
    assert (await register("y", copied))[0] == 400
    assert (await register("y", own))[0] == 200


async def raced(rig: Rig, name: str, location: str) -> str:
    """A table whose creation raced with another's for one folder: its pointer, and a file."""
    await rig.store.put(rig.warehouse.key(f"{location}/metadata/00000-raced.metadata.json"), [b"{}"])
    made = CommitTable(
        namespace="mine", name=name, metadata_location=f"{location}/metadata/00000-raced.metadata.json"
    )
    assert isinstance(await rig.replica.propose(made), Done)
    return made.metadata_location


async def test_a_purge_looks_again_whose_the_folder_is(rig: Rig, catalog: Catalog) -> None:
    """Two creations may race: both found the folder free."""
    assert (await create(catalog, "x"))[0] == 200
    shared = folder_of(rig.replica.state.tables["mine", "x"].metadata_location)
    await raced(rig, "y", f"{shared}/below")
    before = await files(rig, shared)
    status, answer = await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x", **PURGE)
    assert status == 400
    assert "mine.y" in answer["error"]["message"]
    assert "Drop the table without purge" in answer["error"]["message"]
    assert ("mine", "x") in rig.replica.state.tables, "nothing was done"
    assert await files(rig, shared) == before
    assert (await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x"))[0] == 204
    assert await files(rig, shared) == before


async def test_a_table_that_came_with_the_drop_keeps_its_files(rig: Rig, catalog: Catalog) -> None:
    assert (await create(catalog, "x"))[0] == 200
    shared = folder_of(rig.replica.state.tables["mine", "x"].metadata_location)
    propose, came = rig.replica.propose, []

    async def late(message: Any, **more: Any) -> Any:
        rig.replica.propose = propose  # type: ignore[method-assign]  # once: as it was before
        came.append(await raced(rig, "y", shared))
        return await propose(message, **more)

    rig.replica.propose = late  # type: ignore[method-assign]  # between the look and the drop
    status, answer = await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x", **PURGE)
    assert (status, answer["error"]["message"].startswith("table mine.x was dropped, but the files")) == (
        400,
        True,
    )
    assert rig.warehouse.key(came[0]) in await files(rig, shared)


async def test_a_purge_leaves_what_is_younger_than_the_tables_metadata(
    rig: Rig, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it is dropped its folder may be another's, whose first files the state does not know yet."""
    assert (await create(catalog, "x"))[0] == 200
    location = rig.replica.state.tables["mine", "x"].metadata_location
    shared, key = folder_of(location), rig.warehouse.key(location)
    await rig.store.put(f"{rig.warehouse.key(shared)}/data/old.parquet", [b"x's"])
    assert (await change(catalog, "x", {"action": "set-properties", "updates": {"a": "b"}}))[0] == 200
    made = await rig.store.head(rig.warehouse.key(rig.replica.state.tables["mine", "x"].metadata_location))
    younger = f"{rig.warehouse.key(shared)}/data/staged.parquet"
    while True:  # the store's clock goes on
        await rig.store.put(younger, [b"of a staged creation"])
        if (await rig.store.head(younger)).modified_ms > made.modified_ms:
            break
        await asyncio.sleep(0.002)
    assert (await ask(catalog, "DELETE", "/v1/namespaces/mine/tables/x", **PURGE))[0] == 204
    assert await files(rig, shared) == [younger]
    assert key not in await files(rig, shared)
    assert "1 files at" in caplog.text


def test_a_folder_is_told_from_where_the_metadata_lies() -> None:
    assert folder_of("s3://b/tables/x/metadata/00000-1.metadata.json") == "s3://b/tables/x"
    assert folder_of("s3://b/tables/x/metadata/y/metadata/v1.metadata.json") == "s3://b/tables/x/metadata/y"
    assert folder_of("s3://b/tables/x/v1.metadata.json") == "s3://b/tables/x"
    assert neighbour({}, Warehouse("s3://b"), "s3a://b/tables/x") is None
