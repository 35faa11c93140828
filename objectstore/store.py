"""The object store port: what Floe asks of S3-compatible storage, and nothing more.

Every adapter passes tests/contract/test_store.py. Keys are slash-separated, relative to the
store's root, and never start with a slash. Sizes and positions are bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class StoreError(Exception):
    """Base of all store errors; the subclass says what the caller knows."""


class NotFound(StoreError):
    """The object does not exist (definite)."""


class Precondition(StoreError):
    """Create-only met an existing object, or replace-if-unchanged met another version (definite)."""


class Retryable(StoreError):
    """The store refused or was not reached; the operation definitely had no effect."""


class Ambiguous(StoreError):
    """The answer was lost: a write may or may not have taken effect."""


class Denied(StoreError):
    """Credentials or permissions are wrong; retrying does not help (definite)."""


class NoBucket(Denied):
    """The bucket itself is not there: who starts may wait for it, no retry of a request helps."""


class ClockSkewed(Denied):
    """The store refuses what was signed at another time than its own: a clock is wrong."""


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What the store knows of one object. `modified_ms` is the store's own clock (Unix ms)."""

    key: str
    size: int
    etag: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Put only when the key does not exist, else Precondition."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Put only when the object still has this etag, else Precondition."""

    etag: str


@dataclass(frozen=True, slots=True)
class Plain:
    """Put whatever is there."""


PutMode = Create | Replace | Plain
PLAIN = Plain()
CREATE = Create()


class Reads(Protocol):
    """What readers of records ask for: a part of ObjectStore, with its errors."""

    async def get(self, key: str) -> bytes:
        """The whole object."""
        ...

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; a short answer is Retryable, never short bytes."""
        ...

    async def head(self, key: str) -> ObjectMeta:
        """Metadata only."""
        ...


class ObjectStore(Reads, Protocol):
    """Raises only StoreError subclasses for what the store answers."""

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """Write the concatenation of `parts`; returns the new etag. Durable when it returns."""
        ...

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """One buffer per (start, length), near ranges read together."""
        ...

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """Pages of objects whose key starts with `prefix` (any string), in key order, after `start_after`."""
        ...

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """The next path segments below `prefix` (which ends with a slash), without slashes."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete all; a missing key is not an error."""
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...


async def is_there(store: ObjectStore, key: str) -> bool:
    """Whether it has the object. Raises StoreError."""
    try:
        await store.head(key)
    except NotFound:
        return False
    return True
