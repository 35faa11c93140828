"""What another catalog is asked to do: one entry per table, which points to metadata that Floe has written.

Its methods block, and are called in threads. None of them writes a file or removes one: an entry is a name
and a location. Each raises CatalogFailed for one table, CatalogAway where no table would fare better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Key = tuple[str, str]
"""(namespace, levels joined by dots; name), as the other catalog has it."""


PAGES_S_MAX = 600.0
"""What a call may take of a client that bounds each of its requests by itself: a list may have many pages."""


class CatalogFailed(Exception):
    """What was asked for one table was not done, or it is not known whether it was."""


class CatalogAway(CatalogFailed):
    """The catalog as a whole: not reached, overloaded, or it does not know these credentials."""


class EntryUnanswered(CatalogFailed):
    """The catalog is there, and denies or breaks off this: for one table, or one after another for all."""


class EntryChanged(CatalogFailed):
    """Somebody else changed the entry meanwhile. Nothing was done."""


class CannotReplace(CatalogFailed):
    """The catalog takes no new location for an entry that is there. Nothing was done."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalog has under a name. `location`: of metadata, empty for what is no Iceberg table.

    `version`: by which the catalog knows that it is still this one; empty where the location says it.
    """

    location: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where an entry shall point. `metadata`: what is there, for catalogs that show it (`shows_metadata`)."""

    location: str
    metadata: Mapping[str, Any]


class OtherCatalog(Protocol):
    """One configured catalog."""

    shows_metadata: bool
    """It keeps columns of its own, which people see: `Pointer.metadata` is needed."""
    call_s_max: float
    """Within so many seconds a method returns, unless the catalog's client has no bound of its own for it."""

    def spelled(self, key: Key) -> Key:
        """The name as the catalog will give it back."""
        ...

    def names(self, namespace: str) -> Mapping[str, str | None]:
        """Names in a namespace, with metadata locations where the list tells them (else None).

        Empty where there is no such namespace.
        """
        ...

    def look(self, key: Key) -> Entry | None:
        """The entry, as it is now."""
        ...

    def create(self, key: Key, pointer: Pointer) -> None:
        """Make an entry, and its namespace. Raises EntryChanged where there is one."""
        ...

    def replace(self, key: Key, entry: Entry, pointer: Pointer) -> None:
        """Point `entry` to another location. Raises EntryChanged, and CannotReplace."""
        ...

    def drop(self, key: Key, entry: Entry) -> None:
        """Remove the entry, no file. One that is gone already is none to complain of."""
        ...

    def close(self) -> None:
        """Let connections go. Idempotent."""
        ...
