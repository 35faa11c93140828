"""Users' tables of format version 3: ids of rows are given once, whoever commits (the spec's Row Lineage)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.clock import SystemClock
from iceberg import rest_commit
from iceberg.rest_errors import CatalogError
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

TABLES = "/v1/namespaces/own/tables"
CLOCK = SystemClock()
V3 = {"format-version": "3"}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [{"id": 1, "name": "x", "type": "int", "required": False}],
}
UPGRADE = {"action": "upgrade-format-version", "format-version": 3}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent with namespace `own`."""
    async with rigs.running(tmp_path) as found:
        await ask(found, "POST", "/v1/namespaces", {"namespace": ["own"]})
        yield found


async def ask(rig: Rig, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """One request."""
    return await serving.ask(serving.catalog_of(rig), method, path, body)


async def create(rig: Rig, schema: dict[str, Any] = SCHEMA, **properties: str) -> dict[str, Any]:
    """Table `a`."""
    body = {"name": "a", "schema": schema, "properties": properties}
    status, answer = await ask(rig, "POST", TABLES, body)
    assert status == 200, answer
    return dict(answer["metadata"])


async def commit(rig: Rig, *updates: dict[str, Any]) -> tuple[int, Any]:
    """These changes of table `a`."""
    return await ask(rig, "POST", f"{TABLES}/a", {"requirements": [], "updates": updates})


def snapshot(number: int, parent: int | None = None, **told: int) -> dict[str, Any]:
    """A snapshot to add, its sequence number its own."""
    content = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": CLOCK.now_ms()}
    content |= {"manifest-list": "s3://b/l.avro", "summary": {"operation": "append"}, "schema-id": 0}
    content |= {} if parent is None else {"parent-snapshot-id": parent}
    content |= {name.replace("_", "-"): value for name, value in told.items()}
    return {"action": "add-snapshot", "snapshot": content}


async def test_each_snapshot_takes_ids_behind_those_of_the_one_before(rig: Rig) -> None:
    made = await create(rig, **V3)
    assert (made["format-version"], made["next-row-id"]) == (3, 0)
    assert (await commit(rig, snapshot(1, first_row_id=0, added_rows=5)))[0] == 200
    status, answer = await commit(rig, snapshot(2, 1, first_row_id=5, added_rows=2))
    assert status == 200, answer
    assert answer["metadata"]["next-row-id"] == 7
    assert [each["first-row-id"] for each in answer["metadata"]["snapshots"]] == [0, 5]
    properties = {"action": "set-properties", "updates": {"a": "b"}}
    assert (await commit(rig, properties))[1]["metadata"]["next-row-id"] == 7


async def test_a_snapshot_of_an_older_table_is_to_be_made_anew(rig: Rig) -> None:
    await create(rig, **V3)
    assert (await commit(rig, snapshot(3, first_row_id=0, added_rows=5)))[0] == 200
    status, answer = await commit(rig, snapshot(4, 3, first_row_id=4, added_rows=5))
    assert (status, answer["error"]["type"]) == (409, "CommitFailedException")
    status, answer = await commit(rig, snapshot(2, 3, first_row_id=5, added_rows=5))
    assert (status, answer["error"]["type"]) == (409, "CommitFailedException")
    for told in ({}, {"first_row_id": 5}, {"first_row_id": 5, "added_rows": -1}):
        assert (await commit(rig, snapshot(4, 3, **told)))[0] == 400


async def test_a_table_becomes_one_of_version_3_and_never_one_of_2_again(rig: Rig) -> None:
    made = await create(rig)
    assert made["format-version"] == 2
    status, answer = await commit(rig, UPGRADE, snapshot(1, first_row_id=0, added_rows=5))
    assert status == 200, answer
    assert (answer["metadata"]["format-version"], answer["metadata"]["next-row-id"]) == (3, 5)
    assert (await commit(rig, UPGRADE))[1]["metadata"]["next-row-id"] == 5
    assert (await commit(rig, {**UPGRADE, "format-version": 2}))[0] == 400
    assert (await commit(rig, {**UPGRADE, "format-version": 4}))[0] == 400


async def test_defaults_of_columns_stay(rig: Rig) -> None:
    """Inside structs, lists and maps too, whose ids are given anew."""
    inner = {"id": 9, "name": "d", "type": "date", "required": False, "write-default": "2020-01-01"}
    struct = {"type": "struct", "fields": [inner]}
    some = {"type": "list", "element-id": 8, "element": struct, "element-required": False}
    pairs = {"type": "map", "key-id": 6, "key": "int", "value-id": 7, "value": some, "value-required": False}
    number = {"id": 5, "name": "x", "type": "int", "required": False}
    number |= {"initial-default": 5, "write-default": 6}
    fields = [number, {"id": 4, "name": "m", "type": pairs, "required": False}]
    made = await create(rig, {"type": "struct", "fields": fields}, **V3)
    for _ in range(2):
        (schema,) = made["schemas"]
        first, second = schema["fields"]
        assert (first["initial-default"], first["write-default"]) == (5, 6)
        (kept,) = second["type"]["value"]["element"]["fields"]
        assert kept["write-default"] == "2020-01-01"
        properties = {"action": "set-properties", "updates": {"a": "b"}}
        made = (await commit(rig, properties))[1]["metadata"]


async def test_what_the_catalog_would_lose_of_a_table_is_refused(rig: Rig) -> None:
    variant = {"type": "struct", "fields": [{"id": 1, "name": "v", "type": "variant", "required": False}]}
    body = {"name": "v", "schema": variant, "properties": {"format-version": "3"}}
    status, answer = await ask(rig, "POST", TABLES, body)
    assert (status, "variant" in answer["error"]["message"]) == (400, True)
    made = await create(rig, **V3)
    request = rest_commit.parse_commit({"requirements": [], "updates": [UPGRADE]})
    with pytest.raises(CatalogError, match="has encryption keys"):
        rest_commit.apply(request, {**made, "encryption-keys": [{"key-id": "k"}]}, "file:///x", 0)


async def test_a_topics_table_goes_with_its_config(rig: Rig) -> None:
    await rig.create_topic()
    await rig.drain(rig.committer())
    body = {"requirements": [], "updates": [UPGRADE]}
    status, answer = await ask(rig, "POST", "/v1/namespaces/floe/tables/t", body)
    assert status == 403
    assert "topic's config floe.table.format-version says" in answer["error"]["message"]
