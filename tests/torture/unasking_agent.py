"""An agent that archives what one copy of the log has: the control of test_restore_other_disk.py."""

from __future__ import annotations

from typing import Any

from coordination.archive.keeper import LogArchive
from tests.torture.changed_agent import ChangedAgent


class UnaskingAgent(ChangedAgent):
    """An agent that takes a member's word for what is older than its own state."""


async def _believed(self: LogArchive, after: int, through: int, entries: list[Any]) -> None:
    """Nobody is asked."""


def main() -> None:
    """Take the question away, then be an agent."""
    LogArchive._confirm_before = _believed  # type: ignore[method-assign]  # in this process
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
