"""`python -m tests.equipment.newer_agent` is `floe` of a later version: it knows one feature level more.

The level changes nothing of what apply does; what is tested is who may be where at which level.
`UpgradableAgent` runs the one or the other, as its attribute `newer` says when it starts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import agent.registering
from agent.cli import main
from coordination.state import cluster, features, thaw
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN
from deploy.services.floe import FloeAgent

NEXT_LEVEL = FEATURE_LEVEL_MAX + 1
ROOT = Path(__file__).parents[2]


class UpgradableAgent(FloeAgent):
    """An agent of this version, or after a restart with `newer` of the next."""

    newer = False

    def command(self) -> list[str]:
        """`floe serve`, of one of the two versions."""
        if not self.newer:
            return super().command()
        here = ["-m", "tests.equipment.newer_agent", "serve", "--config", str(self.config_file)]
        return [sys.executable, *here]

    def environment(self) -> dict[str, str]:
        """With the tree in Python's path, where this file is."""
        return {**super().environment(), "PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    for module in (agent.registering, cluster, thaw):
        assert vars(module)["FEATURE_LEVEL_MAX"] == FEATURE_LEVEL_MAX, f"{module} asks no more for the level"
        vars(module)["FEATURE_LEVEL_MAX"] = NEXT_LEVEL
    features.SUPPORTED[features.LEVEL] = features.Supported(FEATURE_LEVEL_MIN, NEXT_LEVEL)
    main()
