"""`floe schema …` against the registry of a real `floe dev`, and from one registry into another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.impact import COLUMNS, _table
from tests.unit.agent.cli.conftest import Dev, fails, start_dev

MONEY = 'syntax = "proto3"; package common; message Money { string currency = 1; int64 units = 2; }\n'
ORDER = """syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; common.Money total = 2; google.protobuf.Timestamp at = 3; }
"""
WIDER = ORDER.replace("at = 3;", "at = 3; string note = 4;")
BROKEN = ORDER.replace("int64 id = 1", "string id = 1")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Another cluster."""
    running = start_dev(tmp_path_factory.mktemp("other") / "data")
    yield running
    assert running.stop() == 0


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    """A folder of files."""
    (tmp_path / "common").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "common/money.proto").write_text(MONEY)
    for name, text in {"order": ORDER, "wider": WIDER, "broken": BROKEN}.items():
        (tmp_path / f"shop/{name}.proto").write_text(text)
    return tmp_path


def told(dev: Dev, *words: str, status: int = 0) -> Any:
    """What a command says as JSON."""
    return json.loads(dev.run("schema", *words, "--output", "json", status=status).out)


def registered(dev: Dev, protos: Path, subject: str, name: str = "order") -> Any:
    file = str(protos / f"shop/{name}.proto")
    return told(dev, "register", subject, file, "--proto-path", str(protos))


def test_a_file_is_registered_behind_what_it_imports(dev: Dev, protos: Path) -> None:
    money, order = registered(dev, protos, "orders-value")
    assert (money["subject"], order["subject"], order["version"]) == ("common/money.proto", "orders-value", 1)
    assert registered(dev, protos, "orders-value") == [money, order]  # found, not registered anew
    shown = told(dev, "show", "orders-value")
    assert shown["references"] == [
        {"name": "common/money.proto", "subject": "common/money.proto", "version": money["version"]}
    ]
    assert dev.run("schema", "show", "--id", str(order["id"])).out == ORDER
    assert told(dev, "show", "--id", str(order["id"]))["versions"] == [
        {"subject": "orders-value", "version": 1}
    ]


def test_an_import_may_be_another_subject(dev: Dev, protos: Path) -> None:
    file = str(protos / "common/money.proto")
    assert told(dev, "register", "money", file)[0]["version"] == 1
    alone = protos / "alone.proto"
    alone.write_text(ORDER)
    (one,) = told(dev, "register", "refers", str(alone), "--reference", "common/money.proto=money@1")
    assert (
        told(dev, "show", "refers", "--version", str(one["version"]))["references"][0]["subject"] == "money"
    )
    (protos / "common/money.proto").unlink()
    status, line = dev.fails("schema", "register", "refers", str(alone))
    assert status == 2
    assert 'import "common/money.proto" is in none of' in line
    assert "--reference common/money.proto=SUBJECT" in line


def test_a_check_says_what_breaks_whom(dev: Dev, protos: Path) -> None:
    registered(dev, protos, "checked")
    reference = ("--reference", "common/money.proto=common/money.proto")
    ok = dev.run("schema", "check", "checked", str(protos / "shop/wider.proto"), *reference)
    assert ok.out == "it goes with checked\n"
    bad = dev.run("schema", "check", "checked", str(protos / "shop/broken.proto"), *reference, status=1)
    assert "#/Order/1" in bad.out
    assert "FIELD_SCALAR_KIND_CHANGED" in bad.out
    assert "does not go with checked: 1 reasons" in bad.err
    status, line = dev.fails("schema", "register", "checked", str(protos / "shop/broken.proto"), *reference)
    assert status == 5
    assert "incompatible with an earlier schema" in line


@pytest.mark.parametrize(
    ("made", "head"), [(False, "  table floe.t (not made yet)"), (True, "  table floe.t")]
)
def test_a_table_that_is_not_there_yet_is_told_so(made: bool, head: str) -> None:
    columns = {**{kind: [] for kind in COLUMNS}, "problems": [], "more": 0}
    assert list(_table({"name": "floe.t", "made": made, "columns": columns})) == [
        f"{head}: no column changes"
    ]


def test_an_impact_is_told_before_it_is_made(dev: Dev, protos: Path) -> None:
    """Topics, columns and whether it goes; status 1 where something breaks. Nothing is registered."""
    registered(dev, protos, "impact-value")
    dev.run("topic", "create", "impact")
    reference = ("--reference", "common/money.proto=common/money.proto")
    wider, broken = (str(protos / f"shop/{name}.proto") for name in ("wider", "broken"))
    out = dev.run("schema", "impact", "impact-value", wider, *reference).out
    assert "impact-value would take it as version 2 (BACKWARD)" in out
    assert "topic impact (value): is not bound" in out
    dev.run("topic", "bind", "impact", "--subject", "impact-value")
    out = dev.run("schema", "impact", "impact-value", wider, *reference).out
    assert "topic impact (value): takes every version of the subject" in out
    assert re.search(r"table floe\.impact( \(not made yet\))?:", out), (
        "a slow machine may have made it by now"
    )
    assert "new column value.note (string)" in out
    bad = dev.run("schema", "impact", "impact-value", broken, *reference, status=1)
    assert "impact-value would refuse it (BACKWARD):" in bad.out
    assert "FIELD_SCALAR_KIND_CHANGED" in bad.out
    assert "breaks 1 thing" in bad.err
    shown = told(dev, "impact", "impact-value", broken, *reference, status=1)
    assert (shown["compatible"], shown["topics"][0]["how"]) == (False, "follows")
    assert told(dev, "show", "impact-value")["version"] == 1


def test_versions_are_compared(dev: Dev, protos: Path) -> None:
    registered(dev, protos, "compared")
    status, line = dev.fails("schema", "diff", "compared")
    assert (status, "no version before 1" in line) == (2, True)
    registered(dev, protos, "compared", "wider")
    out = dev.run("schema", "diff", "compared").out
    assert "--- compared version 1" in out
    assert "+message Order { int64 id = 1; common.Money total = 2; " in out
    assert "breaks" not in out
    back = told(dev, "diff", "compared", "2", "1")
    assert (back["from"], back["to"]) == (2, 1)


def test_levels_lists_and_deletes(dev: Dev, protos: Path) -> None:
    registered(dev, protos, "led")
    assert dev.run("schema", "level", "led").out == "BACKWARD (as for all)\n"
    assert dev.run("schema", "level", "led", "--set", "FULL").out == "FULL\n"
    assert told(dev, "level", "led", "--unset") == {"subject": "led", "set": None, "in_force": "BACKWARD"}
    assert dev.fails("schema", "level", "led", "--set", "SIDEWAYS")[0] == 5
    (row,) = told(dev, "list", "--prefix", "led")
    assert {**row, "id": 0} == {
        "subject": "led",
        "version": 1,
        "id": 0,
        "type": "PROTOBUF",
        "versions": 1,
        "compatibility": None,
    }
    assert dev.fails("schema", "delete", "led", "--permanent") == (
        5,
        "floe: Subject 'led' was not deleted first before being permanently deleted",
    )
    assert told(dev, "delete", "led")["versions"] == [1]
    assert told(dev, "list", "--prefix", "led") == []
    assert len(told(dev, "list", "--prefix", "led", "--deleted")) == 1
    assert "deleted for good" in dev.run("schema", "delete", "led", "--permanent").out
    assert dev.fails("schema", "show", "led")[0] == 5


def _subjects(dev: Dev, prefix: str) -> dict[str, Any]:
    """All of a registry's subjects with their versions, ids, texts and references."""
    rows = told(dev, "list", "--prefix", prefix, "--deleted")
    found = {}
    for row in rows:
        numbers = range(1, row["version"] + 1)
        told_of = [told(dev, "show", row["subject"], "--version", str(n), "--deleted") for n in numbers]
        found[row["subject"]] = told_of
    return found


def test_another_registry_is_taken_over_with_its_ids(dev: Dev, other: Dev, protos: Path) -> None:
    """Ids and versions, references, deleted versions and levels; and once more changes nothing."""
    for number in range(6):  # ids that each gave to something else long ago
        file = protos / f"n{number}.proto"
        file.write_text(f'syntax = "proto3"; message N{number} {{ int32 a = 1; }}')
        for where in (dev, other) if number < 3 else (dev,):
            told(where, "register", f"early-{number}", str(file))
    reference = ("--reference", "common/money.proto=taken-money")
    text = MONEY.replace("units = 2;", "units = 2; int32 nanos = 3;")  # no other test has given it an id
    (protos / "common/money.proto").write_text(text)
    for name in ("order", "wider"):
        told(dev, "register", "taken-money", str(protos / "common/money.proto"))
        told(dev, "register", "taken-orders", str(protos / f"shop/{name}.proto"), *reference)
    told(dev, "level", "taken-orders", "--set", "FULL")
    told(dev, "delete", "taken-orders", "--version", "1")

    done = told(other, "import", dev.http, "--prefix", "taken-")
    assert done == {"subjects": 2, "versions": 3, "there": 0, "refused": []}
    assert _subjects(other, "taken-") == _subjects(dev, "taken-")
    assert told(other, "level", "taken-orders")["set"] == "FULL"
    again = told(other, "import", dev.http, "--prefix", "taken-")
    assert again == {"subjects": 2, "versions": 0, "there": 3, "refused": []}
    fresh = protos / "fresh.proto"
    fresh.write_text('syntax = "proto3"; message Fresh { int32 a = 1; }')
    (one,) = told(other, "register", "later", str(fresh))  # it registers again, and under an id of its own
    assert one["id"] > max(row["id"] for row in told(other, "list", "--prefix", "taken-", "--deleted"))


def test_what_the_target_has_otherwise_is_told_and_stays(dev: Dev, other: Dev, protos: Path) -> None:
    ours, theirs = protos / "ours.proto", protos / "theirs.proto"
    ours.write_text('syntax = "proto3"; message Ours { int32 a = 1; }')
    theirs.write_text('syntax = "proto3"; message Theirs { int32 a = 1; }')
    for number in range(20):  # ids that nobody else has
        theirs.write_text(f'syntax = "proto3"; message Theirs{number} {{ int32 a = 1; }}')
        told(other, "register", f"far-{number}", str(theirs))
    told(dev, "register", "met", str(ours))
    told(other, "register", "met", str(theirs))
    before = told(other, "show", "met")
    ran = dev.run("schema", "export", other.http, "--prefix", "met", status=1)
    assert "not copied: met: version 1 has id" in ran.out
    assert "1 subjects were not copied" in ran.err
    assert told(other, "show", "met") == before


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        (("list", "--http", "ftp://x"), 2, "is no URL of a registry"),
        (("list", "--http", "http://127.0.0.1:1"), 4, "no registry answers at http://127.0.0.1:1"),
        (("import", "http://user:secret@127.0.0.1:1"), 4, "no registry answers at http://127.0.0.1:1"),
        (("show",), 2, "give a subject or --id"),
        (("register", "s", "missing.proto"), 1, "missing.proto cannot be read"),
        (("register", "s", "README.md"), 2, "which type of schema it is goes by its name"),
        (("register", "s", "x.proto", "--reference", "nonsense"), 2, "'nonsense' is not IMPORT_PATH=SUBJECT"),
    ],
)
def test_bad_words(words: tuple[str, ...], status: int, what: str) -> None:
    ended, line = fails("schema", *words)
    assert (ended, what in line) == (status, True), line
    assert "secret" not in line


def test_imports_in_a_circle_are_told(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; import "b.proto"; message A { }')
    (tmp_path / "b.proto").write_text('syntax = "proto3"; import "a.proto"; message B { }')
    status, line = dev.fails("schema", "register", "round", str(tmp_path / "a.proto"))
    assert status == 1
    assert "imports go round in a circle: b.proto → a.proto → b.proto" in line


def test_avro_files(dev: Dev, other: Dev, tmp_path: Path) -> None:
    """Registered, checked, compared and taken over: answers name no type then, which means AVRO."""
    money, order, broken = (tmp_path / f"{name}.avsc" for name in ("money", "order", "broken"))
    money.write_text(
        '{"type": "record", "name": "avro.Money", "fields": [{"name": "units", "type": "long"}]}'
    )
    text = '{"type": "record", "name": "avro.Order", "fields": [\n  {"name": "total", "type": "Money"}\n]}'
    order.write_text(text)
    broken.write_text(text.replace('"Money"}', '"Money"},\n  {"name": "note", "type": "string"}'))
    highest = max((row["id"] for row in told(other, "list")), default=0)
    for number in range(highest + 1):  # ids that the other registry gave to something else
        fill = tmp_path / "fill.avsc"
        fill.write_text(f'{{"type": "fixed", "name": "Fill{number}", "size": 1}}')
        told(dev, "register", f"fill-{number}", str(fill))
    told(dev, "register", "avro-money", str(money))
    assert dev.fails("schema", "register", "avro-orders", str(order))[0] == 5
    reference = ("--reference", "avro.Money=avro-money")
    told(dev, "register", "avro-orders", str(order), *reference)
    assert dev.run("schema", "show", "avro-orders").out.startswith(text)
    assert [row["type"] for row in told(dev, "list", "--prefix", "avro-")] == ["AVRO", "AVRO"]
    bad = dev.run("schema", "check", "avro-orders", str(broken), *reference, status=1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in bad.out
    told(dev, "level", "avro-orders", "--set", "NONE")
    told(dev, "register", "avro-orders", str(broken), *reference)
    told(dev, "level", "avro-orders", "--unset")
    out = dev.run("schema", "diff", "avro-orders").out
    assert '+  {"name": "note", "type": "string"}' in out
    assert "breaks: Field note of the new schema has no default" in out
    done = told(other, "import", dev.http, "--prefix", "avro-")
    assert done == {"subjects": 2, "versions": 3, "there": 0, "refused": []}
    assert _subjects(other, "avro-") == _subjects(dev, "avro-")
    assert told(other, "export", dev.http, "--prefix", "avro-")["there"] == 3
