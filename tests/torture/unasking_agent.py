"""An agent that archives what it reads from one copy of the log: the control of test_restore_other_disk.py.

Run as `floe serve` is; nothing in production can switch the question off.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from coordination.archive.keeper import LogArchive
from deploy.services.floe import FloeAgent


class UnaskingAgent(FloeAgent):
    """An agent that takes a member's word for what is older than its own state."""

    def command(self) -> list[str]:
        """This file in place of `floe`."""
        module = "tests.torture.unasking_agent"
        return [sys.executable, "-m", module, "serve", "--config", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """The packages are found from the project's root."""
        return {**super().environment(), "PYTHONPATH": str(Path(__file__).parents[2])}


async def _believed(self: LogArchive, after: int, through: int, entries: list[Any]) -> None:
    """Nobody is asked."""


def main() -> None:
    """Take the question away, then be an agent."""
    LogArchive._confirm_before = _believed  # type: ignore[method-assign]  # in this process
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
