"""TCP ports for local servers, so that processes that work side by side never give out the same one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from deploy.services.service import ServiceError

# Below the kernel's ephemeral range (from 32768): no outgoing connection can take a stopped server's port.
PORTS = range(12_000, 32_000)
PORTS_STEP = 200  # that a process claims at once


class Ports:
    """Ports that this process gives out. A port that was only probed could be taken by another process before
    the server that it is for listens, so whole blocks are claimed by locks, which the kernel lets go of when
    the process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._left: list[int] = []

    def free(self) -> int:
        """One that nobody listens on, on 127.0.0.1, not given out before. Raises ServiceError."""
        if self._process != os.getpid():  # a forked child has its parent's locks, not its ports
            self._process = os.getpid()
            self._left.clear()
        while True:
            if not self._left:
                self._left = self._claim()
            port = self._left.pop()
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                return port

    def _claim(self) -> list[int]:
        """Ports in a random order that no other process gives out while this one lives."""
        self._folder.mkdir(exist_ok=True)
        for first in random.sample(PORTS[::PORTS_STEP], len(PORTS) // PORTS_STEP):
            lock = os.open(self._folder / str(first), os.O_CREAT | os.O_RDWR)  # stays open
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return random.sample(range(first, first + PORTS_STEP), PORTS_STEP)
        raise ServiceError(f"processes that live have all of {PORTS}: see the locks in {self._folder}")


_ports = Ports(Path(tempfile.gettempdir()) / f"floe-ports-{os.getuid()}")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on and no process has been given."""
    return _ports.free()
