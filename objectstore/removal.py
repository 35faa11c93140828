"""Deletes many objects of which the store may keep some: under a hold, by a policy, for no reason given.

One of these must not keep the others: where a request for many fails, each is asked for alone. What was kept
before is asked for alone from then on, a few at a time, and does not tell that the store is away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from objectstore.store import Denied, StoreError

DELETE_KEYS_MAX = 1000  # of one request
FAILING_MAX = 1000  # names that are remembered as failing; the oldest are forgotten
IN_A_ROW_MAX = 3  # that the store begins to fail for, one after another: it is away
AGAIN_MAX = 10  # that were kept before and are again, until no more of them are asked for in one call

Remove = Callable[[Sequence[str]], Awaitable[None]]
"""Deletes objects by key, as a store's `delete` does."""
Failure = Callable[[str], None]
"""Is told of an object that stays, and why."""


class Failing:
    """What the store failed for when it was last asked, by name, and why; the one asked longest ago first.

    Whether it is away is told as coordination.jobs does by the items of a job.
    """

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._row = 0

    def __contains__(self, name: str) -> bool:
        return name in self._why

    def among(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Those of these names that failed, and why."""
        wanted = set(names) & self._why.keys()
        return [(name, why) for name, why in self._why.items() if name in wanted] if wanted else []

    def failed(self, name: str, error: Exception) -> bool:
        """Note a failure; whether the store is away."""
        self._row += self._why.pop(name, None) is None
        while len(self._why) >= FAILING_MAX:
            del self._why[next(iter(self._why))]
        self._why[name] = str(error)
        away = self._row >= IN_A_ROW_MAX
        self._row = 0 if away else self._row
        return away

    def worked(self, name: str) -> None:
        """Note that it did not fail."""
        self._row = 0
        self._why.pop(name, None)


class Removal:
    """Deletes objects with `remove`, and remembers which ones stayed."""

    def __init__(self, remove: Remove) -> None:
        self._remove = remove
        self.failing = Failing()

    async def __call__(self, keys: Sequence[str], failure: Failure) -> set[str]:
        """Delete objects; which are gone, or were never there. Raises StoreError when the store is away."""
        gone: set[str] = set()
        before = self.failing.among(keys)
        kept = {key for key, _ in before}
        new = [key for key in keys if key not in kept]
        for start in range(0, len(new), DELETE_KEYS_MAX):
            gone |= await self._together(new[start : start + DELETE_KEYS_MAX], failure)
        left = AGAIN_MAX
        for key, why in before:
            if left == 0:
                failure(f"{key}: {why}")
            elif await self._alone(key, failure):
                gone.add(key)
            else:
                left -= 1
        return gone

    async def _together(self, keys: Sequence[str], failure: Failure) -> set[str]:
        try:
            await self._remove(keys)
        except StoreError:
            # Of one of them, or of all: some may be gone, and deleting these again is harmless.
            return {key for key in keys if await self._alone(key, failure)}
        return set(keys)

    async def _alone(self, key: str, failure: Failure) -> bool:
        try:
            await self._remove([key])
        except StoreError as error:
            failure(f"{key}: {error}")
            if self.failing.failed(key, error):
                raise
            return False
        self.failing.worked(key)
        return True


def require_none(kept: Sequence[str]) -> None:
    """Raises Denied where the store kept objects, for who notes it as a failure."""
    if kept:
        raise Denied(f"the store keeps {len(kept)} objects that nothing needs; one is {kept[0]}")
