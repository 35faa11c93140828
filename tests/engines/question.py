"""A question to an engine, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

AT = datetime(2026, 2, 28, 23, 59, 59, 123_456, UTC)


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of one table that an engine reads, in order of partition and offset, and what they must be.

    `snapshot` is an id, or None for now; `where` a column's path and the least value that it may have.
    `expected` has for each row the values at `paths`.
    """

    name: str
    what: str
    table: str
    paths: tuple[str, ...]
    expected: list[list[Any]]
    snapshot: int | None = None
    where: tuple[str, int] | None = None

    def asked(self) -> dict[str, Any]:
        """The question without its answer."""
        return {
            "name": self.name,
            "table": self.table,
            "paths": self.paths,
            "snapshot": self.snapshot,
            "where": self.where,
        }
