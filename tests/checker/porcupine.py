"""Whether each partition of a history is one log, asked of porcupine (in Go, by Anish Athalye).

The program is deploy/tools/porcupine; it reads the JSON lines of operations.py itself and shares no code with
the checks here. What it can see, and what not, says README.md.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.services.build import tool_path
from tests.checker.operations import History, dump

REFUSED = "Illegal"
SECONDS_MAX = 600


def linearizable(files: Sequence[Path]) -> dict[Path, dict[str, str]]:
    """By file, by key: "Ok", "Illegal", or "Unknown" where a minute was not enough."""
    if not files:
        return {}
    command = [str(tool_path("porcupine")), *map(str, files)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=SECONDS_MAX)
    told: dict[str, dict[str, dict[str, str]]] = json.loads(done.stdout)
    return {path: {key: verdict["result"] for key, verdict in told[str(path)].items()} for path in files}


def refused(histories: Mapping[str, History], folder: Path) -> dict[str, list[str]]:
    """By run: the keys that are no one log, or of which porcupine does not know.

    The times of a history have to be of one clock. What porcupine read is left in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {run: folder / f"{run.replace(' ', '-').replace('/', '-')}.jsonl" for run in histories}
    for run, history in histories.items():
        files[run].write_text("".join(f"{line}\n" for line in dump(history)))
    told = linearizable(list(files.values()))
    return {
        run: sorted(key for key, result in told[path].items() if result != "Ok")
        for run, path in files.items()
    }
