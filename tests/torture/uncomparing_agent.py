"""An agent that does not compare its state with others': the control of test_divergent_member.py."""

from __future__ import annotations

from coordination.replica.comparing import Comparison
from tests.torture.changed_agent import ChangedAgent


class UncomparingAgent(ChangedAgent):
    """An agent that believes what it reads."""


def main() -> None:
    """Take the comparison away, then be an agent."""
    Comparison.heard = lambda self, applied, state: None  # type: ignore[method-assign]  # in this process
    Comparison.others = lambda self, state: []  # type: ignore[method-assign]  # likewise
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
