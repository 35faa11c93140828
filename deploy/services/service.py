"""What the local servers have in common: one child process, its files, its faults."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from deploy.services import guardian
from deploy.services.launching import Process, launch
from deploy.services.patience import Patience

READY_SECONDS_MAX = 180
"""How long a server that starts may use no further second of the processor, and not answer."""
START_CPU_SECONDS_MAX = 30
"""What of the processor a start may take: a server that has had more is waited for no longer than that."""
STOP_SECONDS_MAX = 10


class ServiceError(Exception):
    """A local server did not start; the message holds the end of its log."""


class Service(ABC):
    """A server as a child process: `with Etcd() as etcd: …`. Ports and data stay over restarts.

    Calls block (start waits until the server answers); from a coroutine use asyncio.to_thread.
    The process is killed when its parent ends, even by SIGKILL.
    """

    ready_seconds_max = READY_SECONDS_MAX
    name: str

    def __init__(self, directory: Path | None = None) -> None:
        """Keep data and log under `directory`; without one, in a temporary folder removed by stop()."""
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"floe-{self.name}-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log_path = self.directory / f"{self.name}.log"
        self._process: Process | None = None
        self._paused = False

    @abstractmethod
    def command(self) -> list[str]:
        """The command line."""

    def environment(self) -> dict[str, str]:
        """The whole environment of the process: nothing of ours leaks in."""
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "TMPDIR": tempfile.gettempdir()}

    @abstractmethod
    def ready(self) -> bool:
        """Whether the server answers."""

    @property
    def pid(self) -> int:
        """The running process. Raises ServiceError when there is none."""
        if self._process is None:
            raise ServiceError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def ended_by_itself(self) -> int | None:
        """The exit status of a process that nobody here stopped; None while it runs and after stop()."""
        return self._process.poll() if self._process is not None else None

    @property
    def paused(self) -> bool:
        """Whether the process is stopped by pause()."""
        return self._paused

    def start(self) -> Self:
        """Start and wait until ready. Raises ServiceError."""
        self._process = launch(self.command(), cwd=self.directory, env=self.environment(), log=self.log_path)
        guardian.guard(self._process.pid)
        patience = Patience(self.ready_seconds_max)
        while not self.ready():
            exited = self._process.poll()
            if exited is not None or patience.over(
                min(cpu_seconds(self._process.pid), START_CPU_SECONDS_MAX)
            ):
                self.kill()
                waited = f"is not ready and has not got on for {self.ready_seconds_max} s"
                why = waited if exited is None else f"exited with status {exited}"
                raise ServiceError(f"{self.name} {why}; the end of its log:\n{self.log_tail()}")
            time.sleep(0.02)
        return self

    def log_tail(self, lines: int = 20) -> str:
        """The last lines the server wrote."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """SIGKILL and reap. Data and ports stay for restart()."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM and wait for a graceful end. Data and ports stay for start()."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, once this has returned."""
        if self._paused:
            return
        process = self._process_now()
        process.send_signal(signal.SIGSTOP)
        while not _stands_still(process.pid):  # the last of its threads may answer a request until then
            time.sleep(0.001)
        self._paused = True

    def resume(self) -> None:
        """SIGCONT."""
        self._process_now().send_signal(signal.SIGCONT)
        self._paused = False

    def restart(self) -> Self:
        """Kill if running, then start again with the same data on the same ports."""
        self.kill()
        return self.start()

    def stop(self) -> None:
        """End the process (SIGTERM, then SIGKILL) and remove a temporary folder. Idempotent."""
        self._end(signal.SIGKILL if self._paused else signal.SIGTERM)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _process_now(self) -> Process:
        if self._process is None:
            raise ServiceError(f"{self.name} is not running")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process, self._process, self._paused = self._process, None, False
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        guardian.release(process.pid)


def _stands_still(pid: int) -> bool:
    """Whether every thread of a process is stopped, or it has ended."""
    try:
        threads = [
            (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{pid}").exists()  # else only a thread has ended meanwhile
    return all(state in "TtZX" for state in threads)


def cpu_seconds(pid: int) -> int:
    """Whole seconds of the processor that a process has had, user and system; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of `url` is answered with 2xx."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=context) as response:
            return 200 <= int(response.status) < 300
    except (urllib.error.URLError, OSError):
        return False
