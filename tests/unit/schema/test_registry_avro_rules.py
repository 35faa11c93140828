"""What readers of AVRO cannot take from writers: each rule with what passes and what does not."""

# ruff: noqa: E501 - a table of schemas, a rule in each row

from __future__ import annotations

from functools import cache

import pytest

from schema.registry.avro import rules as avro_rules
from schema.registry.avro.rules import READS, TOLD_MAX, differences
from schema.registry.avro.schema import load, parse
from schema.registry.avro.types import PRIMITIVES, Type
from schema.registry.compatibility import LEVELS, Earlier, Loaded, problems


@cache
def schema(text: str) -> Type:
    """A type; a name alone needs no quotes here."""
    return load(parse(text if text[0] in '[{"' else f'"{text}"', {}).canonical, {})


def loaded(text: str) -> Loaded:
    return Loaded("AVRO", schema(text))


def kinds(reader: str, writer: str) -> list[str]:
    return [f"{one.kind} {one.path}" for one in differences(schema(reader), schema(writer))]


def f(name: str, kind: str = "int", more: str = "") -> str:
    """A field."""
    return f'{{"name": "{name}", "type": {kind if kind[0] in "[{" else chr(34) + kind + chr(34)}{more}}}'


def r(*fields: str, name: str = "R", more: str = "") -> str:
    return f'{{"type": "record", "name": "{name}", "fields": [{", ".join(fields)}]{more}}}'


def e(symbols: str, name: str = "E", more: str = "") -> str:
    return f'{{"type": "enum", "name": "{name}", "symbols": [{", ".join(chr(34) + each + chr(34) for each in symbols)}]{more}}}'


def fixed(size: int, name: str = "F", more: str = "") -> str:
    return f'{{"type": "fixed", "name": "{name}", "size": {size}{more}}}'


def array(items: str) -> str:
    return f'{{"type": "array", "items": {items}}}'


def values(items: str) -> str:
    return f'{{"type": "map", "values": {items}}}'


def decimal(precision: int, scale: int) -> str:
    return f'{{"type": "bytes", "logicalType": "decimal", "precision": {precision}, "scale": {scale}}}'


def alias(*names: str) -> str:
    return ', "aliases": [' + ", ".join(f'"{name}"' for name in names) + "]"


D0, EA = ', "default": 0', ', "default": "A"'
MISSING, DEFAULT, BRANCH, TYPE, NAME, SIZE = (
    "MISSING_ENUM_SYMBOLS", "READER_FIELD_MISSING_DEFAULT_VALUE", "MISSING_UNION_BRANCH", "TYPE_MISMATCH",
    "NAME_MISMATCH", "FIXED_SIZE_MISMATCH",
)  # fmt: skip
# rule, writer, reader, and the kinds of differences with their paths; none: the reader takes all of it
RULES: list[tuple[str, str, str, list[str]]] = [
    ("field added without default", r(f("a")), r(f("a"), f("b")), [f"{DEFAULT} /fields/1"]),
    ("field added with default", r(f("a")), r(f("a"), f("b", more=D0)), []),
    ("field added whose enum has a default", r(), r(f("b", e("A", more=EA))), [f"{DEFAULT} /fields/0"]),
    ("field added that may be null, without default", r(), r(f("b", '["null", "int"]')), [f"{DEFAULT} /fields/0"]),
    ("field added that is null by default", r(), r(f("b", '["null", "int"]', ', "default": null')), []),
    ("field removed", r(f("a"), f("b")), r(f("a")), []),
    ("fields in another order", r(f("a"), f("b", "string")), r(f("b", "string"), f("a")), []),
    ("field renamed", r(f("a")), r(f("b")), [f"{DEFAULT} /fields/0"]),
    ("field renamed with alias", r(f("a")), r(f("b", more=alias("a"))), []),
    ("alias of the writer", r(f("a", more=alias("b"))), r(f("b")), [f"{DEFAULT} /fields/0"]),
    ("alias of another type", r(f("a", "string")), r(f("b", more=alias("a"))), [f"{TYPE} /fields/0/type"]),
    ("alias that the writer has beside the name", r(f("a"), f("b")), r(f("b", more=alias("a"))), [f"{NAME} /fields/0"]),
    ("two of one field", r(f("a")), r(f("a"), f("b", more=alias("a"))), [f"{NAME} /fields/1"]),
    ("type of a field", r(f("a"), f("b")), r(f("a"), f("b", "string")), [f"{TYPE} /fields/1/type"]),
    ("several at once", r(f("a"), f("b")), r(f("a", "string"), f("b", "null"), f("c")),
     [f"{DEFAULT} /fields/2", f"{TYPE} /fields/0/type", f"{TYPE} /fields/1/type"]),
    ("record renamed", r(), r(name="S"), [f"{NAME} /name"]),
    ("record renamed with alias", r(), r(name="S", more=alias("R")), []),
    ("alias of the writer's record", r(more=alias("S")), r(name="S"), [f"{NAME} /name"]),
    ("another namespace", r(name="x.R"), r(name="y.R"), []),
    ("alias in a namespace", r(name="x.R"), r(name="x.S", more=alias("R")), []),
    ("alias in another namespace", r(name="x.R"), r(name="y.S", more=alias("R")), [f"{NAME} /name"]),
    ("alias in full", r(name="x.R"), r(name="y.S", more=alias("x.R")), []),
    ("inside", r(f("a", r(f("b"), name="I"))), r(f("a", r(f("b"), f("c"), name="I"))), [f"{DEFAULT} /fields/0/type/fields/1"]),
    ("record to map", r(), values('"int"'), [f"{TYPE} /"]),
    ("error to record", r().replace("record", "error"), r(), []),
    ("doc and attributes", r(f("a")), r(f("a", more=', "doc": "x", "x": 1, "order": "ignore"'), more=', "doc": "x"'), []),
    ("symbol added", e("AB"), e("ABC"), []),
    ("symbol removed", e("ABC"), e("A"), [f"{MISSING} /symbols"]),
    ("symbol removed, with default", e("ABC"), e("A", more=EA), []),
    ("symbol removed, default of the writer", e("ABC", more=EA), e("A"), [f"{MISSING} /symbols"]),
    ("symbols in another order", e("AB"), e("BA"), []),
    ("enum renamed", e("A"), e("A", name="G"), [f"{NAME} /name"]),
    ("enum renamed with alias", e("A"), e("A", name="G", more=alias("E")), []),
    ("enum to text", e("A"), "string", [f"{TYPE} /"]),
    ("text to enum", "string", e("A"), [f"{TYPE} /"]),
    ("fixed", fixed(2), fixed(2), []),
    ("fixed of another size", fixed(2), fixed(3), [f"{SIZE} /size"]),
    ("fixed renamed", fixed(2), fixed(2, "G"), [f"{NAME} /name"]),
    ("fixed renamed with alias", fixed(2), fixed(2, "G", alias("F")), []),
    ("fixed renamed and resized", fixed(2), fixed(3, "G"), [f"{NAME} /name", f"{SIZE} /size"]),
    ("fixed to bytes", fixed(2), "bytes", [f"{TYPE} /"]),
    ("bytes to fixed", "bytes", fixed(2), [f"{TYPE} /"]),
    ("list of wider numbers", array('"int"'), array('"double"'), []),
    ("list of narrower numbers", array('"long"'), array('"int"'), [f"{TYPE} /items"]),
    ("map of wider numbers", values('"int"'), values('"long"'), []),
    ("map of other values", values(array('"int"')), values(array('"string"')), [f"{TYPE} /values/items"]),
    ("list to map", array('"int"'), values('"int"'), [f"{TYPE} /"]),
    ("list to its item", array('"int"'), "int", [f"{TYPE} /"]),
    ("one becomes a union", "int", '["null", "int"]', []),
    ("one becomes a union of wider ones", "int", '["null", "double"]', []),
    ("one becomes a union without it", "string", '["null", "int"]', [f"{BRANCH} /"]),
    ("a field that may be null", r(f("a")), r(f("a", '["null", "int"]')), []),
    ("a field that may not be null", r(f("a", '["null", "int"]')), r(f("a")), [f"{TYPE} /fields/0/type/0"]),
    ("union of one becomes it", '["int"]', "int", []),
    ("union of what all is taken becomes one", '["int", "long"]', "double", []),
    ("union grows", '["null", "int"]', '["null", "int", "string"]', []),
    ("union shrinks", '["null", "int", "boolean"]', '["null", "int"]', [f"{BRANCH} /2"]),
    ("union in another order", '["null", "int"]', '["int", "null"]', []),
    ("union with wider ones", '["null", "int"]', '["null", "long"]', []),
    ("union with narrower ones", '["null", "long"]', '["null", "int"]', [f"{BRANCH} /1"]),
    ("union of text becomes bytes", '["null", "string"]', '["null", "bytes"]', []),
    ("record in a union", f'["null", {r(f("a"))}]', f'["null", {r(f("a"), f("b", more=D0))}]', []),
    ("record in a union that breaks", f'["null", {r(f("a"))}]', f'["null", {r(f("a"), f("b"))}]', [f"{BRANCH} /1", f"{DEFAULT} /1/fields/1"]),
    ("record in a union renamed", f'["null", {r()}]', f'["null", {r(name="S")}]', [f"{BRANCH} /1"]),
    ("record in a union renamed with alias", f'["null", {r()}]', f'["null", {r(name="S", more=alias("R"))}]', []),
    ("record in a union of another namespace", f'["null", {r(name="x.R")}]', f'["null", {r(name="y.R")}]', []),
    ("one of two records of a name", r(f("a"), name="x.R"), f'[{r(f("b"), name="y.R")}, {r(f("a"), name="z.R")}]', []),
    ("enum in a union", f'["null", {e("AB")}]', f'["null", {e("A")}]', [f"{BRANCH} /1", f"{MISSING} /1/symbols"]),
    ("list in a union", f'["null", {array(chr(34) + "int" + chr(34))}]', f'["null", {array(chr(34) + "string" + chr(34))}]', [f"{BRANCH} /1", f"{TYPE} /1/items"]),
    ("itself", r(f("a"), f("next", '["null", "R"]')), r(f("a", "long"), f("next", '["null", "R"]')), []),
    ("itself, breaking", r(f("a"), f("next", '["null", "R"]')), r(f("a", "string"), f("next", '["null", "R"]')),
     [f"{TYPE} /fields/0/type", f"{BRANCH} /fields/1/type/1"]),
    ("itself, in a list", r(f("a", array('"R"'))), r(f("a", array('"R"')), f("b")), [f"{DEFAULT} /fields/1"]),
    ("logical type", "long", '{"type": "long", "logicalType": "timestamp-millis"}', []),
    ("decimal", decimal(4, 2), decimal(4, 2), []),
    ("decimal of more digits", decimal(4, 2), decimal(9, 2), []),
    ("decimal of another scale", decimal(4, 2), decimal(4, 1), [f"{TYPE} /scale"]),
    ("decimal of another scale that may be null", f'["null", {decimal(4, 2)}]', f'["null", {decimal(4, 1)}]', [f"{BRANCH} /1", f"{TYPE} /1/scale"]),
    ("decimal to bytes", decimal(4, 2), "bytes", []),
    ("invalid decimal", decimal(4, 2), decimal(2, 4), []),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "writer", "reader", "expected"), RULES, ids=[row[0] for row in RULES])
def test_rule(rule: str, writer: str, reader: str, expected: list[str]) -> None:
    assert kinds(reader, writer) == expected, rule


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_which_primitives_are_read_as_which(writer: str, reader: str) -> None:
    """The table of the specification, in its words."""
    promoted = {
        ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
        ("float", "double"), ("string", "bytes"), ("bytes", "string"),
    }  # fmt: skip
    taken = reader == writer or (writer, reader) in promoted
    assert kinds(reader, writer) == ([] if taken else [f"{TYPE} /"])
    assert (reader in READS.get(writer, (writer,))) == taken


def test_every_kind_of_difference_has_an_example() -> None:
    """Those of Java's SchemaIncompatibilityType."""
    assert {told.partition(" ")[0] for row in RULES for told in row[3]} == {
        MISSING, DEFAULT, BRANCH, TYPE, NAME, SIZE,
    }  # fmt: skip


def test_types_that_hold_each_other_fail_together() -> None:
    """A pair is not taken for good because it waits for one that fails later."""

    def both(kind: str) -> str:
        b = r(f("a", '["null", "A"]'), name="B")
        return r(f("b", b), f("c", '["null", "B"]'), f("bad", kind), name="A")

    assert kinds(both("string"), both("int")) == [
        f"{BRANCH} /fields/0/type/fields/0/type/1", f"{BRANCH} /fields/1/type/1", f"{TYPE} /fields/2/type",
    ]  # fmt: skip
    assert kinds(both("long"), both("int")) == []


def test_long_chains_are_no_matter() -> None:
    """Types that name the one before: no recursion, and paths are put together where they are told only."""
    count = 3_000

    def chain(first: str) -> str:
        links = (r(f("next", f"M{n}"), name=f"M{n + 1}") for n in range(count))
        return f"[{r(f('a', first), name='M0')}, {', '.join(links)}]"

    assert differences(schema(chain("int")), schema(chain("int"))) == []
    assert len(differences(schema(chain("string")), schema(chain("int")))) == TOLD_MAX


def test_what_would_take_too_long_is_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unions of many records of one name: each with each. It is told, not tried."""

    def union(kind: str) -> str:
        return f"[{', '.join(r(f('a', kind), name=f'n{n}.R') for n in range(40))}]"

    assert kinds(union("long"), union("int")) == []
    monkeypatch.setattr(avro_rules, "STEPS_MAX", 1_000)
    comparison = avro_rules._Comparison()
    comparison.compared(schema(union("long")), schema(union("int")))
    assert comparison.steps < 1_100, "it ends there"
    (told,) = differences(schema(union("long")), schema(union("int")))
    assert (
        told.words
        == "More than 1000 pairs of fields and types in the {new} and the {old} schema: too many to compare"
    )


@pytest.mark.parametrize("level", LEVELS)
def test_levels_and_directions(level: str) -> None:
    """A field without default: only readers of the old one go on; one with a default: all do."""
    old, added, harmless = r(f("a")), r(f("a"), f("b")), r(f("a"), f("b", more=D0))
    told = problems(loaded(added), [Earlier(1, old, loaded(old))], level)
    assert bool(told) == level.startswith(("BACKWARD", "FULL"))
    told = problems(loaded(old), [Earlier(1, added, loaded(added))], level)
    assert bool(told) == level.startswith(("FORWARD", "FULL"))
    assert problems(loaded(harmless), [Earlier(1, old, loaded(old))], level) == []


def test_how_a_problem_is_told() -> None:
    old, new = r(f("a")), r(f("a"), f("b"))
    assert problems(loaded(new), [Earlier(3, old, loaded(old))], "BACKWARD") == [
        '{errorType:"READER_FIELD_MISSING_DEFAULT_VALUE", description:"Field b of the new schema has no default, '
        "and the old has it not (path '/fields/1')\"}",
        "{oldSchemaVersion: 3}",
        f"{{oldSchema: '{old}'}}",
        "{compatibility: 'BACKWARD'}",
    ]
    words = [
        one.words for _, writer, reader, _ in RULES for one in differences(schema(reader), schema(writer))
    ]
    assert "The {new} schema has string where the {old} has int" in words
    assert "The {new} schema has no default, and not these symbols of the {old}: B, C" in words
    assert "The {new} schema is missing record R of the {old} in a union" in words
    assert "The {new} schema has y.S where the {old} has x.R, which is none of its aliases" in words
    assert "F has 3 bytes in the {new} schema, 2 in the {old}" in words
