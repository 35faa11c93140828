"""The state machine: `State.apply` and what it is made of. Start at state.py."""

from __future__ import annotations

from coordination.state.errors import InvariantBroken, StateError, UnknownCommand, UnsupportedFeature
from coordination.state.slices import SliceIndex
from coordination.state.state import State
from coordination.state.types import (
    Applied,
    Broker,
    ChunkCommitted,
    ClaimHolder,
    Done,
    Endpoint,
    Incarnation,
    Partition,
    ProducerEntry,
    Refused,
    Result,
    Schema,
    SnapshotRecord,
    Span,
    Table,
    Topic,
)

__all__ = [
    "State",
    "StateError",
    "InvariantBroken",
    "UnknownCommand",
    "UnsupportedFeature",
    "Applied",
    "Result",
    "ChunkCommitted",
    "Done",
    "Refused",
    "Topic",
    "Partition",
    "Span",
    "SliceIndex",
    "ProducerEntry",
    "Broker",
    "Endpoint",
    "Incarnation",
    "Table",
    "Schema",
    "ClaimHolder",
    "SnapshotRecord",
]
