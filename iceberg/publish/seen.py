"""What a publisher knows of another catalog: which entries it has, which are late, which wait. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg.folders import folder_of
from iceberg.publish.other import Key
from iceberg.publish.plan import Plan, Published

LOOKS_AGAIN = 200
"""Entries whose location a list does not tell, that are looked at again after each list."""


class Seen:
    """Its size is that of the catalog's namespaces. Times: the event loop's, seconds."""

    def __init__(self, retry_s: float, retry_s_max: float) -> None:
        self.entries: dict[Key, str | None] = {}
        """Location; empty: not Floe's; None: not known."""
        self.folders: set[str] = set()
        """Of tables that have an entry."""
        self.late: dict[Key, float] = {}
        """Since when an entry is not what it should be."""
        self.wanted: dict[Key, Published] = {}
        """As of the last comparison."""
        self._known: set[str] = set()
        self._waits: dict[Key, tuple[int, float]] = {}
        self._again: list[Key] = []
        self._retry_s, self._retry_s_max = retry_s, retry_s_max

    @property
    def namespaces(self) -> set[str]:
        """Namespaces that have entries."""
        return {key[0] for key in self.entries}

    def forget(self) -> None:
        """Know nothing any more."""
        self.__init__(self._retry_s, self._retry_s_max)  # type: ignore[misc]  # as new

    def is_known(self, folder: str) -> bool:
        """Whether a topic's table lies there, by the state."""
        return folder in self._known

    def compare(self, plan: Plan, now_s: float) -> None:
        """Note which entries differ, and which do no more."""
        self._known = set(plan.by_folder)
        self.folders &= self._known
        self.wanted, _ = plan.entries(self.folders)
        late = {key for key, each in self.wanted.items() if self.entries.get(key) != each.location}
        self.late = {key: self.late.get(key, now_s) for key in late}
        for key in [key for key in self._waits if key not in self.wanted and key not in self.entries]:
            del self._waits[key]

    def listed(self, namespace: str, found: Mapping[Key, str | None]) -> None:
        """What a list of the namespace says: who is not in it is gone. Some of those it knows little of are
        looked at again, so that all are in time.
        """
        before = {key: location for key, location in self.entries.items() if key[0] == namespace}
        for key in before:
            if key not in found:
                self.entries.pop(key)
        for key, location in found.items():
            self.looked(key, location if location is not None else before.get(key), known=True)
        if not self._again:
            self._again = [key for key, location in found.items() if location is None]
        for key in self._again[:LOOKS_AGAIN]:
            self.unknown(key)
        del self._again[:LOOKS_AGAIN]

    def looked(self, key: Key, location: str | None, *, known: bool = False) -> None:
        """The entry is there, or not (None), unless it is `known` to be there."""
        if location is None and not known:
            self.entries.pop(key, None)
            return
        self.entries[key] = location
        if location:
            self.folders.add(folder_of(location))

    def moved(self, key: Key, location: str) -> None:
        """The entry points there now."""
        self.looked(key, location)

    def unknown(self, key: Key) -> None:
        """What became of the entry is not known."""
        self.entries[key] = None

    def waits(self, key: Key, now_s: float) -> bool:
        """Whether the entry failed a short time ago."""
        return key in self._waits and now_s < self._waits[key][1]

    def failed(self, key: Key, now_s: float) -> None:
        """Leave the entry alone for a while, longer each time."""
        count = self._waits.get(key, (0, 0.0))[0] + 1
        waits = min(self._retry_s_max, self._retry_s * 2 ** min(count - 1, 16))
        self._waits[key] = (count, now_s + waits)

    def worked(self, key: Key) -> None:
        """The entry is as it should be."""
        self._waits.pop(key, None)
