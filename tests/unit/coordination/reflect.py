"""A state as plain nested values, by reflection: what two states must have in common to be one state.

Nothing is listed by hand, so a field that somebody adds to a class of the state is compared from then on.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum

from coordination.state import State
from coordination.state.group_types import OffsetTable
from coordination.state.slices import SliceIndex
from coordination.state.subject_types import SubjectTable
from coordination.state.transaction_types import PartitionTransactions
from coordination.state.types import Partition, Topic

LEFT_OUT = frozenset({"_hashes", "freezes"})  # what happened to this process, not to the cluster


def attributes(value: object) -> list[str]:
    """The names of everything that an object of the state holds."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if isinstance(value, tuple):
        return list(getattr(type(value), "_fields", ()))
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*slots, *getattr(value, "__dict__", {})) if name not in LEFT_OUT]


def objects(value: object) -> Iterator[object]:
    """Every object of the state's own classes that can be reached from this one, itself first."""
    seen: dict[int, object] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif type(one).__module__.startswith(("coordination.state.", "objectstore.naming")):
            if id(one) in seen:
                continue
            seen[id(one)] = one
            if not isinstance(one, Enum):
                yield one
                waiting += [getattr(one, name) for name in attributes(one)]
        elif isinstance(one, list | tuple | deque):
            waiting += one


def plain(value: object) -> object:
    """The value as tuples, numbers and text. Dicts keep their order: it is the log's, and counts."""
    if value is None or (isinstance(value, bool | int | str | bytes) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return (type(value).__name__, value.value)
    if isinstance(value, dict):
        return tuple((plain(key), plain(one)) for key, one in value.items())
    if isinstance(value, SliceIndex):  # what is before the head is dead, and the table is the state's own
        return (bytes(value.rows[value.head :]), value.first_offset, value.size_bytes)
    if isinstance(value, OffsetTable):  # the last two are looked up by handle only
        columns = (value.handles, value.offsets, value.epochs, value.committed_ms)
        return plain((*columns, sorted(value.metadata.items()), sorted(value.expires.items())))
    if isinstance(value, PartitionTransactions) and not (value.open or value.aborted):
        return None  # nothing is known, as before there was one
    if isinstance(value, list | tuple | deque | array):
        return tuple(plain(one) for one in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return (type(value).__name__, tuple((name, _attribute(value, name)) for name in attributes(value)))


def _attribute(owner: object, name: str) -> object:
    """What an attribute holds; of what points back up, only its name."""
    value = getattr(owner, name)
    if isinstance(owner, Partition) and isinstance(value, Topic):
        return value.name
    if isinstance(owner, State) and name == "partitions":  # they are in the topics, once
        return tuple(None if one is None else (one.topic.name, one.index) for one in owner.partitions)
    if isinstance(owner, State) and name == "leaving":  # of these, only what they hold counts
        held = owner.leaving.items()
        return tuple((handle, plain(one.slices), plain(one.merged)) for handle, one in held)
    if isinstance(owner, State) and name == "topics_by_id":
        return tuple((key, topic.name) for key, topic in owner.topics_by_id.items())
    if isinstance(owner, State) and name == "whole_garbage":  # its order says nothing
        return tuple(sorted(owner.whole_garbage.items()))
    if isinstance(owner, State) and name == "transactions_by_producer":  # its order says nothing
        by_producer = owner.transactions_by_producer.items()
        return tuple(sorted((key, one.transactional_id) for key, one in by_producer))
    if isinstance(owner, State) and name in ("tables_by_topic", "topics_by_table_name"):  # nor does theirs
        return tuple(sorted(value.items()))
    if name in ("users", "referrers", "followers"):  # nor the one inside them
        return tuple(sorted((key, tuple(sorted(held))) for key, held in value.items()))
    if isinstance(owner, SubjectTable) and name in ("by_identity", "contexts"):
        return tuple(sorted((key, plain(held)) for key, held in value.items()))
    return plain(value)
