"""Timers of one process that wake it up together, instead of each by itself: an idle agent does little else.

Who looks at something again and again asks here how long to sleep. In a loop whose timers are coalesced a
pause ends a multiple of GRID_S after that began, the last one within the pause: sooner by less than GRID_S,
never later, so that nothing is noticed later than without. A pause that is a multiple itself, and began at
such a moment, is as long as it was. In any other loop (tests, the simulation, whose nodes are not to beat in
step) it is what was asked for. Processes of one machine do not beat in step either.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

GRID_S: Final = 0.25
"""Between two moments at which pauses end, seconds: that of the health's looks and of the housekeeping."""
ROUNDED_S: Final = 1e-6
"""A moment is reached by this much before it: a sum of fractions may be short of it."""

_began: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()


def coalesce(loop: asyncio.AbstractEventLoop) -> None:
    """Have the loop's pauses end together from now on."""
    _began[loop] = loop.time()


def pause_s(seconds: float) -> float:
    """How long to sleep in the running loop instead of so many seconds; no longer than that."""
    loop = asyncio.get_running_loop()
    began = _began.get(loop)
    if began is None:
        return seconds
    since = loop.time() - began
    left = (since + seconds + ROUNDED_S) // GRID_S * GRID_S - since
    return left if left > ROUNDED_S else seconds  # shorter than the way to the next moment
