"""An agent that begins all requests that come in one read at once: the control of test_flood.py."""

from __future__ import annotations

from tests.torture.changed_agent import ChangedAgent

ENDLESS = 1 << 30


class UnpacedAgent(ChangedAgent):
    """An agent whose requests begin in no turns."""


def main() -> None:
    """Take the turns away, then be an agent."""
    from agent.kafka.produce import telling
    from agent.net import pacing

    pacing.BEGUN_MAX = ENDLESS  # type: ignore[misc]  # in this process
    pacing.Pacing._full = lambda self, line: False  # type: ignore[method-assign]  # likewise
    telling.TOLD_MAX = ENDLESS  # type: ignore[misc]  # likewise
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
