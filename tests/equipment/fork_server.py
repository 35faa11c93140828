"""A Python that has imported the agent and forks whoever is to be one: the imports take 1.7 s of CPU.

Run by tests/equipment/forks.py, by its path: `fork_server.py FD`. Requests are lines of JSON on that socket:
`{"module": …, "words": […], "folder": …, "environment": {…}, "log": …}` is answered with the new process's
number, `{"reap": number}`, once that process has ended, with its exit status.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

IMPORTED = ("agent.cli.app", "agent.cli.serving", "agent.app")
"""What every agent imports. Code of an earlier version may have it elsewhere, and imports more itself."""
INTERRUPTED = signal.getsignal(signal.SIGINT)
"""What Python does with SIGINT by itself: nothing where who started it has it ignored, as `command &` has."""


def main() -> dict[str, Any] | None:
    """Serve until the socket closes: None; in a forked process: what it is to be."""
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of what is shared
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rw") as lines:
        for line in lines:
            asked = json.loads(line)
            if "reap" in asked:
                _, status = os.waitpid(asked["reap"], 0)
                answer = os.waitstatus_to_exitcode(status)
            elif not (answer := os.fork()):
                return dict(asked)
            lines.write(f"{answer}\n")
            lines.flush()
    return None


def become(asked: dict[str, Any]) -> None:
    """Be `python -m <module> <words>`, as if started with that folder, environment and log."""
    os.setsid()
    signal.signal(signal.SIGINT, INTERRUPTED)
    os.chdir(asked["folder"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[0] = asked["folder"]
    sys.argv = ["", *asked["words"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if (mine := main()) is not None:
        become(mine)
