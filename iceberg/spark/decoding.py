"""Protobuf values as the `value` column of a topic's table, decoded in Spark by a descriptor set.

For records that did not come by way of the table, which Floe has decoded: those of a stream from Kafka, and
those in a quarantine whose schema is known by now. It is done in Python on the executors, which need the
distribution `protobuf`; Spark's own `from_protobuf` is a jar that Spark 4.1 has no release of in the
repository of its others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
SCALARS = (T.BooleanType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.StringType, T.BinaryType)


def decoder(
    descriptors: bytes, message: str, value: T.StructType, *, framed: bool
) -> Callable[[Column], Column]:
    """A function from a column of bytes to one of the struct `value`, which is the table's own.

    `descriptors`: a FileDescriptorSet with all imports (`protoc --include_imports -o`); `message`: a full
    name; `framed`: bytes begin with Confluent's frame, whose schema id is not looked at. Fields may be
    scalars, messages and google.protobuf.Timestamp. What is not the message has its reason in `__err__` and
    its bytes in `__raw__`; null stays null. Raises JobError for a column of another kind, and for a message
    that the descriptors do not have.
    """
    if other := next(_others(value, "value"), None):
        raise JobError(
            f"column {other}: only scalars, messages and Timestamp are decoded here; give a "
            "function of your own instead"
        )
    _class_of(descriptors, message)  # else each record would say what is wrong with them

    def decode(raw: bytes | None) -> dict[str, Any] | None:
        if raw is None:
            return None
        raw = bytes(raw)
        try:
            parsed = _class_of(descriptors, message)()
            parsed.ParseFromString(raw[_frame(raw) :] if framed else raw)
            return {**_fields(parsed, value), RAW: raw}
        except Exception as error:  # DecodeError comes from a C extension; a frame raises ValueError
            return {ERROR: f"{type(error).__name__}: {error}", RAW: raw}

    made: Callable[[Column], Column] = F.udf(decode, value, useArrow=False)
    return made


def _others(struct: T.StructType, path: str) -> Iterator[str]:
    """Columns that `decoder` cannot make, and their types."""
    for field in struct.fields:
        name = f"{path}.{field.name}"
        if isinstance(field.dataType, T.StructType):
            yield from _others(field.dataType, name)
        elif not isinstance(field.dataType, (*SCALARS, T.TimestampType)):
            yield f"{name} is {field.dataType.simpleString()}"


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
    known = message.DESCRIPTOR.fields_by_name
    return {
        field.name: _field(message, known[field.name], field.dataType)
        for field in struct.fields
        if field.name in known
    }


def _field(message: Any, descriptor: Any, kind: T.DataType) -> Any:
    """Null where a field that can be told from its default is not there."""
    if descriptor.has_presence and not message.HasField(descriptor.name):
        return None
    value = getattr(message, descriptor.name)
    if isinstance(kind, T.StructType):
        return _fields(value, kind)
    if isinstance(kind, T.TimestampType):
        return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    return value
