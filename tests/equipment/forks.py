"""Agents of tests as forks of a Python that has imported them: `launching.use(start)` (tests/conftest.py).

What is forked is a process of its own, with its own folder, environment, log, signals and death; only the
imports were made before. Of each kind of Python (by what its environment tells the interpreter) there are
two, in turn, each with a hash seed of its own: agents that agree only because their sets are ordered alike
would not agree. Whatever else is started as ever.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from deploy.services import guardian, launching

SERVER = Path(__file__).with_name("fork_server.py")
SEEDS = 2  # Pythons of each kind
FORKED = ["agent", "tests.torture.crashing_agent"]
"""Modules that may be: one that changes code before its import, as an agent without a fence, is too late."""
KINDS_MAX = 4  # of environments; one more is started as ever, as each Python keeps 100 MiB


class _Server:
    """One Python that forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                env=environment, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        guardian.guard(self._process.pid)
        self._channel = ours
        self._lines = ours.makefile("rw")

    def ask(self, **request: Any) -> int:
        """One request, its answer."""
        with self._lock:
            self._lines.write(f"{json.dumps(request)}\n")
            self._lines.flush()
            answer = self._lines.readline()
        if not answer:
            raise RuntimeError(f"{SERVER.name} has ended, with status {self._process.wait()}")
        return int(answer)

    def end(self) -> None:
        """Ends with its socket; what it has forked goes on."""
        self._lines.close()
        self._channel.close()
        self._process.wait()
        guardian.release(self._process.pid)


class Forked:
    """As subprocess.Popen: a process whose parent is the server."""

    def __init__(self, server: _Server, pid: int) -> None:
        self._server = server
        self._handle = os.pidfd_open(
            pid
        )  # the server reaps when asked to: until then the number is this process
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative when a signal ended it; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same once it has ended. Raises subprocess.TimeoutExpired."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        """Nothing when it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, sig)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            if ended.poll(None if seconds is None else seconds * 1000):
                self.returncode = self._server.ask(reap=self.pid)
                os.close(self._handle)
        return self.returncode


_servers: dict[tuple[int, frozenset[tuple[str, str]]], _Server] = {}
_turns = count()
_lock = threading.Lock()


def start(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes] | Forked:
    """A launching.Launcher."""
    python, flag, module, *words = [*command, "", ""][: max(3, len(command))]
    forked = (python, flag) == (sys.executable, "-m") and module in FORKED
    server = _server(env) if forked else None
    if server is None:
        return launching.spawned(command, cwd=cwd, env=env, log=log)
    log.touch()  # as when it is opened here: whoever asks before the process has come so far finds it
    pid = server.ask(module=module, words=words, folder=str(cwd), environment=dict(env), log=str(log))
    return Forked(server, pid)


def _server(environment: Mapping[str, str]) -> _Server | None:
    """The one whose turn it is among those of the environment's kind. None: there are too many kinds."""
    kind = frozenset((name, value) for name, value in environment.items() if name.startswith("PYTHON"))
    with _lock:
        key = (next(_turns) % SEEDS, kind)
        if key not in _servers:
            if len({each for _, each in _servers} | {kind}) > KINDS_MAX:
                return None
            _servers[key] = _Server(environment)
        return _servers[key]


def end() -> None:
    """End the servers, when no more is to be forked or reaped."""
    with _lock:
        for server in _servers.values():
            server.end()
        _servers.clear()
