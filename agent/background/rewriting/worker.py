"""How merging and compaction talk to their helper processes: requests, bytes, and what went wrong.

A helper (coordination/helper.py) holds a session: pure code that answers one request at a time. What goes
wrong in it is told to the agent and the session goes on; only a helper that dies is started anew.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordination.helper import Helper, HelperDied, serve
from objectstore.batch import CorruptBatch

EXCHANGE_SECONDS_MAX = 300.0  # one exchange carries some MiB
NICENESS = 10  # rewriting can wait, whoever produces and fetches cannot


class Corrupt(Exception):
    """Stored bytes are not what was committed: evidence of damage behind our back."""


@dataclass(frozen=True, slots=True)
class Failed:
    """`corrupt`: the bytes are not what was committed; else a traceback of what was not expected."""

    text: str
    corrupt: bool


class Session(Protocol):
    """The helper's side, without I/O."""

    def answer(self, request: object, content: memoryview) -> tuple[object, list[memoryview]]:
        """The answer to a request, and the bytes that follow it."""
        ...


class Asking(Protocol):
    """A request and the bytes that belong to it, answered."""

    @property
    def pid(self) -> int | None:
        """The process that answers; None while there is none."""
        ...

    async def ask(self, message: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
        """The answer and its bytes. Raises HelperDied."""
        ...

    async def close(self) -> None:
        """End what answers. Idempotent."""
        ...


def helper(module: str) -> Asking:
    """A helper process, `python -m <module>`, which is started when first needed."""
    return Helper(module, EXCHANGE_SECONDS_MAX)


async def ask(asking: Asking, request: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
    """The session's answer and its bytes. Raises Corrupt and HelperDied."""
    answer, content = await asking.ask(request, parts)
    if isinstance(answer, Failed):
        raise Corrupt(answer.text) if answer.corrupt else HelperDied(answer.text)
    return answer, content


def answer_of(session: Session, request: object, content: memoryview) -> tuple[object, list[memoryview]]:
    """The session's answer; what goes wrong is told, and the session goes on."""
    try:
        return session.answer(request, content)
    except CorruptBatch as error:
        return Failed(str(error) or "corrupt batch", corrupt=True), []
    except Exception:  # the agent logs it and tries again later
        return Failed(traceback.format_exc(), corrupt=False), []


def serve_session(session: Session) -> None:
    """The helper process's main: serve until the agent closes the pipe or is gone."""
    os.nice(NICENESS)
    serve(lambda request, content: answer_of(session, request, content))
