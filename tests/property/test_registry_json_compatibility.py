"""JSON schemas that the checker calls compatible accept each other's documents, whatever is in them.

Pairs of schemas are drawn: the second is the first with some changes, good and bad. Documents are drawn from
the writer's schema; jsonschema, which the checker has no part in, says of each whether the writer and
the reader accept it. Of pairs that do not pass, many have a document that shows why.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from schema.registry.json.schema import Loaded, differences, load, parse

SEEDS = range(600)
DOCUMENTS = 25
NAMES = ("a", "b", "ab", "x")
PATTERNS = ("^a", "b$", "^x")
TEXTS = ("", "a", "ab", "xb", "xyz")
NUMBERS = (-2, 0, 1, 2, 3, 6, 1.5, 2.0)
VALUES: tuple[Any, ...] = (None, True, False, *TEXTS, *NUMBERS, [], {}, [1, "a"], {"a": 1})
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
CHECKERS = {False: Draft7Validator, True: Draft202012Validator}
LATEST = "https://json-schema.org/draft/2020-12/schema"


def drawn(draw: random.Random, new: bool, depth: int = 0) -> Any:
    """A schema, of draft 2020-12 if new, else of draft-07; refs lead to its definitions."""
    choice = draw.random()
    if depth > 2 or (depth and choice < 0.06):
        return draw.choice((True, {}, False)) if draw.random() < 0.2 else {"type": draw.choice(TYPES)}
    if depth and choice < 0.12:
        return {"$ref": f"#/definitions/{draw.choice('DE')}"}
    made: dict[str, Any] = {}
    if draw.random() < 0.8:
        types = draw.sample(TYPES[0 if depth else 5 :], draw.choice((1, 1, 1, 2, 3) if depth else (1, 1, 2)))
        made["type"] = types[0] if len(types) == 1 else types
    for _ in range(draw.randrange(1, 4)):
        key = draw.choice(keywords(made.get("type"), new))
        made[key] = of_keyword(draw, key, new, depth + 1)
    return made


def keywords(kinds: Any, new: bool) -> list[str]:
    """Those that say something of such types, and those that combine."""
    known = [kinds] if isinstance(kinds, str) else kinds or TYPES
    found = ["enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "if", "then", "then", "else"]
    if "integer" in known or "number" in known:
        found += ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"] * 3
    if "string" in known:
        found += ["minLength", "maxLength", "pattern"] * 4
    if "array" in known:
        found += ["items", "contains", "minItems", "maxItems", "uniqueItems", "prefix", "items"] * 3
        found += ["minContains", "maxContains", "unevaluatedItems"] if new else []
    if "object" in known:
        found += ["properties", "properties", "additionalProperties", "patternProperties", "required"] * 3
        found += ["propertyNames", "minProperties", "maxProperties", "dependent", "needs"]
        found += ["unevaluatedProperties"] if new else []
    return found


def of_keyword(draw: random.Random, key: str, new: bool, depth: int) -> Any:
    """What a keyword says."""
    if key == "enum":
        return draw.sample(VALUES, draw.randrange(1, 4))
    if key == "const":
        return draw.choice(VALUES)
    if key in ("anyOf", "oneOf", "allOf", "prefix"):
        return [drawn(draw, new, depth) for _ in range(draw.randrange(1, 4))]
    if key in ("properties", "patternProperties", "dependent"):
        names = PATTERNS if key == "patternProperties" else NAMES
        return {name: drawn(draw, new, depth) for name in draw.sample(names, draw.randrange(1, 3))}
    if key in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems"):
        return False if draw.random() < 0.5 else drawn(draw, new, depth)
    if key == "propertyNames":
        return {draw.choice(("maxLength", "minLength")): 1} if draw.random() < 0.5 else {"pattern": "^a"}
    if key == "required":
        return draw.sample(NAMES, draw.randrange(1, 3))
    if key == "needs":
        return {draw.choice(NAMES): draw.sample(NAMES, draw.randrange(1, 3))}
    if key == "pattern":
        return draw.choice(PATTERNS)
    if key == "multipleOf":
        return draw.choice((1, 2, 3, 0.5))
    if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        return draw.choice(NUMBERS)
    if key == "uniqueItems":
        return True
    return draw.randrange(3) if key[:3] in ("min", "max") else drawn(draw, new, depth)


def finished(draw: random.Random, schema: Any, new: bool) -> Any:
    """The schema as its draft writes it, with definitions."""
    made = schema if isinstance(schema, dict) else {"allOf": [schema]}
    made = {**made, "definitions": {name: drawn(draw, new, 1) for name in "DE"}}
    return {"$schema": LATEST, **made} if new else made


def spelled(schema: Any, new: bool) -> Any:
    """Names of keywords that differ from draft to draft."""
    if isinstance(schema, list):
        return [spelled(one, new) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: value for key, value in schema.items() if key in ("enum", "const", "needs", "required")}
    for key, value in schema.items():
        if key in BY_NAME:
            made[key] = {name: spelled(one, new) for name, one in value.items()}
        elif key not in made:
            made[key] = spelled(value, new)
    if "prefix" in made:
        prefix = made.pop("prefix")
        if new:
            made["prefixItems"] = prefix
        else:
            rest = made.pop("items", None)
            made |= {"items": prefix} | ({} if rest is None else {"additionalItems": rest})
    dependent, needs = made.pop("dependent", None), made.pop("needs", None)
    if new:
        made |= {} if dependent is None else {"dependentSchemas": dependent}
        made |= {} if needs is None else {"dependentRequired": needs}
    elif dependent or needs:
        made["dependencies"] = {**(dependent or {}), **(needs or {})}
    return made


BY_NAME = ("properties", "patternProperties", "dependent", "definitions")


def changed(draw: random.Random, schema: Any, new: bool) -> Any:
    """The schema with one to three changes."""
    made = copy.deepcopy(schema)
    for _ in range(draw.randrange(1, 4)):
        known = {**made, "definitions": {}} if draw.random() < 0.6 else made
        place = draw.choice([one for one in inside(known) if one])
        place = made if place is known else place
        key = draw.choice([one for one in place if one != "$schema"])
        what = draw.random()
        if key in BY_NAME and what < 0.7:
            name = draw.choice([*place[key]])
            place[key][name] = drawn(draw, new, 2)
            if what < 0.3 and len(place[key]) > 1 and key != "definitions":
                del place[key][name]
        elif key in ("definitions", "$ref") or what < 0.3:
            added = draw.choice(keywords(place.get("type"), new))
            place.setdefault(added, of_keyword(draw, added, new, 2))
        elif what < 0.55:
            del place[key]
        elif key == "type":
            kinds = [place[key]] if isinstance(place[key], str) else place[key]
            place[key] = sorted({*kinds, draw.choice(TYPES)} - ({kinds[0]} if draw.random() < 0.4 else set()))
            place[key] = place[key] or ["null"]
        else:
            place[key] = of_keyword(draw, key, new, 2)
    return made


def inside(schema: Any) -> list[dict[str, Any]]:
    """The schema and those that it holds, where they are objects."""
    if not isinstance(schema, dict):
        return []
    found = [schema]
    for key, value in schema.items():
        held = value.values() if key in BY_NAME else value if isinstance(value, list) else [value]
        found += [] if key in ("enum", "const", "needs") else [one for each in held for one in inside(each)]
    return found


def document(draw: random.Random, schema: Any, root: Any, depth: int = 0) -> Any:
    """A value that the schema may accept: it is guided by some of its keywords."""
    if not isinstance(schema, dict) or depth > 4 or draw.random() < 0.05:
        return draw.choice(VALUES)
    if "$ref" in schema:
        return document(draw, root["definitions"][schema["$ref"][-1]], root, depth + 1)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else draw.choice(schema["enum"])
    ways = [way for key in ("anyOf", "oneOf", "allOf") for way in schema.get(key, ())]
    if ways and draw.random() < 0.6:
        return document(draw, draw.choice(ways), root, depth + 1)
    kinds = schema.get("type", TYPES)
    kind = kinds if isinstance(kinds, str) else draw.choice(kinds)
    if kind == "object":
        return an_object(draw, schema, root, depth)
    if kind == "array":
        prefix = schema.get("prefix", [])
        inner = [schema.get(key, True) for key in ("items", "contains")]
        count = draw.randrange(4)
        return [
            document(draw, (*prefix, *[draw.choice(inner)] * 4)[at], root, depth + 1) for at in range(count)
        ]
    pools: dict[str, Any] = {"null": (None,), "boolean": (True, False), "string": TEXTS}
    pools["integer"] = [one for one in NUMBERS if one == int(one)]
    return draw.choice(pools.get(kind, NUMBERS))


def an_object(draw: random.Random, schema: Any, root: Any, depth: int) -> Any:
    known = schema.get("properties", {})
    others = [schema.get("additionalProperties", True), *schema.get("patternProperties", {}).values()]
    names = {*draw.sample(NAMES, draw.randrange(3)), *schema.get("required", ())}
    names |= {name for name in known if draw.random() < 0.5}
    return {
        name: document(draw, known.get(name, draw.choice(others)), root, depth + 1) for name in sorted(names)
    }


def loaded(schema: Any) -> Loaded | None:
    """None for those that say of a value what they say of it."""
    try:
        return load(parse(json.dumps(schema), {}).canonical, {})
    except ValueError as error:
        if "refers to itself" not in str(error):
            raise
        return None


class Side:
    """A schema with who judges by it."""

    def __init__(self, schema: Any, new: bool) -> None:
        self.schema, told = schema, spelled(schema, new)
        self.told = told
        self.loaded: Any = loaded(told)
        self.accepts = CHECKERS[new](told).is_valid


def pairs(seed: int) -> list[tuple[Side, Side]]:
    draw, new = random.Random(seed), seed % 2 == 0
    first = finished(draw, drawn(draw, new), new)
    one, other = Side(first, new), Side(changed(draw, first, new), new)
    return [(one, other), (other, one)] if one.loaded and other.loaded else []


def witness(draw: random.Random, writer: Side, reader: Side, count: int) -> Any:
    """A document in a list that the writer accepts and the reader does not; None: none was found."""
    for number in range(count):
        side = writer if number % 3 else reader
        made = document(draw, side.schema, side.schema)
        if writer.accepts(made) and not reader.accepts(made):
            return [made]
    return None


def test_what_is_called_compatible_is_accepted() -> None:
    passed = refused = shown = 0
    for seed in SEEDS:
        draw = random.Random(-1 - seed)
        for writer, reader in pairs(seed):
            found = differences(reader.loaded, writer.loaded)
            wrong = witness(draw, writer, reader, DOCUMENTS)
            passed, refused, shown = (
                passed + (not found),
                refused + bool(found),
                shown + bool(found and wrong),
            )
            assert found or wrong is None, (seed, wrong, json.dumps(writer.told), json.dumps(reader.told))
    assert min(passed, refused) > len(SEEDS) // 5, (passed, refused)
    assert shown > refused // 3, (refused, shown)


@pytest.mark.parametrize("seed", range(40))
def test_a_schema_goes_with_itself_in_other_words(seed: int) -> None:
    """With a title, which says nothing, and its keywords in another order."""
    draw, new = random.Random(seed), seed % 2 == 0
    told = spelled(finished(draw, drawn(draw, new), new), new)
    one, other = loaded(told), loaded({"title": "the same", **dict(reversed(told.items()))})
    assert one is None or other is None or (differences(one, other), differences(other, one)) == ([], [])
