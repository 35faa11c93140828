"""An agent in which something is not as it is in production: the control of an experiment.

Who changes it is a module with a `main` of its own, run as `floe serve` is; nothing in production does that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.services.floe import FloeAgent


class ChangedAgent(FloeAgent):
    """`floe` is the module of the class."""

    def command(self) -> list[str]:
        """That module in place of `floe`."""
        return [sys.executable, "-m", type(self).__module__, "serve", "--config", str(self.config_file)]

    def environment(self) -> dict[str, str]:
        """The packages are found from the project's root."""
        return {**super().environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
