"""What numbers can be kept: a snapshot holds each in a field of bounded width; apply counts without bounds.

A number that leaves its field cannot be saved any more: from then on no snapshot is written, the log is never
trimmed, and etcd fills. So whatever apply computes, rather than copies out of a command, goes through the
bounds of the field that will hold it, or is refused. tests/unit/coordination/test_bounds.py has a row for
every number in snapshot.proto that says where it comes from; a field without a row fails it.

What no snapshot could hold is refused or cut at every feature level: no agent could go on from there.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from coordination.proto import snapshot_pb2 as pb

_WIDTHS: dict[int, tuple[int, bool]] = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
    FieldDescriptor.CPPTYPE_ENUM: (32, True),
}


class _Field(Protocol):
    """What is asked of a field descriptor: protobuf has one class for it in Python and one in C."""

    @property
    def cpp_type(self) -> int: ...


class Bounds(NamedTuple):
    """The least and the most that a field holds."""

    low: int
    high: int

    def cut(self, number: int) -> int:
        """The number, or the end of the bounds that it lies beyond."""
        return min(max(number, self.low), self.high)

    def hold(self, number: int) -> bool:
        """Whether the field can hold the number."""
        return self.low <= number <= self.high


def of(field: _Field) -> Bounds:
    """The bounds of a field of whole numbers. KeyError for one of another type."""
    bits, signed = _WIDTHS[field.cpp_type]
    return Bounds(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else Bounds(0, (1 << bits) - 1)


def _kept(message: type[Message], field: str) -> Bounds:
    return of(message.DESCRIPTOR.fields_by_name[field])


EXPIRE_MS = _kept(pb.GroupOffsets, "expire_ms")
DELETED_BYTES = _kept(pb.DeletedTopic, "size_bytes")
NODE_ID = _kept(pb.Incarnation, "node_id")
LEADER_EPOCH = _kept(pb.Head, "leader_epoch")
GENERATION = _kept(pb.ClassicGeneration, "generation")
CHUNK_NUMBER = _kept(pb.Incarnation, "next_chunk_number")
HANDLES = _kept(pb.Head, "handles")
POSITION = Bounds(0, (1 << 32) - 1)  # of a row in its chunk, and its length (snapshot.proto, Partition.rows)
OFFSET_MAX = 1 << 62  # no batch ends above it, so that the markers of transactions always find room behind it
PRODUCER_ID_MAX = 1 << 61  # a marker's row holds an id and a bit, signed, and every new owner takes one more
SCHEMA_ID_MAX = (1 << 31) - 1  # framed records name it in four bytes
