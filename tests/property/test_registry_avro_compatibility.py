"""AVRO schemas that the checker calls compatible decode each other's records, whatever is in them.

Pairs of schemas are drawn: the second is the first with some changes, good and bad. Of pairs that pass,
records at random are written with one and read with the other by fastavro, which knows nothing of the
checker: nothing is refused. Of pairs that do not pass, a fair share has records that cannot be read: the
checker does not refuse at random.
"""

from __future__ import annotations

import copy
import io
import json
import random
from typing import Any

import fastavro

from schema.registry.avro.rules import differences
from schema.registry.avro.schema import load, parse
from schema.registry.avro.types import Type
from schema.registry.parsed import InvalidSchema

SEEDS = range(1_500)
RECORDS = 4
DEPTH_MAX = 3
NUMBERS = ("int", "long", "float", "double")
TEXTS = ("string", "bytes")
SIMPLE = ("null", "boolean", *NUMBERS, *TEXTS)
UNREADABLE = (fastavro.read.SchemaResolutionError, ValueError, TypeError, KeyError, EOFError, IndexError)
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "string": "x",
    "bytes": "x",
    "array": [],
    "map": {},
}


class Drawn:
    """Schemas at random; names are used once."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.number, self.open = draw, 0, ["R"]

    def name(self) -> str:
        self.number += 1
        return f"N{self.number}"

    def record(self, name: str, depth: int) -> dict[str, Any]:
        fields = [self.field(f"f{n}", depth) for n in self.draw.sample(range(6), self.draw.randrange(1, 5))]
        return {"type": "record", "name": name, "fields": fields}

    def field(self, name: str, depth: int) -> dict[str, Any]:
        made = {"name": name, "type": self.type(depth + 1)}
        if self.draw.random() < 0.5:
            made |= default(made["type"])
        return made

    def type(self, depth: int, *, union: bool = True) -> Any:
        choice = self.draw.randrange(12 if depth < DEPTH_MAX else 7)
        if choice < 5:
            return self.draw.choice(SIMPLE)
        if choice == 5:
            symbols = self.draw.sample("ABCD", self.draw.randrange(1, 4))
            made = {"type": "enum", "name": self.name(), "symbols": symbols}
            return made | ({"default": symbols[0]} if self.draw.random() < 0.5 else {})
        if choice == 6:
            return {"type": "fixed", "name": self.name(), "size": self.draw.randrange(1, 4)}
        if choice == 7:
            return {"type": "array", "items": self.type(depth + 1)}
        if choice == 8:
            return {"type": "map", "values": self.type(depth + 1)}
        if choice == 9 or not union:
            return self.record(self.name(), depth)
        if choice == 10:
            return ["null", "R"]
        found: dict[str, Any] = {}
        for _ in range(self.draw.randrange(1, 4)):
            one = self.type(depth + 1, union=False)
            found.setdefault(kind(one), one)
        return [*found.values()]


def kind(one: Any) -> str:
    """Of a type; of a named one its name."""
    if isinstance(one, list):
        return "union"
    return one if isinstance(one, str) else str(one.get("name") or one["type"])


def default(of: Any) -> dict[str, Any]:
    """A default of a simple type; else none."""
    first = of[0] if isinstance(of, list) else of
    if isinstance(first, dict) and first["type"] == "enum":
        return {"default": first["symbols"][0]}
    name = first["type"] if isinstance(first, dict) else first
    return {"default": 0} if name in NUMBERS else {"default": DEFAULTS[name]} if name in DEFAULTS else {}


def named(schema: Any) -> list[dict[str, Any]]:
    """All definitions, and unions as objects are not: dicts of types in the schema, the outermost first."""
    found, waiting = [], [schema]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            found.append(one)
            waiting += [one[inside] for inside in ("items", "values") if inside in one]
            waiting += [field["type"] for field in one.get("fields", ())]
    return found


def changed(draw: random.Random, schema: Any) -> Any:
    """The schema with one or two changes."""
    made, new = copy.deepcopy(schema), Drawn(draw)
    new.number = 100
    for _ in range(draw.randrange(1, 3)):
        one = draw.choice(named(made))
        if one["type"] == "record":
            _change_record(draw, new, one)
        elif one["type"] == "enum":
            one["symbols"] = draw.sample("ABCDE", draw.randrange(1, 5))
            one.pop("default", None)
            if draw.random() < 0.5:
                one["default"] = one["symbols"][0]
        elif one["type"] == "fixed":
            one["size"] = draw.randrange(1, 4)
        else:
            inside = "items" if one["type"] == "array" else "values"
            one[inside] = _near(draw, one[inside])
    return made


def _change_record(draw: random.Random, new: Drawn, one: dict[str, Any]) -> None:
    what = draw.randrange(7)
    field = draw.choice(one["fields"])
    if what == 0:
        one["fields"].append(new.field("g", DEPTH_MAX))
    elif what == 1 and len(one["fields"]) > 1 and not any(each.get("type") for each in named(field["type"])):
        one["fields"].remove(field)
    elif what == 2:
        field["aliases"], field["name"] = [field["name"]], "renamed"
    elif what == 3:
        draw.shuffle(one["fields"])
    elif what == 4 and one["name"] != "R":
        one["aliases"], one["name"] = [one["name"]], f"{one['name']}x"
        if draw.random() < 0.5:
            del one["aliases"]
    else:
        field["type"] = _near(draw, field["type"])
        field.pop("default", None)


def _near(draw: random.Random, one: Any) -> Any:
    """A type for another: promotions both ways, into unions and out of them."""
    if isinstance(one, list):
        shorter = [each for each in one if draw.random() < 0.7 or isinstance(each, dict)]
        more = [each for each in SIMPLE if each not in one and draw.random() < 0.2]
        return [*shorter, *more] or "null"
    if draw.random() < 0.3:
        return list(dict.fromkeys(("null", one))) if isinstance(one, str) else ["null", one]
    for group in (NUMBERS, TEXTS):
        if one in group and draw.random() < 0.8:
            return draw.choice(group)
    return draw.choice(SIMPLE) if isinstance(one, str) and one != "R" else one


class Values:
    """Values at random of a schema. Bytes are text in UTF-8: others become no text, which both sides know."""

    def __init__(self, draw: random.Random, schema: Any) -> None:
        self.draw = draw
        self.types = {one["name"]: one for one in named(schema) if "name" in one}

    def of(self, one: Any, depth: int = 0) -> Any:
        if isinstance(one, list):
            chosen = one[0] if depth > 2 * DEPTH_MAX else self.draw.choice(one)
            value = self.of(chosen, depth + 1)
            return (kind(chosen), value) if kind(chosen) != "null" else None
        if isinstance(one, str) and one in self.types:
            one = self.types[one]
        if isinstance(one, str):
            return self._simple(one)
        if one["type"] == "record":
            return {field["name"]: self.of(field["type"], depth + 1) for field in one["fields"]}
        if one["type"] == "enum":
            return self.draw.choice(one["symbols"])
        if one["type"] == "fixed":
            return self.draw.randbytes(one["size"])
        count = 0 if depth > 2 * DEPTH_MAX else self.draw.randrange(3)
        if one["type"] == "array":
            return [self.of(one["items"], depth + 1) for _ in range(count)]
        return {f"k{n}": self.of(one["values"], depth + 1) for n in range(count)}

    def _simple(self, name: str) -> Any:
        if name == "boolean":
            return self.draw.random() < 0.5
        if name in ("int", "long"):
            return self.draw.randrange(-(1 << 31), 1 << 31) >> self.draw.choice((0, 24))
        if name in ("float", "double"):
            return float(self.draw.randrange(-4, 4))
        text = self.draw.choice(("", "x", "ä\U0001f600", "y" * 70))
        return {"null": None, "string": text, "bytes": text.encode()}[name]


def ends(one: Any) -> bool:
    """Whether a value of it can be written at all: no record holds itself for ever."""
    return json.dumps(one).count('"R"') == json.dumps(one).count('["null", "R"]') + 1


def form(schema: Any) -> Type | None:
    """The schema; None for what is none, as a default that its changed type does not take."""
    try:
        return load(parse(json.dumps(schema), {}).canonical, {}) if ends(schema) else None
    except InvalidSchema:
        return None


def readable(draw: random.Random, writer: Any, reader: Any) -> Exception | None:
    """What keeps records of the writer from being read; None: nothing."""
    writes, reads = fastavro.parse_schema(copy.deepcopy(writer)), fastavro.parse_schema(copy.deepcopy(reader))
    values = Values(draw, writer)
    for _ in range(RECORDS):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, writes, values.of(writer))
        out.seek(0)
        try:
            fastavro.schemaless_reader(out, writes, reads)
        except UNREADABLE as error:
            return error
    return None


def test_what_is_called_compatible_is_read() -> None:
    passed = refused = unreadable = 0
    for seed in SEEDS:
        draw = random.Random(seed)
        old = Drawn(draw).record("R", 0)
        new = changed(draw, old)
        one, other = form(old), form(new)
        if one is None or other is None:
            continue
        for writer, writes, reader, reads in ((old, one, new, other), (new, other, old, one)):
            why_not = readable(draw, writer, reader)
            if differences(reads, writes):
                refused += 1
                unreadable += why_not is not None
            else:
                passed += 1
                assert why_not is None, (seed, why_not, writer, reader)
    assert min(passed, refused) > 300, (passed, refused)
    assert unreadable > refused * 4 // 5, (unreadable, refused)
