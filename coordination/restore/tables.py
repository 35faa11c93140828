"""How a restore has tables of a copied bucket moved: what knows their files lies above (iceberg/moving)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.message import Message

from coordination.restore.report import TableMoved
from coordination.state import State


@dataclass(slots=True)
class Moves:
    """Commands that name the tables where they are in the copy: valid for the state they were made of."""

    commands: list[Message] = field(default_factory=list)
    tables: list[TableMoved] = field(default_factory=list)


class Tables(Protocol):
    """What moves them."""

    async def moves(self, state: State, *, write: bool) -> Moves:
        """The commands, and what they lead to stored if `write`. Raises StoreError."""
