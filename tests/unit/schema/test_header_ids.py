"""Records whose frame is in a header: read as if it stood before them, and nothing else taken for one."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext

from objectstore import batch
from schema import framing
from schema.followed import Framed, Named, UnknownSchemas
from schema.framing import FramingError
from schema.registry import protobuf
from schema.rules.ruled import Ruled, Run
from schema.strict import BadRecord
from schema.validator import Validator
from tests.unit.schema.samples import Bound

GUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
TEXT = (
    'syntax = "proto3"; package shop; message Customer { string name = 1; } message Order { uint64 id = 1; }'
)
RULED = """
syntax = "proto3"; package shop; import "buf/validate/validate.proto";
message Order { uint64 id = 1 [(buf.validate.field).uint64.gt = 1]; }
"""
ORDER = b"\x08\x07"
VALUE, KEY = framing.ID_HEADERS["value"], framing.ID_HEADERS["key"]


def header(
    kind: str = "PROTOBUF", indexes: list[int] | None = None, role: str = "value"
) -> tuple[str, bytes]:
    """What Confluent's own serializer writes."""
    found: list[tuple[str, bytes]] = []
    field = MessageField.VALUE if role == "value" else MessageField.KEY
    context = SerializationContext("t", field, found)
    schema = SchemaId(kind, 7, str(GUID), indexes if kind == "PROTOBUF" else None)
    assert header_schema_id_serializer(b"payload", context, schema) == b"payload"
    return found[0]


def test_the_layout_is_the_serializer_s() -> None:
    name, content = header(indexes=[1, 0])
    assert name == VALUE
    assert content == b"\x01" + GUID.bytes + b"\x04\x02\x00"
    record = framing.composed("value", ORDER, [("other", b"x"), (name, content)])
    assert record is not None
    assert framing.named(record) == (GUID.bytes, (1, 0), len(content))
    assert framing.shown(GUID.bytes) == str(GUID)
    assert framing.composed("key", ORDER, [(name, content)]) == ORDER, "a value's header says nothing of keys"
    assert header(role="key", indexes=[0])[0] == KEY
    assert framing.composed("value", None, [(name, content)]) is None
    assert framing.named(framing.prefix(7, (2,)) + ORDER) == (7, (2,), 7)


@pytest.mark.parametrize(
    "content", [None, b"", b"\x01", b"\x01" * 16, b"\x00\x00\x00\x00", b"\x02" * 20, b"\xff"]
)
def test_a_header_that_is_no_frame_makes_a_bad_record(content: bytes | None) -> None:
    """Never one whose own bytes complete it."""
    record = framing.composed("value", framing.prefix(7, (0,)) + ORDER, [(VALUE, content)])
    assert record is not None
    with pytest.raises(FramingError):
        framing.named(record)


class Door:
    """Judges values, of which the registry knows one schema by its guid and as 7."""

    def __init__(self, kind: str = "PROTOBUF", form: bytes = b"", **fields: object) -> None:
        told = {"message": "", "topic": "t", "framing": 2, "tombstones": True, "naming": 1, "subject": "s"}
        self.bound = Bound(b"", **{**told, **fields})  # type: ignore[arg-type]  # the dataclass refuses unknown names
        self.validator = Validator.from_binding(self.bound)
        self.named = Named(kind, form or protobuf.parse(TEXT, {}).canonical, {}, frozenset())
        self.asked: list[Framed] = []

    def judge(
        self, *given: tuple[bytes | None, list[tuple[str, bytes | None]]], ruled: Ruled | None = None
    ) -> list[BadRecord]:
        made = batch.build([batch.NewRecord(0, None, value, headers) for value, headers in given])
        refused: dict[Framed, str] = {}
        while True:
            try:
                return self.validator.check_records(batch.records(made), refused, ruled)
            except UnknownSchemas as unknown:
                self.asked += unknown.framed
                for each in unknown.framed:
                    why = "nobody knows it"
                    if each[0] in (7, GUID.bytes):
                        why = self.validator.followed("value").settle(each, self.named) or ""
                    if why:
                        refused[each] = why


def test_records_are_judged_by_what_their_header_names() -> None:
    door = Door()
    first, second = header(indexes=[0]), header(indexes=[1])
    given = (
        (b"\x0a\x01n", [first]),
        (ORDER, [("x", b""), second]),
        (framing.prefix(7, (1,)) + ORDER, []),
        (None, [second]),
    )
    assert door.judge(*given) == []
    assert door.asked == [(GUID.bytes, (0,)), (GUID.bytes, (1,)), (7, (1,))]
    unknown = (VALUE, b"\x01" + bytes(16) + b"\x00")
    framed = framing.prefix(7, (1,)) + ORDER
    bad = door.judge(
        (ORDER, [first]), (b"\x10\x01", [second]), (ORDER, [unknown]), (framed, [second]), (ORDER, [])
    )
    assert [each.index for each in bad] == [0, 1, 2, 3, 4]
    assert "field `name`" in bad[0].reason
    assert "nobody knows it" in bad[2].reason
    assert "has no Confluent frame" in bad[4].reason


def test_data_of_json_and_avro() -> None:
    for kind, form, good, bad in (
        ("JSON", b'{"type": "integer"}', b"7", b'"x"'),
        ("AVRO", b'"string"', b"\x02x", b"\x04x"),
    ):
        door = Door(kind, form)
        own = header(kind)
        found = door.judge((good, [own]), (framing.first_bytes(7) + good, []), (bad, [own]))
        assert [each.index for each in found] == [2], kind
        assert "looks like" not in found[0].reason


def test_rules_are_evaluated_from_where_the_record_begins() -> None:
    """The frame is no part of the stored value, which workers decode anew."""
    door = Door(form=protobuf.parse(RULED, {}).canonical)
    ruled = Ruled(["value"])
    broken = b"\x08\x01"
    framed = framing.prefix(7, (0,)) + broken
    assert door.judge((broken, [header(indexes=[0])]), (framed, []), ruled=ruled) == []
    assert ruled.runs["value"] == [Run(0, 0, 0), Run(1, 0, 6)]


def test_a_topic_with_a_message_of_its_own_looks_at_no_header() -> None:
    files = protobuf.descriptor_set(protobuf.parse(TEXT, {}).canonical, {})
    validator = Validator.from_binding(Bound(files, message="shop.Order"))
    made = batch.build([batch.NewRecord(0, None, ORDER, [(VALUE, b"nonsense")])])
    assert validator.check(made) == []


@pytest.mark.parametrize("more", [b"\x10\x01", b"\x00", b"\x02"])
def test_a_header_with_more_than_a_frame_makes_a_bad_record(more: bytes) -> None:
    """Who reads the record alone would see another message than the one that was judged."""
    name, content = header(indexes=[1])
    door = Door()
    assert door.judge((ORDER, [(name, content)])) == []
    (bad,) = door.judge((ORDER, [(name, content + more)]))
    assert "a header has a frame with nothing behind it" in bad.reason
    door = Door("AVRO", b'"string"')
    assert door.judge((b"\x02x", [header("AVRO")])) == []
    (bad,) = door.judge((b"x", [(name, header("AVRO")[1] + b"\x02")]))
    assert "a header has a frame with nothing behind it" in bad.reason
