"""How long somebody has been behind a partition's records, by what one agent has seen. Pure.

The log does not say when each record came. So each look notes the partition's end and when it was there: what
was below it then is at least so old.
"""

from __future__ import annotations

from collections.abc import Sequence

Marks = list[tuple[float, int]]
"""When a partition was seen behind (monotonic seconds), and below which offset its records were then."""
MARKS_MAX = 8  # of one reader and partition; beyond, every second one is forgotten
MARKED_MAX = 10_000  # readers' partitions with so many; others have two


def marked(known: Sequence[tuple[float, int]], taken: int, end: int, now_s: float, others: int) -> Marks:
    """The marks after a look that found offsets [taken, end) not read; the first says since when.

    `known`: those of the look before; `others`: how many partitions have marks already.
    """
    found = [mark for mark in known if mark[1] > taken]
    if not found or found[-1][1] < end:
        found.append((now_s, end))
    if len(found) > (MARKS_MAX if others < MARKED_MAX else 2):
        found = found[:1] + found[1:][1::2]
    return found
