"""Objects whose bytes are not their own, put back to where they belong.

    scrub/spare/<key>   bytes that belong under <key> and are whole there in no other place

A spare is written before the object that holds its bytes is overwritten, and deleted once they are in their
place. What a scrubber that died left of them the next one uses up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordination.steps import reach
from iceberg import contents
from iceberg.contents import Owners
from objectstore.naming import SCRUB
from objectstore.store import CREATE, NotFound, ObjectStore, Precondition, Replace
from objectstore.turns import off_loop

SPARE = f"{SCRUB}spare/"
RING_MAX = 16  # objects that hold one another's bytes, one after the other
ROUNDS_MAX = 64  # looks through the spares until none is left


def _sound(_content: bytes) -> str:
    return ""


class Spares:
    """`wanted`: whether an object of that key is needed where it is missing."""

    def __init__(self, store: ObjectStore, owners: Owners, wanted: Callable[[str], bool]) -> None:
        self._store = store
        self._owners = owners
        self._wanted = wanted

    async def exchange(self, key: str, content: bytes, *, write: bool) -> bool:
        """Put bytes that lie under `key` and are another's to their place; whether `key` has its own then.

        With `write` false: whether it would.
        """
        owner = await self._owners.of(content)
        if not owner or owner == key:
            return False
        if not write:
            return await self._is_ring(key, content)
        await self._set_aside(owner, content)
        await self.restore()
        return await self._sound(key)

    async def put(self, key: str, content: bytes, check: Callable[[bytes], str] = _sound) -> None:
        """Write what belongs under a key, unless that is there; what lies there of another's is kept.

        `check`: see needs.Need. Raises StoreError.
        """
        wrong = await off_loop(len(content), partial(contents.problem, key, content))
        assert not wrong, f"{key}: only what is whole is written: {wrong}"
        try:
            meta = await self._store.head(key)
            before = await self._store.get(key)
        except NotFound:
            reach("scrub/put")
            await self._written(key, content, "")
            return
        if not await off_loop(len(before), lambda: contents.problem(key, before) or check(before)):
            return
        owner = await self._owners.of(before)
        if owner and owner != key:
            await self._set_aside(owner, before)
        reach("scrub/put")
        await self._written(key, content, meta.etag)

    async def restore(self) -> int:
        """Use up all spares; returns how many objects got their bytes back."""
        count = 0
        for _ in range(ROUNDS_MAX):
            keys = [meta.key async for page in self._store.list(SPARE) for meta in page]
            if not keys:
                break
            for spare in keys:
                count += await self._used(spare)
        return count

    async def _written(self, key: str, content: bytes, etag: str) -> None:
        try:
            await self._store.put(key, [content], Replace(etag) if etag else CREATE)
        except Precondition:  # somebody else has just mended it
            return
        reach("scrub/written")

    async def _used(self, spare: str) -> bool:
        key = spare.removeprefix(SPARE)
        content = await self._store.get(spare)
        broken = await off_loop(len(content), partial(contents.problem, key, content))
        used = not broken and not await self._sound(key)
        if used:
            await self.put(key, content)
        reach("scrub/drop-spare")
        await self._store.delete([spare])
        return used

    async def _set_aside(self, owner: str, content: bytes) -> None:
        """Keep bytes that belong under `owner`, unless they are there, or nobody wants them."""
        if await self._sound(owner):
            return
        if not self._wanted(owner):
            return
        reach("scrub/spare")
        await self._store.put(SPARE + owner, [content])

    async def _sound(self, key: str) -> bool:
        try:
            content = await self._store.get(key)
        except NotFound:
            return False
        return not await off_loop(len(content), lambda: contents.problem(key, content))

    async def _is_ring(self, key: str, content: bytes) -> bool:
        """Whether following the bytes from owner to owner leads back to `key`."""
        at = content
        for _ in range(RING_MAX):
            owner = await self._owners.of(at)
            if owner == key:
                return True
            if not owner:
                return False
            try:
                at = await self._store.get(owner)
            except NotFound:
                return False
        return False
