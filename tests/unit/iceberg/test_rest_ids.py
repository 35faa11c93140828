"""What engines add at the same time gets ids of its own, and what is there already is used again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pyiceberg.catalog.rest import CreateTableRequest

from iceberg import rest_commit
from iceberg.rest_errors import CatalogError

TEXT = {"id": 1, "name": "a", "type": "string", "required": False}
OTHER = {"id": 2, "name": "b", "type": "long", "required": False}
NOW_MS = 1_800_000_000_000
LATER = {"id": 2, "name": "c", "type": "string", "required": False}


def fields(*each: dict[str, Any], number: int = 0) -> dict[str, Any]:
    return {"type": "struct", "schema-id": number, "fields": list(each), "identifier-field-ids": []}


@pytest.fixture
def table() -> dict[str, Any]:
    request = CreateTableRequest.model_validate(
        {"name": "t", "schema": fields(TEXT, OTHER), "location": None, "stage-create": False}
        | {"partition-spec": None, "write-order": None}
    )
    return rest_commit.create(request, "file:///t", NOW_MS)


def after(base: dict[str, Any], *updates: dict[str, Any], **required: Any) -> dict[str, Any]:
    requirements = [{"type": kind.replace("_", "-"), **value} for kind, value in required.items()]
    request = rest_commit.parse_commit({"requirements": requirements, "updates": list(updates)})
    return rest_commit.apply(request, base, "file:///t/metadata/1.json", NOW_MS)


def order(number: int, *sources: int) -> dict[str, Any]:
    each = [
        {"source-id": source, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
        for source in sources
    ]
    return {"order-id": number, "fields": each}


def test_two_engines_add_what_they_number_alike(table: dict[str, Any]) -> None:
    """Two schemas, specs or orders of one id make a table that nobody reads, or a commit that is refused."""
    for source, name in ((1, "x"), (2, "y")):
        third = {**LATER, "name": name, "id": 2 + source}
        spec = {"source-id": source, "field-id": 999 + source, "transform": "identity", "name": name + "p"}
        table = after(
            table,
            {"action": "add-schema", "schema": fields(TEXT, OTHER, third, number=1)},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 1, "fields": [spec]}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": order(1, source)},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        )
    assert [each["schema-id"] for each in table["schemas"]] == [0, 1, 2]
    assert [each["spec-id"] for each in table["partition-specs"]] == [0, 1, 2]
    assert [each["order-id"] for each in table["sort-orders"]] == [0, 1, 2]
    ids = table["current-schema-id"], table["default-spec-id"], table["default-sort-order-id"]
    assert ids == (2, 2, 2)
    assert table["sort-orders"][2]["fields"][0]["source-id"] == 2
    assert table["schemas"][2]["fields"][2]["name"] == "y"


def test_a_number_is_the_catalogs_not_the_engines(table: dict[str, Any]) -> None:
    found = after(table, {"action": "add-schema", "schema": fields(TEXT, number=1 << 40)})
    assert [each["schema-id"] for each in found["schemas"]] == [0, 1]


def test_what_is_there_is_used_again(table: dict[str, Any]) -> None:
    """An engine adds what the table had before the last change: the old id counts, not the highest."""
    changed = after(
        table,
        {"action": "add-schema", "schema": fields(TEXT, number=1)},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-sort-order", "sort-order": order(1, 1)},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    again = after(
        changed,
        {"action": "add-schema", "schema": fields(TEXT, OTHER, number=2)},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-sort-order", "sort-order": order(2)},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )
    assert (again["current-schema-id"], again["default-sort-order-id"]) == (0, 0)
    assert (again["schemas"], again["sort-orders"]) == (changed["schemas"], changed["sort-orders"])


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ({"assert_table_uuid": {"uuid": str(uuid.UUID(int=0))}}, "UUID does not match"),
        ({"assert_last_assigned_field_id": {"last-assigned-field-id": 1}}, "last assigned field id changed"),
        ({"assert_current_schema_id": {"current-schema-id": 7}}, "current schema changed"),
        ({"assert_default_spec_id": {"default-spec-id": 7}}, "default partition spec changed"),
        ({"assert_default_sort_order_id": {"default-sort-order-id": 7}}, "default sort order changed"),
        ({"assert_create": {}}, "table already exists"),
    ],
)
def test_a_requirement_that_does_not_hold_is_told_as_the_reference_tells(
    table: dict[str, Any], requirement: dict[str, Any], words: str
) -> None:
    with pytest.raises(CatalogError, match=f"Requirement failed: {words}") as raised:
        after(table, **requirement)
    assert raised.value.status == 409
