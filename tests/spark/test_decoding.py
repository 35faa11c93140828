"""Protobuf values decoded without the table: frames, presence, times, and what is not the message."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql import types as T

from deploy.run.broken import confluent
from deploy.run.source import TOPICS, message_class
from iceberg.spark.decoding import ERROR, RAW, _class_of, decoder
from iceberg.spark.watermark import JobError
from schema.compiler import compile_protos

FLIGHTS = next(topic for topic in TOPICS if topic.name == "flights")
DESCRIPTORS = compile_protos({FLIGHTS.proto.name: FLIGHTS.proto.read_bytes()})
WITHOUT_IMPORTS = FileDescriptorSet(
    file=[each for each in FileDescriptorSet.FromString(DESCRIPTORS).file if each.name == FLIGHTS.proto.name]
).SerializeToString()
MOVEMENT = T.StructType().add("scheduled_time", T.IntegerType()).add("actual_time", T.IntegerType())
VALUE = (
    T.StructType()
    .add(RAW, T.BinaryType())
    .add(ERROR, T.StringType())
    .add("number", T.IntegerType())
    .add("tail_number", T.StringType())
    .add("departure", MOVEMENT)
    .add("arrival", MOVEMENT)
    .add("scheduled_hour", T.TimestampType())
    .add("added_by_somebody", T.IntegerType())
)


def decoded(raw: bytes | None, *, framed: bool) -> dict[str, object] | None:
    """What the function inside of the column gives, on the driver."""
    column = decoder(DESCRIPTORS, FLIGHTS.message, VALUE, framed=framed)
    found: dict[str, object] | None = column.func(raw)  # type: ignore[attr-defined]  # Spark's UDF has it
    return found


@pytest.mark.parametrize("indexes", [(0,), (3, 1)])
def test_a_message_is_what_it_says_with_and_without_a_frame(indexes: tuple[int, ...]) -> None:
    micros = {"seconds": 253_402_300_799, "nanos": 999_999_000}  # the last that there is
    flight = message_class(FLIGHTS, FLIGHTS.message)(
        number=4, departure={"scheduled_time": 0, "actual_time": 7}, scheduled_hour=micros
    )
    plain = flight.SerializeToString()
    says = {
        "number": 4,
        "tail_number": None,
        "departure": {"scheduled_time": 0, "actual_time": 7},
        "arrival": None,
        "scheduled_hour": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    }
    assert decoded(plain, framed=False) == {**says, RAW: plain}
    framed = confluent(77, plain, indexes)
    assert decoded(framed, framed=True) == {**says, RAW: framed}
    assert decoded(None, framed=True) is None


@pytest.mark.parametrize(
    ("raw", "framed", "says"),
    [
        (b"", True, "no Confluent frame begins with "),
        (b"\x08\x01\x10\x02\x18\x03\x20", True, "no Confluent frame begins with 080110021803"),
        (b"\x00\x00\x00\x00\x07\xff\xff\xff\xff\xff\xff", True, "has no end"),
        (b"\x00\x00\x00\x00\x07\x00\x0a", True, "DecodeError"),
        (b"\x0a", False, "DecodeError"),
    ],
)
def test_what_is_not_the_message_has_its_reason_and_its_bytes(raw: bytes, framed: bool, says: str) -> None:
    found = decoded(raw, framed=framed)
    assert found is not None
    assert set(found) == {ERROR, RAW}
    assert found[RAW] == raw
    assert says in str(found[ERROR])


def test_a_column_that_cannot_be_decoded_here_is_named() -> None:
    value = T.StructType().add("a", T.StructType().add("b", T.ArrayType(T.IntegerType())))
    with pytest.raises(JobError, match=r"column value\.a\.b is array<int>: only scalars"):
        decoder(DESCRIPTORS, FLIGHTS.message, value, framed=False)


@pytest.mark.parametrize(
    ("descriptors", "message", "says"),
    [
        (
            DESCRIPTORS,
            "nycflights.Flights",
            r"message 'nycflights.Flights' is not in the descriptors: name one of .*nycflights.Flight\b",
        ),
        (b"\x0a", FLIGHTS.message, r"descriptors of 1 bytes: .*; make them by protoc --include_imports"),
        (WITHOUT_IMPORTS, FLIGHTS.message, r"descriptors of [0-9]+ bytes: .*; make them by protoc"),
    ],
)
def test_descriptors_without_the_message_are_told_before_any_record(
    descriptors: bytes, message: str, says: str
) -> None:
    with pytest.raises(JobError, match=says):
        decoder(descriptors, message, VALUE, framed=True)


KINDS = b"""
syntax = "proto3";
package s;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
enum Kind { option allow_alias = true; UNKNOWN = 0; BUY = 2; PURCHASE = 2; }
message C {
  Kind kind = 1; google.protobuf.Duration took = 2; google.protobuf.StringValue note = 3; uint32 n = 4;
  google.protobuf.Int32Value many = 5; google.protobuf.Any more = 6; repeated string names = 7;
  uint64 large = 8; int32 small = 9; optional Kind other = 10;
}
"""
OF_KINDS = compile_protos({"c.proto": KINDS})


def columns(**kinds: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def test_each_field_is_as_the_table_has_it() -> None:
    """An enum by its name, of several the first; a number that has none as text; a wrapper's value; µs."""
    text, long = T.StringType(), T.LongType()
    value = columns(
        kind=text, other=text, took=long, note=text, n=long, many=T.IntegerType(), more=T.BinaryType()
    )
    made = _class_of(OF_KINDS, "s.C")

    def told(**fields: object) -> dict[str, object]:
        raw = made(**fields).SerializeToString()
        found: dict[str, object] = decoder(OF_KINDS, "s.C", value, framed=False).func(raw)  # type: ignore[attr-defined]  # Spark's UDF has it
        assert found.pop(RAW) == raw
        return found

    none = dict.fromkeys(("other", "took", "note", "many", "more"))
    assert told() == {**none, "kind": "UNKNOWN", "n": 0}
    took = {"seconds": -3, "nanos": -1_999}
    found = told(
        kind=2, other=7, took=took, note={"value": "x"}, n=4_000_000_000, many={}, more={"type_url": "u"}
    )
    says = {"kind": "BUY", "other": "7", "took": -3_000_001, "note": "x", "n": 4_000_000_000, "many": 0}
    assert found == {**says, "more": b"\n\x01u"}


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("kind", T.IntegerType(), "int for enum"),
        ("took", T.TimestampType(), "timestamp for google.protobuf.Duration"),
        ("note", columns(value=T.StringType()), "struct<value:string> for string"),
        ("n", T.IntegerType(), "int for uint32"),
        ("more", T.StringType(), "string for a message"),
        ("names", T.StringType(), "string for a list or a map"),
        ("names", T.ArrayType(T.StringType()), "array<string> for a list or a map"),
        ("large", T.LongType(), "bigint for uint64"),
    ],
)
def test_a_column_that_the_table_would_not_have_is_named(name: str, kind: T.DataType, says: str) -> None:
    with pytest.raises(JobError, match=f"column value.{name} is {says}: only scalars".replace("<", "[<]")):
        decoder(OF_KINDS, "s.C", columns(**{name: kind}), framed=False)


def test_a_column_that_has_widened_takes_the_field() -> None:
    column = decoder(OF_KINDS, "s.C", columns(small=T.LongType()), framed=False)
    raw = _class_of(OF_KINDS, "s.C")(small=-5).SerializeToString()
    assert column.func(raw) == {"small": -5, RAW: raw}  # type: ignore[attr-defined]  # Spark's UDF has it
