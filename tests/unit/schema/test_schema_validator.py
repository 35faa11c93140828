"""The verdict over record batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from objectstore import batch
from objectstore.compression import Compression
from schema import descriptors, framing
from schema.redaction.marks import Action, Marks
from schema.redaction.messages import redactor
from schema.registry import protobuf
from schema.rules.sure.kinds import surely
from schema.strict import problem
from schema.validator import (
    BAD_RECORDS_MAX,
    RECORDS_PER_LOOK,
    BadRecord,
    Framing,
    Validator,
    ValidatorCache,
)
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight").message_class
ORDER = samples.message_type(samples.LEGACY, "legacy.Order").message_class
GOOD = FLIGHT(year=2013, carrier="UA").SerializeToString()


@dataclass
class Rec:
    """A decoded record."""

    value: bytes | None
    key: bytes | None = None


def judge(validator: Validator, *values: bytes | None) -> list[BadRecord]:
    return validator.check_records([Rec(value) for value in values])


def flights(**fields: object) -> Validator:
    return Validator.from_binding(samples.bound(samples.FLIGHTS, "nyc.Flight", **fields))


def test_good_records_pass() -> None:
    assert judge(flights(), GOOD, b"", GOOD) == []


def test_a_bad_record_is_named_by_index_field_and_reason() -> None:
    assert judge(flights(), GOOD, GOOD + b"\x52\x09UA", GOOD) == [
        BadRecord(1, "value: field `carrier`: length 9 at byte 9, but 2 bytes are left")
    ]


def test_unknown_fields_are_refused_unless_allowed() -> None:
    newer = GOOD + b"\xa0\x06\x01"
    assert judge(flights(), newer) == [BadRecord(0, "value: field `100`: nyc.Flight has no field number 100")]
    lenient = Validator.from_binding(samples.bound(samples.FLIGHTS, "nyc.Flight"), allow_unknown=True)
    assert judge(lenient, newer) == []


def test_unknown_fields_inside_messages_are_found() -> None:
    validator = Validator.from_binding(samples.bound(samples.ZOO, "zoo.All"))
    assert judge(validator, b"\xa2\x01\x03\x48\x96\x01") == [
        BadRecord(0, "value: field `leaf.9`: zoo.Leaf has no field number 9")
    ]


def test_required_fields_are_asked_for() -> None:
    validator = Validator.from_binding(samples.bound(samples.LEGACY, "legacy.Order"))
    good = ORDER(id=1).SerializeToString()
    assert judge(validator, good, b"", good + b"\x1a\x03\x12\x01x") == [
        BadRecord(1, "value: required field `id` is missing"),
        BadRecord(2, "value: required field `parts[0].code` is missing"),
    ]


def test_tombstones_pass_only_where_the_binding_says_so() -> None:
    assert judge(flights(tombstones=True), None) == []
    assert judge(flights(), None) == [
        BadRecord(0, "value: is null, but the topic's binding allows no tombstones")
    ]


def test_framing_any_takes_both_forms() -> None:
    assert judge(flights(schema_id=7), GOOD, framing.prefix(7, (0,)) + GOOD) == []


def test_framing_plain_refuses_frames_and_confluent_refuses_plain() -> None:
    framed = framing.prefix(1, (0,)) + GOOD
    assert judge(flights(framing=Framing.CONFLUENT), framed) == []
    assert "starts with 0x00" in judge(flights(framing=Framing.PLAIN), framed)[0].reason
    assert "has no Confluent frame" in judge(flights(framing=Framing.CONFLUENT), GOOD)[0].reason


def test_a_frame_must_name_a_bound_schema_and_the_bound_message() -> None:
    validator = flights(schema_id=7)
    assert judge(validator, framing.prefix(8, (0,)) + GOOD) == [
        BadRecord(0, "value: Confluent frame names schema 8; bound to this topic: 7")
    ]
    assert judge(validator, framing.prefix(7, (1,)) + GOOD) == [
        BadRecord(0, "value: Confluent frame has the message indexes [1]; nyc.Flight is [0]")
    ]
    assert judge(validator, b"\x00\x00\x00\x00\x07\x02\x00" + GOOD) == []


def test_earlier_versions_stay_good_when_a_frame_names_them() -> None:
    older = samples.bound(samples.ZOO, "zoo.Leaf", schema_id=3)
    newer = samples.bound(samples.FLIGHTS, "nyc.Flight", schema_id=4)
    validator = Validator.from_binding(newer, earlier=[older])
    assert judge(validator, framing.prefix(3, (0,)) + b"\x0a\x01x", framing.prefix(4, (0,)) + GOOD) == []
    assert judge(validator, framing.prefix(3, (0,)) + b"\x08") != []


def test_keys_and_values_are_judged_apart() -> None:
    validator = Validator.from_binding(
        samples.bound(samples.FLIGHTS, "nyc.Flight"), samples.bound(samples.ZOO, "zoo.Leaf", role=1)
    )
    bad = validator.check_records([Rec(GOOD, b"\x0a\x01x"), Rec(b"\x08", b"\x0a"), Rec(GOOD, None)])
    assert [(record.index, record.reason.split(":")[0]) for record in bad] == [
        (1, "key"),
        (1, "value"),
        (2, "key"),
    ]


def test_the_number_of_named_records_is_bounded() -> None:
    assert len(judge(flights(), *[b"\x08"] * (BAD_RECORDS_MAX + 10))) == BAD_RECORDS_MAX


def test_a_batch_is_decoded_a_little_at_a_time_and_no_further_than_bad_records_are_named() -> None:
    decoded: list[int] = []

    def records(bad_from: int) -> Iterator[Rec]:
        for number in range(4 * RECORDS_PER_LOOK):
            decoded.append(number)
            yield Rec(GOOD if number < bad_from else b"\x08")

    bad = flights().check_records(records(RECORDS_PER_LOOK + 7))
    assert [each.index for each in bad] == [RECORDS_PER_LOOK + 7 + n for n in range(BAD_RECORDS_MAX)]
    assert len(decoded) == 2 * RECORDS_PER_LOOK


@pytest.mark.parametrize("codec", list(Compression))
async def test_whole_batches_of_every_codec(codec: Compression) -> None:
    records = [batch.NewRecord(1_700_000_000_000, None, value, []) for value in (GOOD, b"\x08", GOOD)]
    content = batch.build(records, compression=codec)
    validator = flights()
    assert [bad.index for bad in validator.check(memoryview(content))] == [1]
    assert await validator.check_off_loop(memoryview(content)) == validator.check(content)


def test_the_cache_gives_one_validator_per_binding() -> None:
    @dataclass
    class Topic:
        name: str
        value_schema_id: int | None
        key_schema_id: int | None = None
        bound_revision: int = 0

    schemas = {
        number: samples.bound(samples.FLIGHTS, "nyc.Flight", schema_id=number, topic="t")
        for number in (1, 2, 3)
    }
    cache = ValidatorCache(entries_max=2)
    assert cache.for_topic(Topic("t", None), schemas) is None
    first = cache.for_topic(Topic("t", 1), schemas)
    assert first is not None
    assert cache.for_topic(Topic("t", 1), schemas) is first
    cache.for_topic(Topic("t", 2), schemas)
    cache.for_topic(Topic("t", 3), schemas)
    assert cache.for_topic(Topic("t", 1), schemas) is not first


@pytest.mark.parametrize(
    "record",
    [
        b'{"year": 2013}',
        b' {\n "year": 2013}\n',
        b"{}",
        b'[{"year": 2013}]',
        b'\x00\x00\x00\x00\x07{"year": 2013}',
    ],
)
@pytest.mark.parametrize("framing", list(Framing))
def test_json_is_called_json(record: bytes, framing: Framing) -> None:
    (bad,) = judge(flights(framing=framing), record)
    assert bad.reason.startswith(
        "value: the bytes look like JSON; the topic takes the protobuf message nyc.Flight, serialized: "
    )


@pytest.mark.parametrize(
    "record", [b"{", b"\xff{}", b'{"year": 2013', b"plain text", b"[x]", b"\x00\x00\x00\x00\x07"]
)
def test_what_is_not_json_is_not_called_so(record: bytes) -> None:
    assert all("JSON" not in bad.reason for bad in judge(flights(), record))


METHODS = """
syntax = "proto2";
message Inner { optional int32 q = 1; optional int64 HasField = 2; }
message Blob {
  required int64 ByteSize = 1; optional int64 IsInitialized = 2; optional int64 DiscardUnknownFields = 3;
  optional int64 HasField = 4; optional int64 ClearField = 5; optional int64 SerializePartialToString = 6;
  optional int64 FindInitializationErrors = 7; optional int64 DESCRIPTOR = 8; optional int64 ListFields = 9;
  optional Inner inner = 10; optional string secret = 11 [debug_redact = true];
  optional Inner hidden = 12 [debug_redact = true]; optional int64 Clear = 13;
}
"""


def test_fields_that_are_called_as_methods_are() -> None:
    """A message has the field under that name, and not the method."""
    files = protobuf.descriptor_set(protobuf.parse(METHODS, {}).canonical, {})
    validator = Validator.from_binding(samples.Bound(files, message="Blob"))
    good = b"\x08\x01\x52\x00"
    assert judge(validator, good) == []
    assert judge(validator, b"\x52\x00") == [BadRecord(0, "value: required field `ByteSize` is missing")]
    (unknown,) = judge(validator, good + b"\xf8\x06\x01")
    assert "has no field number 111" in unknown.reason
    found = redactor(descriptors.load(files, "Blob"), Marks(Action.REMOVE), b"")
    assert found is not None
    assert found.redacted(good + b"\x5a\x01s\x62\x00") == good


@pytest.mark.parametrize("name", ["HasField", "WhichOneof", "ByteSize", "plain"])
def test_rules_of_messages_with_such_fields_are_left_to_the_library(name: str) -> None:
    text = f"""
    syntax = "proto3"; import "buf/validate/validate.proto";
    message M {{
      oneof o {{ option (buf.validate.oneof).required = true; int32 a = 2; int32 b = 3; }}
      optional int32 c = 4 [(buf.validate.field).int32.gt = 1]; int64 {name} = 1;
    }}
    """
    kind = descriptors.load(protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {}), "M")
    obeys = surely(kind)
    assert kind.has_rules
    assert (obeys is None) is (name != "plain")
    assert problem(b"\x10\x01\x20\x02", kind, False, obeys) is None
