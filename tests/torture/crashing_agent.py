"""An agent, or another command of floe's, that kills itself with SIGKILL at a step that a test has armed.

The armed step's name and a number are the content of a file that several agents look at; who first reaches
the step that many times takes the file away and dies, the others carry on. Run as `floe` is.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordination.steps import COPY_STEPS, MOVE_STEPS, RESTORE_STEPS, STEPS, install
from deploy.services.floe import FloeAgent
from iceberg.steps import STEPS as TABLE_STEPS
from iceberg.upsert.steps import STEPS as LATEST_STEPS

_OF_TABLES = (("table", TABLE_STEPS), ("latest", LATEST_STEPS))
ALL_STEPS = (*STEPS, *(f"{path}/{step}" for path, names in _OF_TABLES for step in names))
"""Of agents."""
_KNOWN = frozenset((*ALL_STEPS, *RESTORE_STEPS, *MOVE_STEPS, *COPY_STEPS))


class Armed:
    """The file that says where to die."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counted = ("", 0)  # what was armed, and how often its step was reached since

    def arm(self, step: str, times: int = 1) -> None:
        """The next agent that reaches `step` so many times dies there, before it does what comes next."""
        assert step in _KNOWN, step
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"{step} {times} {secrets.token_hex(4)}")
        draft.rename(self.path)

    def reached(self, step: str) -> None:
        """The hook: die when this is the armed step and nobody else has died of it."""
        assert step in _KNOWN, f"{step} is not registered"
        try:
            armed = self.path.read_text()
            if armed.partition(" ")[0] != step:
                return
            count = self._counted[1] + 1 if self._counted[0] == armed else 1
            self._counted = (armed, count)
            if count < int(armed.split(" ")[1]):
                return
            self.path.rename(self.path.with_suffix(f".{os.getpid()}"))
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingAgent(FloeAgent):
    """FloeAgent with the hook. `armed` must be set before the first start."""

    armed: Path

    def __init__(self, name: str, settings: Mapping[str, Any], directory: Path | None = None) -> None:
        super().__init__(name, settings, directory)
        self.root = Path(__file__).parents[2]

    def command(self) -> list[str]:
        """This file in place of `floe`."""
        return [
            sys.executable, "-m", "tests.torture.crashing_agent",
            str(self.armed), "serve", "--config", str(self.config_file),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """The tests' package is found from the project's root."""
        return {**super().environment(), "PYTHONPATH": str(self.root)}


def main() -> None:
    """Install the hook, then be an agent."""
    install(Armed(Path(sys.argv[1])).reached)
    sys.argv = ["floe", *sys.argv[2:]]
    from agent.cli import main as floe

    floe()


if __name__ == "__main__":
    main()
