"""The audit log's message, floe.audit.v1.Event, and what its topic is bound to. Pure."""

from __future__ import annotations

from functools import lru_cache

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from schema.proto import audit_pb2

EVENT = "floe.audit.v1.Event"


@lru_cache(maxsize=1)
def descriptor_set() -> bytes:
    """Of EVENT, self-contained."""
    file = FileDescriptorProto()
    audit_pb2.DESCRIPTOR.CopyToProto(file)
    return FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)
