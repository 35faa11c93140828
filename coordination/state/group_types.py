"""What a consumer group is in the state: its positions and, of either protocol, its members."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from coordination.state.consumer_types import ConsumerGroupData

_T = TypeVar("_T")

CLASSIC = "classic"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position. Times are Unix ms; `expire_ms` only where the commit named a time itself."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expire_ms: int | None = None


class OffsetTable:
    """Positions by partition handle, as columns: 24 bytes for a position without metadata.

    Handles are never given twice, so a topic of the same name created later finds none. Positions of
    deleted topics stay until the next ExpireOffsets: look at a partition first, then for its handle.
    """

    __slots__ = ("committed_ms", "epochs", "expires", "handles", "metadata", "offsets")

    def __init__(self) -> None:
        self.handles: array[int] = array("I")  # rising
        self.offsets: array[int] = array("q")
        self.epochs: array[int] = array("i")
        self.committed_ms: array[int] = array("q")
        self.metadata: dict[int, str] = {}
        self.expires: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.handles)

    def __iter__(self) -> Iterator[int]:
        return iter(self.handles)

    def get(self, handle: int) -> CommittedOffset | None:
        """The position of a partition; None when there is none."""
        place = bisect_left(self.handles, handle)
        if place == len(self.handles) or self.handles[place] != handle:
            return None
        return CommittedOffset(
            self.offsets[place],
            self.epochs[place],
            self.metadata.get(handle, ""),
            self.committed_ms[place],
            self.expires.get(handle),
        )

    def put(self, handle: int, position: CommittedOffset) -> None:
        """Set the position of a partition."""
        place = bisect_left(self.handles, handle)
        if place < len(self.handles) and self.handles[place] == handle:
            self.offsets[place] = position.offset
            self.epochs[place] = position.leader_epoch
            self.committed_ms[place] = position.committed_ms
        else:
            self.handles.insert(place, handle)
            self.offsets.insert(place, position.offset)
            self.epochs.insert(place, position.leader_epoch)
            self.committed_ms.insert(place, position.committed_ms)
        _set_or_drop(self.metadata, handle, position.metadata or None)
        _set_or_drop(self.expires, handle, position.expire_ms)

    def remove(self, handle: int) -> bool:
        """Forget the position of a partition; whether there was one."""
        place = bisect_left(self.handles, handle)
        if place == len(self.handles) or self.handles[place] != handle:
            return False
        for column in (self.handles, self.offsets, self.epochs, self.committed_ms):
            del column[place]
        self.metadata.pop(handle, None)
        self.expires.pop(handle, None)
        return True

    def copy(self) -> OffsetTable:
        """The same positions, independent of later changes."""
        other = OffsetTable()
        for name in ("handles", "offsets", "epochs", "committed_ms"):
            setattr(other, name, getattr(self, name)[:])
        other.metadata = dict(self.metadata)
        other.expires = dict(self.expires)
        return other


def _set_or_drop(column: dict[int, _T], handle: int, value: _T | None) -> None:
    if value is not None:
        column[handle] = value
    elif column:
        column.pop(handle, None)


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic generation. `protocols`: (name, metadata) in the order of its preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    def metadata(self, protocol: str) -> bytes | None:
        """What it says under a protocol; None when it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), None)


@dataclass(frozen=True, slots=True)
class ClassicGeneration:
    """A classic group's generation. `members` empty: the group is Empty; not `assigned`: the leader's
    assignments are not there yet (CompletingRebalance); else it is Stable."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    assigned: bool
    members: dict[str, ClassicMember] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """One group. `kind` says which of `classic` and `consumer` counts; both None: only positions.

    `revision` is that of the log at the last change of its membership (0: it never had any): every command
    that changes the membership names the revision it expects, and is refused when the group changed since.
    Commits of positions do not move it. `state_ms` is the stamp of that change. `committer` is the
    incarnation that stored positions last, at `committed_revision` of the log (0: none did).
    """

    group_id: str
    kind: str = CLASSIC
    revision: int = 0
    state_ms: int = 0
    offsets: OffsetTable = field(default_factory=OffsetTable)
    classic: ClassicGeneration | None = None
    consumer: ConsumerGroupData | None = None
    committer: int = 0
    committed_revision: int = 0
