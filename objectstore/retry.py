"""Retries with bounds and jitter, and the truth about conditional puts.

A conditional put whose answer was lost may have landed. Its repeat is then refused by its own effect,
and that refusal must not be told as "somebody else was first". So after a try of unknown outcome, a
refusal is looked into: the object that is there decides.

    refused after an unknown try  | what is there | told as
    create-only                   | our bytes     | success, with its etag
    create-only                   | other bytes   | Precondition: create-only names are never overwritten
    replace-if-unchanged          | our bytes     | success, with its etag
    replace-if-unchanged          | other bytes   | Ambiguous: ours may have been replaced since
    either                        | nothing       | Ambiguous

Once one try is of unknown outcome, giving up is Ambiguous whatever the last try said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from objectstore import tasks
from objectstore.pace import LoopPace, Pace
from objectstore.store import (
    PLAIN,
    Ambiguous,
    Buffer,
    Create,
    NotFound,
    ObjectMeta,
    ObjectStore,
    Plain,
    Precondition,
    PutMode,
    Retryable,
    StoreError,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Full jitter: try n waits a random part of min(wait_s_max, wait_s_first · 2ⁿ)."""

    tries_max: int = 6
    total_s_max: float = 30.0  # no new try begins after this
    wait_s_first: float = 0.05
    wait_s_max: float = 3.0

    def wait(self, tries: int, random: float) -> float:
        """Seconds to wait after `tries` failed tries; `random` in [0, 1)."""
        ceiling = min(self.wait_s_max, self.wait_s_first * 2.0 ** (tries - 1))
        return ceiling * (0.1 + 0.9 * random)


class Retries:
    """Repeats calls of a store within the policy's bounds."""

    def __init__(self, policy: RetryPolicy | None = None, pace: Pace | None = None) -> None:
        self._policy = policy or RetryPolicy()
        self._pace = pace or LoopPace()

    async def tried(self, call: Callable[[], Awaitable[T]], *, wrote: bool = False) -> T:
        """Of a call that may be made again, `wrote` when it changes something. Raises StoreError."""
        return await self.repeat(lambda: self.expected(call, wrote=wrote))

    async def expected(self, call: Callable[[], Awaitable[T]], *, wrote: bool = False) -> T:
        """One call of the store below, which raises what a store may raise.

        Native code may raise anything, a panic too: whoever calls knows StoreErrors only, and would not try
        again, nor answer who waits. A key that is refused (ValueError) is the caller's own mistake.
        """
        try:
            return await call()
        except (StoreError, ValueError):
            raise
        except BaseException as error:
            if tasks.cancelled(error):
                raise
            tasks.tell("object store", error)
            told = f"the store's client failed: {error!r}"
            raise (Ambiguous(told) if wrote else Retryable(told)) from error

    async def repeat(self, once: Callable[[], Awaitable[T]]) -> T:
        """Until one succeeds, or fails for good. Raises what the last one did."""
        started, tries = self._pace.monotonic(), 0
        while True:
            try:
                return await once()
            except (Retryable, Ambiguous):
                tries += 1
                wait = self._policy.wait(tries, self._pace.random())
                late = self._pace.monotonic() + wait - started > self._policy.total_s_max
                if tries >= self._policy.tries_max or late:
                    raise
            await self._pace.sleep(wait)


class RetryingStore:
    """An ObjectStore that repeats what is worth repeating. Raises what remains true at the end."""

    def __init__(
        self, store: ObjectStore, policy: RetryPolicy | None = None, pace: Pace | None = None
    ) -> None:
        self._store = store
        self._retries = Retries(policy, pace)

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore; the outcome is told as in the table above."""
        unknown: list[Ambiguous] = []

        async def once() -> str | StoreError:
            try:
                return await self._retries.expected(lambda: self._store.put(key, parts, mode), wrote=True)
            except Ambiguous as error:
                unknown.append(error)
                raise
            except Precondition as refusal:
                if not unknown or isinstance(mode, Plain):
                    raise
                return await self._explain(key, parts, mode, refusal)

        try:
            outcome = await self._retries.repeat(once)
        except Retryable as error:
            if unknown:
                raise Ambiguous(f"{error}; an earlier try may have landed: {unknown[0]}") from error
            raise
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def _explain(
        self, key: str, parts: Sequence[Buffer], mode: PutMode, refusal: Precondition
    ) -> str | StoreError:
        """The etag if the object is what we put, else what the table says. Ambiguous: look again."""
        try:
            etag = await find_ours(self._store, key, parts)
        except NotFound:
            return Ambiguous(f"{key}: refused, and gone when looked at: {refusal}")
        except StoreError as error:
            raise Ambiguous(f"{key}: refused, and not readable: {error}") from refusal
        if etag is not None:
            return etag
        if isinstance(mode, Create):
            return refusal
        return Ambiguous(f"{key}: an earlier try may have landed and been replaced since")

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._retries.tried(lambda: self._store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        return await self._retries.tried(lambda: self._store.get_range(key, start, length))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore."""
        return await self._retries.tried(lambda: self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        return await self._retries.tried(lambda: self._store.head(key))

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ObjectStore. A page that fails is asked for again from where the last one ended."""
        last = start_after
        pages = self._store.list(prefix, last)

        async def once() -> Sequence[ObjectMeta] | None:
            nonlocal pages
            try:
                return await self._retries.expected(lambda: _next(pages))
            except Retryable:
                pages = self._store.list(prefix, last)
                raise

        while (page := await self._retries.repeat(once)) is not None:
            yield page
            last = page[-1].key if page else last

    async def list_folders(self, prefix: str) -> Sequence[str]:
        """See ObjectStore."""
        return await self._retries.tried(lambda: self._store.list_folders(prefix))

    async def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore. Deleting again is harmless, since names are never used again."""
        await self._retries.tried(lambda: self._store.delete(keys), wrote=True)

    async def close(self) -> None:
        """See ObjectStore."""
        await self._store.close()


async def _next(pages: AsyncIterator[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta] | None:
    return await anext(pages, None)


async def find_ours(store: ObjectStore, key: str, parts: Sequence[Buffer]) -> str | None:
    """The etag of the object when its bytes are `parts`, else None. Raises NotFound, Ambiguous.

    Compares bytes, not etags: what an etag is made of differs between stores and kinds of encryption.
    """
    meta = await store.head(key)
    if meta.size != sum(map(len, parts)) or await store.get(key) != b"".join(parts):
        return None
    if (await store.head(key)).etag != meta.etag:
        raise Ambiguous(f"{key}: changed while it was looked at")
    return meta.etag
