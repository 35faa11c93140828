"""Protobuf values as the `value` column of a topic's table, decoded in Spark by a descriptor set.

For records that did not come by way of the table, which Floe has decoded: those of a stream from Kafka, and
those in a quarantine whose schema is known by now. It is done in Python on the executors, which need the
distribution `protobuf`; Spark's own `from_protobuf` is a jar that Spark 4.1 has no release of in the
repository of its others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from iceberg.spark.watermark import JobError

ERROR, RAW = "__err__", "__raw__"
FRAME_BYTES = 5
"""A zero byte and the schema's id, before the indexes of the message."""
VARINT_BITS_MAX = 35
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 1 << 63
REPEATED, MESSAGE = "a list or a map", "a message"
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WRAPPED = ("Double", "Float", "Int64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = frozenset(f"google.protobuf.{each}Value" for each in _WRAPPED)
_LONG = (T.LongType,)
_INT = (T.IntegerType, T.LongType)
_COLUMNS: Mapping[str, tuple[type[T.DataType], ...]] = {
    "bool": (T.BooleanType,),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), _LONG),
    "float": (T.FloatType, T.DoubleType),
    "double": (T.DoubleType,),
    **dict.fromkeys(("string", "enum"), (T.StringType,)),
    "bytes": (T.BinaryType,),
    TIMESTAMP: (T.TimestampType,),
    DURATION: _LONG,
    MESSAGE: (T.BinaryType,),  # or a struct
}
"""By what a field is the columns that a topic's table has for it (iceberg/mapping.py), or has since they
widened; none for what is not decoded here.
"""
_EVERY = tuple({kind for kinds in _COLUMNS.values() for kind in kinds})


def decoder(
    descriptors: bytes, message: str, value: T.StructType, *, framed: bool
) -> Callable[[Column], Column]:
    """A function from a column of bytes to one of the struct `value`, which is the table's own.

    `descriptors`: a FileDescriptorSet with all imports (`protoc --include_imports -o`); `message`: a full
    name; `framed`: bytes begin with Confluent's frame, whose schema id is not looked at. Fields may be
    scalars, enums, messages, and google.protobuf's Timestamp, Duration and wrappers; columns have of them
    what the topic's table has (iceberg/mapping.py). What is not the message has its reason in `__err__` and
    its bytes in `__raw__`; null stays null. Raises JobError for a column of another kind, and for a message
    that the descriptors do not have.
    """
    kind = _class_of(descriptors, message)  # else each record would say what is wrong with them
    if other := next(_others(value, kind.DESCRIPTOR, "value"), None):
        raise JobError(
            f"column {other}: only scalars but uint64, enums, messages, wrappers, Timestamp and Duration are "
            "decoded here, to the columns that a topic's table has; give a function of your own instead"
        )

    def decode(raw: bytes | None) -> dict[str, Any] | None:
        if raw is None:
            return None
        raw = bytes(raw)
        try:
            parsed = _class_of(descriptors, message).FromString(raw[_frame(raw) :] if framed else raw)
            return {**_fields(parsed, value), RAW: raw}
        except Exception as error:  # DecodeError comes from a C extension; a frame raises ValueError
            return {ERROR: f"{type(error).__name__}: {error}", RAW: raw}

    made: Callable[[Column], Column] = F.udf(decode, value, useArrow=False)
    return made


def _others(struct: T.StructType, message: Any, path: str) -> Iterator[str]:
    """Columns that `decoder` cannot make, and their types. `message`: what they are of, if that is known."""
    for column in struct.fields:
        name, kind = f"{path}.{column.name}", column.dataType
        field = message.fields_by_name.get(column.name) if message is not None else None
        if isinstance(kind, T.StructType) and (field is None or _what(field) == MESSAGE):
            yield from _others(kind, field.message_type if field is not None else None, name)
        elif field is None and not isinstance(kind, _EVERY):
            yield f"{name} is {kind.simpleString()}"
        elif field is not None and not isinstance(kind, _COLUMNS.get(_what(field), ())):
            yield f"{name} is {kind.simpleString()} for {_what(field)}"


def _what(field: Any) -> str:
    """What a field is, in the words of _COLUMNS, or REPEATED."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    repeated = getattr(field, "is_repeated", None)  # protobuf before 6.31 has labels, 7 has none
    if repeated if repeated is not None else field.label == field.LABEL_REPEATED:
        return REPEATED
    if field.message_type is None:
        return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    name = str(field.message_type.full_name)
    if name in WRAPPERS:
        return _what(field.message_type.fields_by_name["value"])
    return name if name in (TIMESTAMP, DURATION) else MESSAGE


_classes: dict[tuple[bytes, str], Any] = {}


def _class_of(descriptors: bytes, message: str) -> Any:
    """Once per executor's process and schema. Raises JobError."""
    known = _classes.get((descriptors, message))
    if known is None:
        known = _classes[descriptors, message] = _made(descriptors, message)
    return known


def _made(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, message_factory
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        found = message_factory.GetMessages(files.file)
    except (DecodeError, TypeError, KeyError) as error:  # the last two: an import is not in the set
        raise JobError(
            f"descriptors of {len(descriptors)} bytes: {error}; make them by protoc --include_imports -o"
        ) from error
    if message not in found:
        raise JobError(f"message {message!r} is not in the descriptors: name one of {', '.join(found)}")
    return found[message]


def _frame(raw: bytes) -> int:
    """How long the frame is. Raises ValueError."""
    if len(raw) <= FRAME_BYTES or raw[0] != 0:
        raise ValueError(f"no Confluent frame begins with {raw[: FRAME_BYTES + 1].hex()}")
    count, at = _varint(raw, FRAME_BYTES)
    for _ in range(count):
        _, at = _varint(raw, at)
    return at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of the frame and where it ends."""
    number = 0
    for shift in range(0, VARINT_BITS_MAX, 7):
        if at >= len(raw):
            break
        number |= (raw[at] & 0x7F) << shift
        at += 1
        if raw[at - 1] < 0x80:
            return number >> 1, at
    raise ValueError(f"the Confluent frame {raw[:at].hex()} has no end")


def _fields(message: Any, struct: T.StructType) -> dict[str, Any]:
    known = type(message).DESCRIPTOR.fields_by_name
    return {
        field.name: _field(message, known[field.name], field.dataType)
        for field in struct.fields
        if field.name in known
    }


def _field(message: Any, descriptor: Any, kind: T.DataType) -> Any:
    """Null where a field that can be told from its default is not there."""
    if descriptor.has_presence and not type(message).HasField(message, descriptor.name):
        return None
    value = getattr(message, descriptor.name)
    if isinstance(kind, T.StructType):
        return _fields(value, kind)
    if descriptor.enum_type is not None:
        known = descriptor.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if descriptor.message_type is None:
        return value
    name = descriptor.message_type.full_name
    if name == TIMESTAMP:
        return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    if name == DURATION:
        return _micros(value)
    return (
        value.value if name in WRAPPERS else type(value).SerializePartialToString(value, deterministic=True)
    )


def _micros(duration: Any) -> int:
    """Nanoseconds are cut off towards zero, what is beyond 64 bits stops at their end."""
    whole = abs(duration.nanos) // 1_000
    micros = duration.seconds * 1_000_000 + (whole if duration.nanos >= 0 else -whole)
    return int(max(-_INT64, min(_INT64 - 1, micros)))
