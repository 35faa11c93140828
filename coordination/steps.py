"""Named steps of work that must survive a death between any two of them.

Whoever does such work says before each step that it comes next. Production does nothing with that; a test
installs a hook that ends the process there (tests/torture/crashing_agent.py). The steps of a table's commit
have names of their own in iceberg/steps.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

STEPS = (
    "flush/put",
    "flush/submit",
    "append/send",
    "append/answered",
    "change/begin",
    "change/part",
    "change/end",
    "change/ended",
    "flush/decided",
    "flush/answered",
    "snapshot/freeze",
    "snapshot/encode",
    "snapshot/put",
    "snapshot/record",
    "snapshot/delete-old",
    "archive/put",
    "archive/written",
    "archive/delete-old",
    "trim/agree",
    "trim/log",
    "trim/entries",
    "trim/compact",
    "trim/done",
    "compact/claim",
    "compact/learn",
    "compact/clean",
    "compact/put-segment",
    "compact/put-manifest",
    "compact/swap",
    "compact/swapped",
    "collect/list",
    "collect/delete",
    "collect/deleted",
    "collect/forget",
    "collect/forgotten",
    "collect/delete-merged",
    "collect/forget-merged",
    "merge/claim",
    "merge/read",
    "merge/put-segment",
    "merge/put-manifest",
    "merge/swap",
    "merge/swapped",
    "scrub/position",
    "scrub/spare",
    "scrub/put",
    "scrub/written",
    "scrub/drop-spare",
)
RESTORE_STEPS = (
    "restore/begin",
    "restore/bind",
    "restore/bound",
    "restore/put-tables",
    "restore/put-copies",
    "restore/put-snapshot",
    "restore/finish",
    "restore/finished",
)
"""Of the command that begins a new log (coordination/restore/run.py); no agent reaches them."""

MOVE_STEPS = (
    "move/table",
    "move/put-deletes",
    "move/put-manifest",
    "move/put-list",
    "move/put-segment",
    "move/put-metadata",
    "move/moved",
)
"""Of the same command where the bucket is a copy: each table is told its URL (iceberg/moving/table.py)."""

COPY_STEPS = (
    "copy/claim",
    "copy/look",
    "copy/data",
    "copy/damaged",
    "copy/publish",
    "copy/put",
    "copy/mark",
    "copy/clean",
)
"""Of the command that copies a cluster (coordination/copying/run.py); no agent reaches them."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Step: TypeAlias = Callable[_P, Coroutine[Any, Any, _R]]
_hooks: list[Callable[[str], None]] = []


def reach(step: str) -> None:
    """`step` comes next."""
    for hook in _hooks:
        hook(step)


def steps(before: str, after: str = "") -> Callable[[_Step[_P, _R]], _Step[_P, _R]]:
    """For a function that is a step: `before` comes next when it is called, `after` once it has returned."""

    def decorate(function: _Step[_P, _R]) -> _Step[_P, _R]:
        @wraps(function)
        async def stepped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            reach(before)
            result = await function(*args, **kwargs)
            if after:
                reach(after)
            return result

        return stepped

    return decorate


def install(hook: Callable[[str], None]) -> None:
    """Call `hook` with every step's name from now on, for tests."""
    _hooks.append(hook)
