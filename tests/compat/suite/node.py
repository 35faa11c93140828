"""Runs the drivers of the Node.js clients, tests/compat/node/."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from deploy.setup.node import modules, node_command

DRIVERS = Path(__file__).parents[1] / "node"
WAIT_S_MAX = 180


def drive(driver: str, action: str, bootstrap: str, **options: object) -> Any:
    """What the action gave, as the driver printed it. An AssertionError holds what it complained of."""
    ran = subprocess.run(
        [node_command(), f"{driver}.cjs", action, json.dumps({"bootstrap": bootstrap, **options})],
        cwd=DRIVERS,
        env={"NODE_PATH": str(modules())},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S_MAX,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def installed(package: str) -> str:
    """The version of a locked package."""
    return str(json.loads((modules() / package / "package.json").read_text())["version"])
