"""The quick way of redacting JSON and the long one have the same result, and show nothing that is marked.

Schemas are drawn with what the quick way knows and what it does not, records mostly to fit. What stands where
a schema or a path of metadata marks it is called a secret when it is drawn.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from schema.redaction import json as redacted_json
from schema.redaction.marks import Action, Marks, Unreadable
from schema.redaction.metadata_tags import with_metadata
from schema.redaction.straight import Unsure
from schema.registry.json.judging import parsed
from schema.registry.json.schema import parse

SEEDS = range(200)
RECORDS = 3
PII = {"confluent:tags": ["PII"]}
NAMES = ("a", "b", "c", "ssn", "é", "list")
METADATA = ("", "", '{"tags":{"**.ssn":["PII"],"$.a.b":["PII"],"$.c":["OTHER"]}}')


class Drawn:
    """A schema, and records of it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.count = self.unknown = 0
        self.metadata = self.draw.choice(METADATA)
        self.said = {**self.object(0), "definitions": {"node": {**self.object(2), "required": []}}}

    def schema(self, depth: int) -> dict[str, Any]:
        draw = self.draw
        found = self.plain(depth)
        chance = draw.random()
        if chance < 0.1:
            found = {"oneOf": [{"type": "null"}, found]}
        elif chance < 0.2:
            found = {"anyOf": [found, {"type": "null"}]}
        elif chance < 0.3:
            more = draw.choice(({}, PII, {"minLength": 0}))
            found = {"allOf": [found, more, *draw.choice(((), ({"default": "x"}, {"default": "y"})))]}
        elif chance < 0.35:
            found = {"anyOf": [found, self.plain(depth)]}
        elif chance < 0.38:
            found = {"if": {"type": "string"}, "then": {"maxLength": 99}, "allOf": [found]}
        elif chance < 0.41:
            found = {"allOf": [found], "not": {"const": "never"}}
        if draw.random() < 0.25:
            found = {**found, **draw.choice((PII, {"x-floe-redact": "mask"}, {"x-floe-redact": "hash"}))}
        return found

    def plain(self, depth: int) -> dict[str, Any]:
        draw, choice = self.draw, self.draw.randrange(12 if depth < 3 else 8)
        if choice < 3:
            return {"type": "string", **draw.choice(({}, {}, {"maxLength": 60}, {"pattern": "^[a-z]"}))}
        if choice < 7:
            return draw.choice(
                (
                    {"type": "integer"},
                    {"type": "integer", "minimum": 2},
                    {"type": "number"},
                    {"type": ["boolean", "null"]},
                    {"type": ["string", "integer", "null"], "default": 7},
                    {},
                    {"enum": ["open 1", "open 2", 3]},
                    {"type": "object"},
                    {"type": "array"},
                )
            )
        if choice == 7:
            return {"$ref": "#/definitions/node"}
        if choice == 8:
            return {"type": "array", "items": [self.schema(depth + 1), self.schema(depth + 1)]}
        if choice == 9:
            more: dict[str, Any] = draw.choice(({}, {"maxItems": 2}, {"uniqueItems": True}))
            return {"type": "array", "items": self.schema(depth + 1), **more}
        return self.object(depth + 1)

    def object(self, depth: int) -> dict[str, Any]:
        draw = self.draw
        names = draw.sample(NAMES, draw.randrange(1, 5))
        found: dict[str, Any] = {"type": "object", "properties": {each: self.schema(depth) for each in names}}
        found["required"] = [each for each in NAMES if draw.random() < 0.15]
        chance = draw.random()
        if chance < 0.2:
            found["additionalProperties"] = draw.choice((True, False, {"type": "string"}, {}, {**PII}))
        elif chance < 0.25:
            found["patternProperties"] = {"^x": {"type": "string", **PII}}
        elif chance < 0.3:
            found["maxProperties"] = 4
        elif chance < 0.33:
            found["dependencies"] = {"a": ["b"]}
        return found

    def record(self) -> Any:
        return self.value(self.said, "$", 0, secret=False)

    def text(self, *, secret: bool) -> str:
        self.count += 1
        return f"{'secret' if secret and not self.unknown else 'open'} {self.count} é"

    def value(self, said: Any, path: str, depth: int, *, secret: bool) -> Any:
        """One that fits, mostly."""
        draw = self.draw
        if draw.random() < 0.01:
            return draw.choice((None, 1, self.text(secret=secret), [], {}, 0.50))
        if depth > 12:
            return None
        if "$ref" in said:
            said = {
                **self.said["definitions"]["node"],
                **{each: said[each] for each in said if each != "$ref"},
            }
        secret = secret or "confluent:tags" in said or "x-floe-redact" in said
        parts = said.get("allOf", ())
        secret = secret or any("confluent:tags" in each for each in parts)
        if parts:
            return self.value(parts[0], path, depth, secret=secret)
        for key in ("oneOf", "anyOf"):
            if key in said:
                return self.either(said[key], path, depth, secret=secret)
        if "enum" in said:
            return draw.choice(said["enum"])
        kinds = said.get("type", "string")
        kind = kinds if isinstance(kinds, str) else draw.choice(kinds)
        if kind == "object":
            return self.an_object(said, path, depth, secret=secret)
        if kind == "array":
            items = said.get("items", {"type": "object", "properties": {}})
            several = items if isinstance(items, list) else [items] * (draw.randrange(3) if depth < 9 else 0)
            return [self.value(each, path, depth + 1, secret=secret) for each in several]
        plain: dict[str, Any] = {
            "string": self.text(secret=secret), "integer": draw.randrange(9), "null": None,
            "number": draw.choice((7, 1.5, 2.0)), "boolean": True,
        }  # fmt: skip
        return plain[kind]

    def either(self, several: Any, path: str, depth: int, *, secret: bool) -> Any:
        """One of several schemas; it may be another that takes the value, and marks nothing."""
        unknown = not secret and all(each.get("type") != "null" for each in several)
        self.unknown += unknown
        found = self.value(self.draw.choice(several), path, depth, secret=secret)
        self.unknown -= unknown
        return found

    def an_object(self, said: Any, path: str, depth: int, *, secret: bool) -> Any:
        draw, found = self.draw, {}
        known = said.get("properties", {})
        for name in draw.sample(NAMES, len(NAMES)):
            full_name = f"{path}.{name}"
            hidden = secret or (bool(self.metadata) and (name == "ssn" or full_name == "$.a.b"))
            if name in said.get("required", ()) or (name in known and draw.random() < 0.7 and depth < 9):
                found[name] = self.value(known.get(name, {}), full_name, depth + 1, secret=hidden)
            elif not known and draw.random() < 0.3:
                found[name] = self.text(secret=hidden)
        if known and draw.random() < 0.05:  # that no schema names
            more = said.get("additionalProperties", True)
            plain = more in (True, False, {})
            found["more"] = self.text(secret=secret or plain or "confluent:tags" in more)
        return found


def longest(found: redacted_json.JsonRedactor, payload: bytes) -> bytes | None:
    """The long way; None: it is unreadable."""
    try:
        return redacted_json.text(found.weighed(parsed(payload), len(payload)))
    except Unreadable:
        return None


def quickest(found: redacted_json.JsonRedactor, payload: bytes) -> bytes | None:
    """The quick way; None: it is not sure."""
    value = parsed(payload)
    try:
        return redacted_json.text(found.straight.redacted(value))
    except Unsure:
        return None
    finally:
        assert value == parsed(payload), "it stays as it was"


def test_both_ways_have_the_same_result_and_show_no_secret() -> None:
    records = readable = straight = secrets = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        form = parse(json.dumps(drawn.said), {}).canonical
        for action in Action:
            marks = with_metadata(Marks(action, frozenset({"PII"})), drawn.metadata)
            found = redacted_json.redactor(form, {}, marks, b"k")
            if found is None:
                continue
            for _ in range(RECORDS):
                payload = json.dumps(drawn.record(), ensure_ascii=drawn.draw.random() < 0.1).encode()
                due, quick = longest(found, payload), quickest(found, payload)
                told = (seed, action, drawn.said, payload)
                if quick is None and due is None:
                    with pytest.raises(Unreadable):
                        found.redacted(payload)
                else:
                    assert found.redacted(payload) == due, told
                    assert quick in (None, due), told
                    assert b"secret" not in (due or b""), told
                records, readable, straight = records + 1, readable + bool(due), straight + bool(quick)
                secrets += b"secret" in payload
    assert records > 1_000
    assert readable > records * 0.6
    assert straight > readable * 0.3
    assert secrets > records * 0.4
