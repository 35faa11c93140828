"""Redacted records of random schemas decode, and are the originals but for what is marked.

AVRO: fastavro writes and reads, and shares no code with the walk. JSON: the record is drawn together with
what has to be left of it; jsonschema says whether the schema takes it.
"""

from __future__ import annotations

import datetime
import io
import json
import random
import uuid
from decimal import Decimal
from typing import Any

import fastavro
from jsonschema import Draft7Validator

from schema.redaction import avro, marks
from schema.redaction import json as redacted_json
from schema.redaction.marks import Action, Marks
from schema.registry.avro import schema as avro_schema
from schema.registry.avro.datum import Datum
from schema.registry.json.schema import parse
from tests.property.test_avro_columns import Drawn

SEEDS = range(150)
RECORDS = 5
KEY = b"k"
PII = {"confluent:tags": ["PII"]}


def tagged(draw: random.Random, said: Any) -> int:
    """Mark fields at random; how many."""
    if isinstance(said, list):
        return sum(tagged(draw, each) for each in said)
    if not isinstance(said, dict):
        return 0
    count = sum(tagged(draw, said[each]) for each in ("items", "values") if each in said)
    for field in said.get("fields", ()):
        if draw.random() < 0.3:
            field.update(PII)
            count += 1
        count += tagged(draw, field["type"])
    return count


def says_nothing(value: Any) -> bool:
    """Whether a value is one of those that stand for a removed one."""
    if isinstance(value, tuple):  # a branch's name, and what it is
        return says_nothing(value[1])
    if isinstance(value, dict):
        return all(says_nothing(each) for each in value.values())
    if isinstance(value, bytes):
        return not any(value)
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat() == "1970-01-01T00:00:00"
    if isinstance(value, datetime.date):
        return value.isoformat() == "1970-01-01"
    if isinstance(value, datetime.time):
        return value == datetime.time()
    if isinstance(value, uuid.UUID):
        return value.int == 0
    return value in (None, False, 0, 0.0, "", [], Decimal(0), "A")  # the first symbol of enums


def stands(action: Action, said: Any, before: Any, after: Any) -> bool:
    """Whether `after` is what stands in the place of `before`."""
    if isinstance(said, list):
        inside = [each for each in said if _fits(each, before)]
        return (
            before is None or says_nothing(after) or any(stands(action, one, before, after) for one in inside)
        )
    if isinstance(said, dict) and said["type"] == "array" and isinstance(after, list) and after:
        pairs = zip(before, after, strict=True)
        return action is not Action.REMOVE and all(stands(action, said["items"], *each) for each in pairs)
    if action is not Action.REMOVE and said in ("string", "bytes"):
        return bool(after == marks.instead(action, KEY, before))
    if action is Action.HASH and isinstance(after, uuid.UUID):
        return after.hex == marks.instead(action, KEY, str(before))
    return says_nothing(after)


def _fits(said: Any, value: Any) -> bool:
    return said in ("string", "bytes") and isinstance(value, str if said == "string" else bytes)


def same(action: Action, said: Any, before: Any, after: Any) -> bool:
    """Whether a value is another one but for what is marked in it."""
    if isinstance(said, list):
        if isinstance(before, tuple):
            (record,) = (each for each in said if isinstance(each, dict) and each["type"] == "record")
            return isinstance(after, tuple) and same(action, record, before[1], after[1])
        many = [each for each in said if isinstance(each, dict) and isinstance(before, dict | list)]
        return same(action, many[0], before, after) if len(many) == 1 else bool(before == after)
    if isinstance(said, dict) and said["type"] == "record":
        before, after = (each[1] if isinstance(each, tuple) else each for each in (before, after))
        return all(
            (stands if "confluent:tags" in field else same)(
                action, field["type"], before[field["name"]], after[field["name"]]
            )
            for field in said["fields"]
        )
    if isinstance(said, dict) and said["type"] == "array":
        return len(before) == len(after) and all(
            same(action, said["items"], *each) for each in zip(before, after, strict=True)
        )
    if isinstance(said, dict) and said["type"] == "map":
        return [*before] == [*after] and all(
            same(action, said["values"], held, after[key]) for key, held in before.items()
        )
    return bool(before == after)


def test_redacted_data_of_avro_decode_and_are_the_same_but_for_marked_fields() -> None:
    records = changed = 0
    for seed in SEEDS:
        drawn = Drawn(seed)
        said = drawn.record()
        if not tagged(drawn.draw, said):
            continue
        form = avro_schema.parse(json.dumps(said), {}).canonical
        datum, parsed = Datum(avro_schema.load(form, {})), fastavro.parse_schema(said)
        for action in Action:
            found = avro.redactor(form, {}, Marks(action, frozenset({"PII"})), KEY)
            assert found is not None
            for _ in range(RECORDS):
                made = io.BytesIO()
                fastavro.schemaless_writer(made, parsed, drawn.datum(said))
                payload = found.redacted(made.getvalue())
                datum.read(payload)
                before, after = (
                    fastavro.schemaless_reader(io.BytesIO(each), parsed, return_record_name=True)
                    for each in (made.getvalue(), payload)
                )
                assert same(action, said, before, after), (seed, action, said, before, after)
                records, changed = records + 1, changed + (before != after)
    assert records > 1_000
    assert changed > records / 2


class Paired:
    """JSON schemas at random, each with a record and what is left of it."""

    def __init__(self, seed: int, action: Action) -> None:
        self.draw, self.action, self.secrets = random.Random(seed), action, 0

    def made(self, depth: int = 0) -> tuple[Any, Any, Any]:
        """A schema, a value, and what is left of that."""
        draw, choice = self.draw, self.draw.randrange(8 if depth < 3 else 3)
        if choice == 0:
            text = f"open {draw.random()} é"
            return {"type": "string"}, text, text
        if choice == 1:
            number = draw.choice((draw.randrange(-9, 9), 1.25, None, True))
            return {"type": ["number", "null", "boolean"]}, number, number
        if choice == 2:
            return {"enum": ["x", 7]}, 7, 7
        if choice in (3, 4):
            parts = [self.made(depth + 1) for _ in range(draw.randrange(1, 4))]
            said = {"type": "array", "items": [each[0] for each in parts]}
            return said, [each[1] for each in parts], [each[2] for each in parts]
        return self.object(depth)

    def object(self, depth: int) -> tuple[Any, Any, Any]:
        said: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for at in range(self.draw.randrange(1, 5)):
            if self.draw.random() < 0.4:
                self.marked(said, before, after, f"p{at}")
                continue
            inner, before[f"p{at}"], after[f"p{at}"] = self.made(depth + 1)
            said["properties"][f"p{at}"] = (
                {"oneOf": [{"type": "null", "const": 1}, inner]} if at == 3 else inner
            )
        if self.draw.random() < 0.3:
            before["unnamed"] = "secret"
        return said, before, after

    def marked(self, said: Any, before: Any, after: Any, name: str) -> None:
        self.secrets += 1
        secret = f"secret {self.secrets}"
        needed = self.draw.random() < 0.3
        if self.draw.random() < 0.4:
            said["properties"][name] = {"type": "array", "items": {"type": "string"}, **PII}
            before[name] = [secret, ""]
            empty: Any = []
            put: Any = [marks.instead(self.action, KEY, each) for each in before[name]]
        else:
            said["properties"][name] = {"allOf": [{"type": "string"}, PII]}
            before[name], empty = secret, ""
            put = marks.instead(self.action, KEY, secret)
        if needed:
            said["required"].append(name)
        if self.action is not Action.REMOVE:
            after[name] = put
        elif needed:
            after[name] = empty


def test_redacted_records_of_json_are_taken_and_are_the_same_but_for_marked_properties() -> None:
    records = 0
    for seed in SEEDS:
        for action in Action:
            paired = Paired(seed, action)
            said, before, due = paired.object(0)
            found = redacted_json.redactor(
                parse(json.dumps(said), {}).canonical, {}, Marks(action, frozenset({"PII"})), KEY
            )
            if not paired.secrets:
                assert found is None
                continue
            assert found is not None
            payload = found.redacted(json.dumps(before).encode())
            assert b"secret" not in payload
            assert json.loads(payload) == due, (seed, action, said, before)
            Draft7Validator(said).validate(json.loads(payload))
            records += 1
    assert records > 200
