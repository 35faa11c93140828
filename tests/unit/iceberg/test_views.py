"""Views in the REST catalog: what Iceberg's own kit (tests/engines/test_catalog_kit.py) does not ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import PutNamespace
from iceberg.catalog import Catalog
from iceberg.view_names import is_view
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.serving import ask, catalog_of

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "a", "type": "int", "required": False}],
}
VIEWS = "/v1/namespaces/ns/views"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigs.running(tmp_path) as found:
        await found.replica.propose(PutNamespace(name="ns"))
        yield found


@pytest.fixture
def catalog(rig: Rig) -> Catalog:
    return catalog_of(rig)


def version(sql: str = "select 1", dialect: str = "spark", number: int = 1) -> dict[str, Any]:
    return {
        "version-id": number,
        "timestamp-ms": 1_700_000_000_000 + number,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect}],
    }


def request(name: str = "v", **more: Any) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": version(), "properties": {}, **more}


def replacing(sql: str, number: int = 2, **more: Any) -> dict[str, Any]:
    """The body of a commit that gives a view another query."""
    updates = [
        {"action": "add-view-version", "view-version": {**version(sql, number=number), **more}},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    return {"requirements": [], "updates": updates}


async def made(catalog: Catalog, name: str = "v", **more: Any) -> dict[str, Any]:
    status, found = await ask(catalog, "POST", VIEWS, request(name, **more))
    assert status == 200, found
    return found


def query_of(found: dict[str, Any]) -> str:
    metadata = found["metadata"]
    current = next(v for v in metadata["versions"] if v["version-id"] == metadata["current-version-id"])
    sql: str = current["representations"][0]["sql"]
    return sql


async def test_a_view_is_no_table_and_has_its_name_alone(rig: Rig, catalog: Catalog) -> None:
    found = await made(catalog)
    assert is_view(found["metadata-location"])
    assert found["metadata-location"] == rig.replica.state.tables["ns", "v"].metadata_location
    _, tables = await ask(catalog, "GET", "/v1/namespaces/ns/tables")
    assert tables["identifiers"] == []
    assert (await ask(catalog, "GET", "/v1/namespaces/ns/tables/v"))[0] == 404
    assert (await ask(catalog, "DELETE", "/v1/namespaces/ns/tables/v"))[0] == 404
    table = {"name": "v", "schema": SCHEMA}
    status, refused = await ask(catalog, "POST", "/v1/namespaces/ns/tables", table)
    assert (status, refused["error"]["message"]) == (409, "View with same name already exists: ns.v")
    assert (await ask(catalog, "DELETE", "/v1/namespaces/ns"))[0] == 409  # it is not empty

    assert (await ask(catalog, "POST", "/v1/namespaces/ns/tables", {**table, "name": "t"}))[0] == 200
    assert (await ask(catalog, "GET", f"{VIEWS}/t"))[0] == 404
    assert (await ask(catalog, "POST", f"{VIEWS}/t", replacing("select 2")))[0] == 404
    assert (await ask(catalog, "DELETE", f"{VIEWS}/t"))[0] == 404
    status, refused = await ask(catalog, "POST", VIEWS, request("t"))
    assert (status, refused["error"]["message"]) == (409, "Table with same name already exists: ns.t")
    _, views = await ask(catalog, "GET", VIEWS)
    assert [each["name"] for each in views["identifiers"]] == ["v"]
    assert (await ask(catalog, "HEAD", f"{VIEWS}/v"))[0] == 204
    assert (await ask(catalog, "DELETE", f"{VIEWS}/v"))[0] == 204
    assert (await ask(catalog, "HEAD", f"{VIEWS}/v"))[0] == 404


async def test_replaces_at_the_same_time_all_stay_in_its_history(catalog: Catalog) -> None:
    await made(catalog)
    done = await asyncio.gather(
        *(ask(catalog, "POST", f"{VIEWS}/v", replacing(f"select {each}")) for each in range(2, 5))
    )
    assert [status for status, _ in done] == [200] * 3
    _, found = await ask(catalog, "GET", f"{VIEWS}/v")
    queries = {each["representations"][0]["sql"] for each in found["metadata"]["versions"]}
    assert queries == {f"select {each}" for each in range(1, 5)}
    assert len({each["version-id"] for each in found["metadata"]["versions"]}) == 4


async def test_another_view_of_the_name_is_not_replaced_by_mistake(catalog: Catalog) -> None:
    first = await made(catalog)
    await ask(catalog, "DELETE", f"{VIEWS}/v")
    await made(catalog)
    body = replacing("select 2")
    body["requirements"] = [{"type": "assert-view-uuid", "uuid": first["metadata"]["view-uuid"]}]
    status, refused = await ask(catalog, "POST", f"{VIEWS}/v", body)
    assert (status, refused["error"]["type"]) == (409, "CommitFailedException")
    assert query_of((await ask(catalog, "GET", f"{VIEWS}/v"))[1]) == "select 1"


async def test_its_history_is_as_long_as_it_says(catalog: Catalog) -> None:
    await made(catalog, properties={"version.history.num-entries": "3"})
    for number in range(2, 8):
        await ask(catalog, "POST", f"{VIEWS}/v", replacing(f"select {number}", number))
    _, found = await ask(catalog, "GET", f"{VIEWS}/v")
    assert [each["version-id"] for each in found["metadata"]["versions"]] == [5, 6, 7]
    assert [each["version-id"] for each in found["metadata"]["version-log"]] == [5, 6, 7]
    assert query_of(found) == "select 7"


async def test_a_dialect_is_lost_only_where_that_is_allowed(catalog: Catalog) -> None:
    await made(catalog)
    other = {"representations": [{"type": "sql", "sql": "select 2", "dialect": "trino"}]}
    status, refused = await ask(catalog, "POST", f"{VIEWS}/v", replacing("", **other))
    assert status == 400
    assert "loss of view dialects" in refused["error"]["message"]
    allow = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}
    body = replacing("", **other)
    body["updates"].insert(0, allow)
    assert (await ask(catalog, "POST", f"{VIEWS}/v", body))[0] == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (request(name=""), "table name ''"),
        ({"name": "v", "schema": SCHEMA}, "view-version: an object is needed"),
        ({"name": "v", "view-version": version()}, "schema: an object is needed"),
        (request(**{"view-version": {**version(), "representations": []}}), "of at least one"),
        (request(properties={"floe.x": "1"}), "floe.x: names that begin with floe. are Floe's own"),
        (request(properties={"version.history.num-entries": "1001"}), "a number from 1 to 1000"),
        (request(properties={"a": 1}), "updates is an object of strings"),
        (request(location="s3://elsewhere/v"), "is not below the warehouse"),
        (request(**{"view-version": version("x" * (5 << 20))}), "over 4194304"),
        (request(**{"view-version": {**version(), "default-namespace": 5}}), "view metadata: versions"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    rig: Rig, catalog: Catalog, body: dict[str, Any], message: str
) -> None:
    status, refused = await ask(catalog, "POST", VIEWS, body)
    assert status in (400, 403), refused
    assert message in refused["error"]["message"]
    assert ("ns", "v") not in rig.replica.state.tables


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"action": "nonsense"}, "a view knows add-schema, add-view-version"),
        ({"action": "assign-uuid", "uuid": "x"}, "Cannot reassign uuid"),
        ({"action": "upgrade-format-version", "format-version": 2}, "views have 1"),
        ({"action": "set-current-view-version", "view-version-id": 9}, "unknown version: 9"),
        ({"action": "set-current-view-version", "view-version-id": -1}, "Cannot set last version id"),
        (
            {"action": "add-view-version", "view-version": {**version("x"), "schema-id": 4}},
            "unknown schema: 4",
        ),
        ({"action": "set-location", "location": ""}, "is no location"),
    ],
)
async def test_updates_that_make_no_sense_change_nothing(
    catalog: Catalog, update: dict[str, Any], message: str
) -> None:
    before = await made(catalog)
    status, refused = await ask(catalog, "POST", f"{VIEWS}/v", {"updates": [update]})
    assert status == 400, refused
    assert message in refused["error"]["message"]
    _, after = await ask(catalog, "GET", f"{VIEWS}/v")
    assert after["metadata-location"] == before["metadata-location"]


async def test_a_view_of_another_catalog_is_taken_over(rig: Rig, catalog: Catalog, tmp_path: Path) -> None:
    found = await made(catalog)
    await ask(catalog, "DELETE", f"{VIEWS}/v")
    theirs = found["metadata-location"].rpartition("/")[0] + "/00001-of-another.metadata.json"
    content = await rig.store.get(rig.warehouse.key(found["metadata-location"]))
    await rig.store.put(rig.warehouse.key(theirs), [content])
    body = {"name": "w", "metadata-location": theirs}
    status, taken = await ask(catalog, "POST", "/v1/namespaces/ns/register-view", body)
    assert status == 200, taken
    assert taken["metadata"] == found["metadata"]
    assert query_of((await ask(catalog, "GET", f"{VIEWS}/w"))[1]) == "select 1"


async def test_the_endpoints_are_told(catalog: Catalog) -> None:
    _, found = await ask(catalog, "GET", "/v1/config")
    assert "POST /v1/{prefix}/namespaces/{namespace}/views" in found["endpoints"]
