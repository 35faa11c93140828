"""Named steps of work that must survive a death between any two of them.

Whoever does such work says before each step that it comes next. Production does nothing with that; a test
installs a hook that ends the process there (tests/torture/crashing_agent.py). The steps of a table's commit
have names of their own in iceberg/steps.py.
"""

from __future__ import annotations

from collections.abc import Callable

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
)

_hooks: list[Callable[[str], None]] = []


def reach(step: str) -> None:
    """`step` comes next."""
    for hook in _hooks:
        hook(step)


def install(hook: Callable[[str], None]) -> None:
    """Call `hook` with every step's name from now on, for tests."""
    _hooks.append(hook)
