"""How a command fails: one line on standard error and an exit status that says what kind it was."""

from __future__ import annotations

from collections.abc import Sequence
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


PROBLEMS_TOLD_MAX = 20
"""Of one command that failed in many places, each for its own reason."""


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


def together(problems: Sequence[Failure]) -> Failure:
    """What came of several things of which each could fail by itself, as one; some of many are named."""
    more = len(problems) - PROBLEMS_TOLD_MAX
    told = [*map(str, problems[:PROBLEMS_TOLD_MAX]), *([f"and {more} more"] if more > 0 else ())]
    return Failure(problems[0].status, "; ".join(told))


def after(done: Sequence[str], failure: Failure) -> Failure:
    """The same, and what was done before it: that stays."""
    if not done:
        return failure
    return Failure(failure.status, f"{failure}; done before that, and stays so: {', '.join(done)}")


def told(error: Exception) -> Failure:
    """An error that is no Failure, as one. What it may be is imported only now."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, ExceptionGroup):  # of tasks side by side: what each says, once
        problems = {str(each): each for each in map(told, error.exceptions)}
        return together([*problems.values()])
    from agent.config.errors import ConfigError
    from coordination.log import LogError
    from objectstore.store import StoreError

    if isinstance(error, ConfigError):
        return Failure(Status.CONFIG, str(error))
    unreached = isinstance(error, LogError | StoreError)
    return Failure(Status.UNREACHABLE if unreached else Status.FAILED, f"{type(error).__name__}: {error}")
