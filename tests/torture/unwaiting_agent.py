"""An agent that deletes what a restore would need: the control of test_restore_unarchived.py."""

from __future__ import annotations

from tests.torture.changed_agent import ChangedAgent
from tests.torture.unarchived_agent import main


class UnwaitingAgent(ChangedAgent):
    """An agent whose bucket has a rule against it, and whose collection waits for no archive."""


if __name__ == "__main__":
    main(waits=False)
