"""What is made of files that are replaced while the agent runs: certificates, keys, users.

They are looked at by their times, sizes and inodes. What could not be used is tried again at each look, as
nothing of these need change when it can be: a right was missing, or the store behind a mount.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from agent.config.errors import ConfigError

_Stamp = tuple[tuple[int, int, int], ...]


class Renewed(ABC):
    """As it was made last in full; why newer files are not in force is in `problem`. See agent.net.renewal.

    Its maker calls `make` when all that this needs is there.
    """

    name: str
    """What it is, for the log."""

    def __init__(self, *paths: str) -> None:
        """An empty path is of no file."""
        self._paths = tuple(filter(None, paths))
        self._seen = self._stamp()
        self.problem = ""
        """Why what lies on the disk is not in force; empty when it is."""

    @abstractmethod
    def make(self) -> None:
        """Read the files and put them in force, all or none. Raises ConfigError."""

    def renew(self) -> bool:
        """Look whether the files changed, in a thread. True when what is in force, or `problem`, is new."""
        stamp = self._stamp()
        if stamp == self._seen and not self.problem:
            return False
        before = self.problem
        try:
            self.make()
            self.problem = ""
        except ConfigError as error:
            self.problem = str(error)
        changed = stamp != self._seen or self.problem != before
        self._seen = stamp
        return changed

    def _stamp(self) -> _Stamp:
        """What tells that a file was replaced; zeros for one that is not there."""
        stamps = []
        for path in self._paths:
            try:
                found = os.stat(path)
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)
