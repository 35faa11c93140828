"""How a command fails: one line on standard error and an exit status that says what kind it was."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses of `floe`. They never change meaning."""

    OK = 0
    FAILED = 1  # anything else; also: a check, an audit or a comparison that found something wrong
    USAGE = 2  # the command line itself
    CONFIG = 3  # a configuration that is refused
    UNREACHABLE = 4  # an agent, the log or the store does not answer
    REFUSED = 5  # the agent, the log or the store said no
    INTERRUPTED = 130  # Ctrl-C


EPILOG = (
    "Exit status: 0 fine · 1 failed or found something wrong · 2 wrong usage · 3 configuration refused · "
    "4 not reachable · 5 refused · 130 interrupted"
)


class Failure(Exception):
    """Ends the command with one line. The message names what, the value and the remedy."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


def unreachable(message: str) -> Failure:
    """Something that should answer does not."""
    return Failure(Status.UNREACHABLE, message)


def refused(message: str) -> Failure:
    """Something answered no."""
    return Failure(Status.REFUSED, message)


def usage(message: str) -> Failure:
    """The command line asks for something that makes no sense."""
    return Failure(Status.USAGE, message)


def told(error: Exception) -> Failure:
    """An error that is no Failure, as one. What it may be is imported only now."""
    if isinstance(error, Failure):
        return error
    from agent.config.errors import ConfigError
    from coordination.log import LogError
    from objectstore.store import StoreError

    if isinstance(error, ConfigError):
        return Failure(Status.CONFIG, str(error))
    unreached = isinstance(error, LogError | StoreError)
    return Failure(Status.UNREACHABLE if unreached else Status.FAILED, f"{type(error).__name__}: {error}")
