"""Ends guarded processes when this one is gone, even by SIGKILL.

One small helper process per Python process reads a pipe that only we hold open; when the pipe closes
it kills what is still guarded. PR_SET_PDEATHSIG would not do: it fires when the *thread* that forked
ends, and services are started from worker threads too.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading

_PROGRAM = """
import os, signal, sys
for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(ignored, signal.SIG_IGN)

def born(pid):  # in ticks since the machine started; a number may belong to another process later on
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""

guarded = {}
for line in sys.stdin:
    pid = int(line[1:])
    if line[0] == "+":
        guarded[pid] = born(pid)
    else:
        guarded.pop(pid, None)
for pid, at in guarded.items():
    if born(pid) == at:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
"""


class _Guardian:
    """The helper process, started with the first guarded one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[str] | None = None

    def tell(self, line: str) -> None:
        """Start the helper if need be and write it a line."""
        with self._lock:
            if self._helper is None:
                self._helper = subprocess.Popen(
                    [sys.executable, "-S", "-E", "-c", _PROGRAM],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(self._finish)
            assert self._helper.stdin is not None
            self._helper.stdin.write(line)
            self._helper.stdin.flush()

    def _finish(self) -> None:
        if self._helper is not None and self._helper.stdin is not None:
            self._helper.stdin.close()
            self._helper.wait()


_guardian = _Guardian()


def guard(pid: int) -> None:
    """Kill `pid` when this process ends, however it ends."""
    _guardian.tell(f"+{pid}\n")


def release(pid: int) -> None:
    """`pid` has been reaped: its number may belong to someone else from now on."""
    _guardian.tell(f"-{pid}\n")
