"""How a local server's process comes to be: a command is run, unless the tests know a faster way."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Process(Protocol):
    """What is used of subprocess.Popen."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Launcher(Protocol):
    """Starts `command` in folder `cwd`, in a session of its own; what it says goes to the end of `log`."""

    def __call__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path
    ) -> Process: ...


def spawned(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """A Launcher: the command as a child of this process."""
    with open(log, "ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            cwd=cwd, env=env, start_new_session=True,
        )  # fmt: skip


_launchers: list[Launcher] = [spawned]  # the last one counts


def use(launcher: Launcher) -> None:
    """From now on this one starts everything (tests/equipment/forks.py forks agents)."""
    _launchers.append(launcher)


def launch(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> Process:
    """Start a server's process."""
    return _launchers[-1](command, cwd=cwd, env=env, log=log)
