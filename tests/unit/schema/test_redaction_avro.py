"""What is left of AVRO data whose fields are marked; fastavro writes them and reads what is left."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from schema.redaction.avro import redactor
from schema.redaction.marks import Action, Marks, Unreadable
from schema.registry.avro import schema as avro_schema
from schema.registry.avro.datum import Datum
from schema.registry.avro.filler import Endless

KEY = b"of hashes"
PII: dict[str, Any] = {"confluent:tags": ["PII", "OTHER"]}


def record(name: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields], **more}


def one(said: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": said, **more}


def written(said: Any, value: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(said), value)
    return made.getvalue()


def left(
    said: Any,
    value: Any,
    action: Action = Action.REMOVE,
    tags: str = "PII",
    key: bytes = KEY,
    imports: Mapping[str, bytes] | None = None,
) -> Any:
    """What fastavro reads of what is left; Floe's own walk takes it, too."""
    form = avro_schema.parse(json.dumps(said), imports or {}).canonical
    found = redactor(form, imports or {}, Marks(action, frozenset(tags.split(","))), key)
    assert found is not None
    payload = found.redacted(written(said, value))
    Datum(avro_schema.load(form, imports or {})).read(payload)
    return fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(said))


def hashed(content: bytes) -> str:
    return hmac.new(KEY, content, hashlib.sha256).hexdigest()[:32]


def test_a_field_is_what_its_attribute_says_or_what_the_topic_does() -> None:
    said = record(
        "P",
        one("string", "name", **PII),
        one("bytes", "token", **{"confluent:tags": "PII"}),
        one("string", "mail", **{"floe.redact": "hash"}),
        one(["null", "string"], "phone", **{"floe.redact": "MASK"}),
        one({"type": "array", "items": "string"}, "phones", **{"floe.redact": "mask"}),
        one("string", "town", **{"confluent:tags": ["PUBLIC"]}),
        one("long", "salary", **PII),
        one("string", "odd", **{"floe.redact": "shred"}),
    )
    given = {
        "name": "Ada", "token": b"t", "mail": "a@b", "phone": "1", "phones": ["2", ""], "town": "x",
        "salary": 9, "odd": "o",
    }  # fmt: skip
    own = {
        "mail": hashed(b"a@b"),
        "phone": "****",
        "phones": ["****"] * 2,
        "town": "x",
        "salary": 0,
        "odd": "",
    }
    assert left(said, given) == {**own, "name": "", "token": b""}
    assert left(said, given, Action.MASK) == {**own, "name": "****", "token": b"****"}
    due = {**own, "name": hashed(b"Ada"), "token": bytes.fromhex(hashed(b"t"))}
    assert left(said, given, Action.HASH) == due
    assert left(said, given, Action.HASH, key=b"") == {**own, "name": "", "token": b"", "mail": ""}
    assert left(said, given, tags="PUBLIC")["name"] == "Ada"
    assert left(said, {**given, "phone": None}, Action.MASK)["phone"] is None


EMPTY = (
    ("boolean", True, False),
    ("int", 5, 0),
    ("double", 1.5, 0.0),
    ("bytes", b"b", b""),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc", bytes(3)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "A"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"], "default": "C"}, "B", "C"),
    ({"type": "map", "values": "string"}, {"secret": "x"}, {}),
    ({"type": "array", "items": "long"}, [1, 2], []),
    (["null", "long"], 5, None),
    (["long", "null"], 5, None),
    (["string", "long"], 5, ""),
    (record("R", one("string", "a"), one("int", "b", default=4)), {"a": "s", "b": 9}, {"a": "", "b": 4}),
)


@pytest.mark.parametrize(("said", "given", "due"), EMPTY, ids=lambda each: str(each)[:30])
def test_a_removed_field_still_is_of_its_type(said: Any, given: Any, due: Any) -> None:
    """A reader that knows nothing of redaction decodes the record, by the schema that its frame names."""
    assert left(record("P", one(said, **PII)), {"x": given}) == {"x": due}


def test_a_default_stands_where_there_is_no_null() -> None:
    assert left(record("P", one("string", default="none", **PII)), {"x": "s"}) == {"x": "none"}
    nullable = one(["string", "null"], default="none", **PII)
    assert left(record("P", nullable), {"x": "s"}) == {"x": None}
    inner = record(
        "R", one({"type": "array", "items": "int"}, "n"), one({"type": "map", "values": "long"}, "m")
    )
    said = record("P", one(inner, default={"n": [1, 2], "m": {"k": 3}}, **PII))
    assert left(said, {"x": {"n": [9], "m": {}}}) == {"x": {"n": [1, 2], "m": {"k": 3}}}
    uuid = one({"type": "string", "logicalType": "uuid"}, default="no uuid", **PII)
    made = left(record("P", uuid), {"x": "0e37df36-f698-11e6-8dd4-cb9ced3df976"})
    assert str(made["x"]) == "00000000-0000-0000-0000-000000000000", "the default is none of the logical type"


def test_logical_types_stay_what_they_are() -> None:
    """A decimal of asterisks would break every reader."""
    uuid = {"type": "string", "logicalType": "uuid"}
    money = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    said = record("P", one(uuid, "u", **PII), one(money, "m", **PII))
    given = {"u": "0e37df36-f698-11e6-8dd4-cb9ced3df976", "m": b"\x01"}
    zeros = "00000000-0000-0000-0000-000000000000"
    assert {name: str(each) for name, each in left(said, given, Action.MASK).items()} == {
        "u": zeros,
        "m": "0.00",
    }
    found = left(said, given, Action.HASH)
    assert (found["u"].hex, str(found["m"])) == (hashed(given["u"].encode()), "0.00")


def test_fields_of_fields_at_any_depth() -> None:
    person = record("Q", one("string", "who", **PII), one("int", "n"), one(["null", "Q"], "boss"))
    said = record(
        "P",
        one({"type": "array", "items": person}, "many"),
        one({"type": "map", "values": "Q"}, "named"),
        one(["null", "string", "Q"], "any"),
    )
    full = {"who": "secret", "n": 1, "boss": {"who": "secret", "n": 2, "boss": None}}
    clean = {"who": "", "n": 1, "boss": {"who": "", "n": 2, "boss": None}}
    given = {"many": [full, full], "named": {"k": full}, "any": full}
    assert left(said, given) == {"many": [clean, clean], "named": {"k": clean}, "any": clean}
    assert left(said, {"many": [], "named": {}, "any": "t"}) == {"many": [], "named": {}, "any": "t"}


def test_blocks_that_say_their_bytes() -> None:
    """Java writes them by choice: the count stays, the bytes are others."""
    person = record("Q", one("string", "who", **PII))
    said = record("P", one({"type": "array", "items": person}, "many"), one("int", "n"))
    form = avro_schema.parse(json.dumps(said), {}).canonical
    found = redactor(form, {}, Marks(Action.MASK, frozenset({"PII"})), KEY)
    assert found is not None
    payload = b"\x03\x08\x02a\x02b" + b"\x02\x02c" + b"\x00\x0e"  # two items in 4 bytes, one item, the end; n
    made = found.redacted(payload)
    assert Datum(avro_schema.load(form, {})).problem(made) is None, "fastavro asks no block for its bytes"
    read = fastavro.schemaless_reader(io.BytesIO(made), fastavro.parse_schema(said))
    assert read == {"many": [{"who": "****"}] * 3, "n": 7}


def test_marks_on_types_mark_each_place_where_they_stand() -> None:
    secret = {"type": "string", **PII}
    said = record(
        "P",
        one(["null", secret, "long"], "u"),
        one([secret, "long"], "v"),
        one({"type": "map", "values": secret}, "m"),
        one(record("Card", one("string", "number"), **PII), "card"),
        one(["null", "Card"], "other"),
    )
    given = {"u": "s", "v": "s", "m": {"k": "s"}, "card": {"number": "4"}, "other": {"number": "4"}}
    due = {"u": None, "v": "", "m": {"k": ""}, "card": {"number": ""}, "other": None}
    assert left(said, given) == due
    masked = {"u": "****", "v": "****", "m": {"k": "****"}, "card": {"number": ""}, "other": None}
    assert left(said, given, Action.MASK) == masked
    assert left(said, {**given, "u": 5, "v": 6}, Action.MASK) == {**masked, "u": 5, "v": 6}
    assert left({"type": "string", **PII}, "s", Action.MASK) == "****", "a schema that is no record"


def test_marks_in_what_a_schema_refers_to() -> None:
    inner = avro_schema.parse(json.dumps(record("shop.Q", one("string", "who", **PII))), {}).canonical
    form = avro_schema.parse(json.dumps(record("P", one("shop.Q", "q"))), {"q": inner}).canonical
    found = redactor(form, {"q": inner}, Marks(Action.MASK, frozenset({"PII"})), KEY)
    assert found is not None
    assert found.redacted(b"\x02s") == b"\x08****"


def test_schemas_without_marks_are_left_alone() -> None:
    form = avro_schema.parse(json.dumps(record("P", one("string", **PII))), {}).canonical
    assert redactor(form, {}, Marks(Action.REMOVE, frozenset({"SECRET"})), KEY) is None


@pytest.mark.parametrize("payload", [b"", b"\x06ab", b"\x02a\x00", b"\x02\xff", b"\x01"])
def test_bytes_that_are_no_datum_are_told_and_not_shown(payload: bytes) -> None:
    form = avro_schema.parse(json.dumps(record("P", one("string", **PII))), {}).canonical
    found = redactor(form, {}, Marks(Action.REMOVE, frozenset({"PII"})), KEY)
    assert found is not None
    with pytest.raises(Unreadable, match="datum of its schema"):
        found.redacted(payload)


def test_a_record_without_any_value_that_says_nothing_is_told() -> None:
    """Records that double one another: 2 to the 40 bytes."""
    types = [record("R0", one("long", "a"))]
    types += [record(f"R{n}", one(f"R{n - 1}", "a"), one(f"R{n - 1}", "b")) for n in range(1, 40)]
    said = record("P", *(one(each, f"f{n}", **(PII if n == 39 else {})) for n, each in enumerate(types)))
    form = avro_schema.parse(json.dumps(said), {}).canonical
    with pytest.raises(Endless, match=r"steps|bytes"):
        redactor(form, {}, Marks(Action.REMOVE, frozenset({"PII"})), KEY)
