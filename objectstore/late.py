"""Modules that are imported when they are first needed, in a thread: what not every agent uses.

An agent without tables needs neither pyarrow nor pyiceberg, which with what is built upon them are some
60 MiB (docs/decisions/0048). Whoever needs such a module late does two things, and nothing else is lazy:

    await ready("iceberg.committer")
    from iceberg.committer import Committer  # it is there: this finds it and runs nothing

The loop goes on meanwhile; the interpreter is handed over every 5 ms, and not while the system loads a
library (tens of ms, once). What was imported stays: the collector of cycles does not walk it again.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module


async def ready(module: str) -> None:
    """Return once the module is imported; at once where it is. Raises what its import raises."""
    if not is_ready(module):
        await asyncio.to_thread(_imported, module)


def is_ready(module: str) -> bool:
    """Whether a module is imported, to its end."""
    found = sys.modules.get(module)
    return found is not None and not getattr(found.__spec__, "_initializing", False)


def _imported(module: str) -> None:
    with without_collections():
        import_module(module)
        gc.freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection within; afterwards as before, also when an import fails.

    The collector would walk again and again what all stays: an agent's 1,700 modules make 280,000 objects,
    and of 1.9 s of CPU for them it took 0.6 s (Python 3.11).
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
