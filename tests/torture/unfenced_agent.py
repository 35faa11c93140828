"""An agent without the connection fence of transactions v1: what the experiment of late ends must find.

Run as `floe serve` is; nothing in production can switch the fence off.
"""

from __future__ import annotations

import sys

from coordination.state import fence
from tests.torture.late_ends import Agent


class UnfencedAgent(Agent):
    """An agent that takes every request for one of the transaction that is open, in the order of arrival."""

    def command(self) -> list[str]:
        """This file in place of `floe`."""
        return [
            sys.executable,
            "-m",
            "tests.torture.unfenced_agent",
            "serve",
            "--config",
            str(self.config_file),
        ]


def main() -> None:
    """Take the fence away, then be an agent."""
    fence.refusal = lambda transaction, fence, at: None
    fence.positions_refusal = lambda transaction, group, fence, at: None
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
