"""`floe schema …` with files of JSON schemas, against the registry of a real `floe dev`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.cli.conftest import Dev, fails, start_dev
from tests.unit.agent.cli.test_schemas import told

MONEY = '{"type": "object", "properties": {"units": {"type": "integer"}}, "additionalProperties": false}'
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "total": {"$ref": "money.json"}},
    "additionalProperties": False,
}
WIDER = {**ORDER, "properties": {**ORDER["properties"], "note": {"type": "string"}}}
BROKEN = {**ORDER, "properties": {**ORDER["properties"], "id": {"type": "string"}}}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Another cluster."""
    running = start_dev(tmp_path_factory.mktemp("other-json") / "data")
    yield running
    assert running.stop() == 0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files."""
    (tmp_path / "money.jsonschema").write_text(MONEY)
    for name, schema in {"order": ORDER, "wider": WIDER, "broken": BROKEN}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(schema, indent=2))
    return tmp_path


def test_registered_checked_and_compared(dev: Dev, other: Dev, files: Path) -> None:
    """One subject's way, and that of what it refers to, into another registry with its ids."""
    reference = ("--reference", "money.json=js-money@1")
    told(dev, "register", "js-money", str(files / "money.jsonschema"))
    (first,) = told(dev, "register", "js-orders", str(files / "order.json"), *reference)
    assert dev.run("schema", "show", "js-orders").out == (files / "order.json").read_text() + "\n"
    assert told(dev, "show", "js-orders")["references"] == [
        {"name": "money.json", "subject": "js-money", "version": 1}
    ]
    ok = dev.run("schema", "check", "js-orders", str(files / "wider.json"), *reference)
    assert ok.out == "it goes with js-orders\n"
    bad = dev.run("schema", "check", "js-orders", str(files / "broken.json"), *reference, status=1)
    assert "#/properties/id" in bad.out
    assert "[TYPE_CHANGED]" in bad.out
    status, line = dev.fails("schema", "register", "js-orders", str(files / "broken.json"), *reference)
    assert (status, "incompatible with an earlier schema" in line) == (5, True)
    status, line = dev.fails("schema", "register", "js-orders", str(files / "order.json"))
    assert (status, "give the schema as a reference of that name" in line) == (5, True)
    told(dev, "register", "js-orders", str(files / "wider.json"), *reference)
    out = dev.run("schema", "diff", "js-orders").out
    assert '+    "note": {' in out
    assert "breaks" not in out
    done = told(other, "import", dev.http, "--prefix", "js-")
    assert done == {"subjects": 2, "versions": 3, "there": 0, "refused": []}
    assert told(other, "show", "js-orders", "--version", "1")["id"] == first["id"]
    again = told(dev, "export", other.http, "--prefix", "js-")
    assert (again["versions"], again["there"]) == (0, 3)


def test_the_type_is_told_where_the_name_does_not(dev: Dev, files: Path) -> None:
    plain = files / "schema.txt"
    plain.write_text(MONEY)
    status, line = dev.fails("schema", "register", "typed", str(plain))
    assert (status, "goes by its name, .proto, .avsc, .json, .jsonschema, or by --type" in line) == (2, True)
    assert told(dev, "register", "typed", str(plain), "--type", "json")[0]["version"] == 1
    assert told(dev, "show", "typed")["schemaType"] == "JSON"
    assert dev.run("schema", "check", "typed", str(plain), "--type", "JSON").out == "it goes with typed\n"
    status, line = fails("schema", "check", "typed", str(files / "none.json"))
    assert (status, "none.json cannot be read" in line) == (1, True)
