"""Agents whose store takes no more of the log: test_restore_unarchived.py, and its control."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coordination.archive.backed import Backed
from objectstore.adapters.folder import FolderStore
from objectstore.naming import LOG, SNAPSHOTS
from objectstore.store import PLAIN, Buffer, Denied, PutMode
from tests.torture.changed_agent import ChangedAgent

REFUSED = "refused"
"""A file of this name beside the bucket: what lies below log/ and snapshots/ is not written."""
_put = FolderStore.put


class UnarchivedAgent(ChangedAgent):
    """An agent whose bucket has a rule against it."""


async def _refuses(self: Any, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
    root: Path = self._root
    if key.startswith((LOG, SNAPSHOTS)) and (root.parent / REFUSED).exists():
        raise Denied(f"{key}: a rule of the bucket")
    return await _put(self, key, parts, mode)


async def _at_once(self: Backed) -> str:
    """Nothing is waited for."""
    return ""


def main(*, waits: bool = True) -> None:
    """Give the bucket its rule, then be an agent."""
    FolderStore.put = _refuses  # type: ignore[method-assign]  # in this process
    if not waits:
        Backed.catches_up = _at_once  # type: ignore[method-assign]  # in this process
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
