"""What classic members of type "consumer" put into JoinGroup and get from SyncGroup (ConsumerProtocol).

Subscription: version int16, topics, user data; since 1 the partitions it owns; since 2 its generation; since
3 its rack. Assignment: version int16, partitions by topic, user data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct, error

PROTOCOL_TYPE = "consumer"
OWNED_SINCE, GENERATION_SINCE, RACK_SINCE, VERSION_MAX = 1, 2, 3, 3

_INT16, _INT32 = Struct(">h"), Struct(">i")


class BadEmbedded(ValueError):
    """The bytes are no subscription, or no assignment."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and has. `owned`: topic name → partitions."""

    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rack: str | None = None
    user_data: bytes | None = None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, kind: Struct) -> int:
        try:
            (value,) = kind.unpack_from(self.data, self.position)
        except error as short:
            raise BadEmbedded(f"cut off at byte {self.position}") from short
        self.position += kind.size
        return int(value)

    def count(self) -> int:
        count = self.take(_INT32)
        if not 0 <= count <= len(self.data) - self.position:
            raise BadEmbedded(f"a list of {count} at byte {self.position}")
        return count

    def bytes_of(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.position:
            raise BadEmbedded(f"{size} bytes at byte {self.position}")
        self.position += size
        return self.data[self.position - size : self.position]

    def text(self) -> str:
        try:
            return self.bytes_of(self.take(_INT16)).decode()
        except UnicodeDecodeError as bad:
            raise BadEmbedded(f"no UTF-8 before byte {self.position}") from bad

    def optional_bytes(self) -> bytes | None:
        size = self.take(_INT32)
        return None if size < 0 else self.bytes_of(size)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count()):
            name = self.text()
            found[name] = tuple(self.take(_INT32) for _ in range(self.count()))
        return found


def read_subscription(data: bytes) -> Subscription:
    """Parse a member's metadata. Raises BadEmbedded."""
    reader = _Reader(data)
    version = reader.take(_INT16)
    if version < 0:
        raise BadEmbedded(f"version {version}")
    topics = tuple(reader.text() for _ in range(reader.count()))
    user_data = reader.optional_bytes()
    owned = reader.partitions() if version >= OWNED_SINCE else {}
    if version >= GENERATION_SINCE:
        reader.take(_INT32)
    rack = None
    if version >= RACK_SINCE:
        size = reader.take(_INT16)
        rack = None if size < 0 else reader.bytes_of(size).decode(errors="replace")
    return Subscription(version, topics, owned, rack, user_data)


def read_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Topic name → partitions. Empty bytes are no assignment: nothing. Raises BadEmbedded."""
    if not data:
        return {}
    reader = _Reader(data)
    reader.take(_INT16)
    return reader.partitions()


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """The bytes that a member of that version gets from SyncGroup."""
    parts = [_INT16.pack(min(version, VERSION_MAX)), _INT32.pack(len(partitions))]
    for name, numbers in partitions.items():
        encoded = name.encode()
        parts += (_INT16.pack(len(encoded)), encoded, _INT32.pack(len(numbers)))
        parts += (_INT32.pack(number) for number in numbers)
    parts.append(_INT32.pack(-1))
    return b"".join(parts)
