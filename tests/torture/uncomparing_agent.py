"""An agent that does not compare its state with others': the control of test_divergent_member.py.

Run as `floe serve` is; nothing in production can switch the comparison off.
"""

from __future__ import annotations

import sys
from pathlib import Path

from coordination.replica.comparing import Comparison
from deploy.services.floe import FloeAgent


class UncomparingAgent(FloeAgent):
    """An agent that believes what it reads."""

    def command(self) -> list[str]:
        """This file in place of `floe`."""
        module = "tests.torture.uncomparing_agent"
        return [sys.executable, "-m", module, "serve", "--config", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """The packages are found from the project's root."""
        return {**super().environment(), "PYTHONPATH": str(Path(__file__).parents[2])}


def main() -> None:
    """Take the comparison away, then be an agent."""
    Comparison.heard = lambda self, applied, state: None  # type: ignore[method-assign]  # in this process
    Comparison.others = lambda self, state: []  # type: ignore[method-assign]  # likewise
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
