"""Opens batches of clients where an agent serves them: on the event loop, or in threads, within bounds.

The size of a compressed batch says nothing of what it holds: a hundred bytes may be a megabyte, and any batch
may be DECODED_BYTES_MAX. So each is tried with little room first, where that is cheap, and the few that need
a lot of it go one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from objectstore.batch import DECODED_BYTES_MAX, CorruptBatch

INLINE_DECODED_MAX = 64 * 1024  # bytes that a batch may decode to on the event loop, …
SHARED_DECODED_MAX = 8 * 1024 * 1024  # … and in threads side by side; what is larger goes one by one

_T = TypeVar("_T")
_one_by_one = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-batches")


async def opened(work: Callable[[memoryview, int], _T], batch: memoryview, inline_bytes_max: int) -> _T:
    """What `work(batch, bytes that it may decode to)` gives, on the event loop for small batches: those of at
    most `inline_bytes_max` bytes as stored and INLINE_DECODED_MAX decoded.

    `work` raises CorruptBatch for want of room too, and is then called again with more. Raises what it does.
    """
    if len(batch) <= inline_bytes_max:
        with suppress(CorruptBatch):
            return work(batch, INLINE_DECODED_MAX)
    with suppress(CorruptBatch):
        return await asyncio.to_thread(work, batch, SHARED_DECODED_MAX)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_one_by_one, work, batch, DECODED_BYTES_MAX)
