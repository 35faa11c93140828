"""Runs the drivers of the Node.js clients, tests/compat/node/."""

from __future__ import annotations

import json
import subprocess
import zlib
from pathlib import Path
from typing import Any

from deploy.setup.node import modules, node_command
from tests.compat.suite.broker import BASE_TIME

DRIVERS = Path(__file__).parents[1] / "node"
WAIT_S_MAX = 180
TOLD_MAX = 40_000  # characters of what a driver that failed had to say: the end of its client's log

Message = dict[str, Any]


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
    assert ran.returncode == 0, ran.stderr[-TOLD_MAX:]
    return json.loads(ran.stdout.splitlines()[-1])


def installed(package: str) -> str:
    """The version of a locked package."""
    return str(json.loads((modules() / package / "package.json").read_text())["version"])


def messages(count: int, partitions: int) -> list[Message]:
    """Records for the drivers, spread over the partitions by a sum of the key, each with a header."""
    keys = [f"key-{index}" for index in range(count)]
    return [
        {
            "key": key,
            "value": f"value-{index}",
            "partition": zlib.crc32(key.encode()) % partitions,
            "headers": {"index": str(index)},
            "timestamp": str(BASE_TIME + index),
        }
        for index, key in enumerate(keys)
    ]


def digest(read: list[Message]) -> int:
    """A sum of where each record was and what it held, however the partitions interleaved."""
    rows = [
        (each["partition"], each["offset"], each["key"], each["value"], each["headers"]["index"])
        for each in read
    ]
    return zlib.crc32(repr(sorted(rows)).encode())
