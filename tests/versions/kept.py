"""The code of earlier levels, and agents that run it.

Kept as an archive, so that a clone without its history has it too. It is the packages of one commit, as
`git archive` gives them (README.md); nobody edits it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from deploy.services.floe import FloeAgent
from deploy.setup.archives import unpack

HERE = Path(__file__).parent
WRITE = HERE / "write.py"
LEVELS = sorted(int(path.name.removeprefix("level-")) for path in HERE.glob("level-*"))
RUN_SECONDS_MAX = 240


def folder(level: int) -> Path:
    """What is kept of a level."""
    return HERE / f"level-{level}"


def unpacked(level: int, into: Path) -> Path:
    """A folder with the packages of a level's code."""
    unpack(folder(level) / "code.tar.xz", into)
    return into


def run(tree: Path, *arguments: object) -> dict[str, Any]:
    """What write.py says when the code in `tree` runs it. Raises CalledProcessError with its last words."""
    command = [sys.executable, str(WRITE), *map(str, arguments)]
    environment = {"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["code"] == str(tree), f"{told['code']} ran, not {tree}"
    return told


class VersionedAgent(FloeAgent):
    """An agent of this version; of an earlier one from its next start on, while `tree` says where that is."""

    tree: Path | None = None

    def environment(self) -> dict[str, str]:
        """The version's packages come first."""
        tree = self.tree or HERE.parents[1]
        return {**super().environment(), "PYTHONPATH": str(tree)}
