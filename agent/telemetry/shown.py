"""What Kafka's side of an agent shows the console: plain values, so that neither needs to know the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RecordsRead(NamedTuple):
    """Whole batches in the order of their offsets, committed; some may begin before the offset asked for.

    `following` is the offset to go on at, `log_start` and `last_stable` bound what there is. `problem`: the
    name of Kafka's error, empty for none.
    """

    batches: Sequence[memoryview]
    following: int
    log_start: int
    last_stable: int
    problem: str


class ShownGroup(NamedTuple):
    """A group's kind, state and protocol as Kafka spells them."""

    kind: str
    state: str
    protocol: str


class GroupMember(NamedTuple):
    """A member of a group. `assigned`: its partitions by topic."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    assigned: Mapping[str, Sequence[int]]
