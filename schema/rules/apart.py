"""Takes the few records of a batch that may break rules out of it: a worker is sent these, not the batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from objectstore.batch import NewRecord, Record, build, peek
from objectstore.columns import columns
from objectstore.parting import part
from schema.rules.ruled import FEW, NO_RULES, Apart, Ruled, Run

RECORDS_PER_LOOK = 4_096
"""Records that are held decoded at once."""

_first = attrgetter("first")


def apart(batch: memoryview, ruled: Ruled, decoded_bytes_max: int, *, parted: bool) -> Apart | None:
    """The records that are to be evaluated; None where they are many, or none, or the topic has own rules.

    `parted`: also what is left of the batch without them. Raises CorruptBatch.
    """
    count = peek(batch).record_count
    if ruled.own or not ruled.runs:
        return None
    stretches = [list(_stretches(runs, count)) for runs in ruled.runs.values()]
    if sum(map(len, chain(*stretches))) * FEW > count:
        return None
    places = sorted(set(chain(*chain(*stretches))))
    if not places:
        return None
    left: bytes | None = None
    if parted:
        left, records = part(batch, places, decoded_bytes_max)
    else:
        records = _taken(batch, places)
    alone = build(NewRecord(each.timestamp, each.key, each.value, each.headers) for each in records)
    runs = {role: _runs(runs, places) for role, runs in ruled.runs.items()}
    return Apart(places, records, alone, runs, left)


def _stretches(runs: Sequence[Run], count: int) -> Iterable[range]:
    """The places of records that are to be evaluated."""
    for at, run in enumerate(runs):
        if run.kind != NO_RULES:
            yield range(run.first, runs[at + 1].first if at + 1 < len(runs) else count)


def _runs(runs: Sequence[Run], places: Sequence[int]) -> list[Run]:
    """The same of these records alone."""
    found: list[Run] = []
    for new, place in enumerate(places):
        at = bisect_right(runs, place, key=_first) - 1
        kind, start = (runs[at].kind, runs[at].start) if at >= 0 else (NO_RULES, 0)
        if not found or (found[-1].kind, found[-1].start) != (kind, start):
            found.append(Run(new, kind, start))
    return found


def _taken(batch: memoryview, places: Sequence[int]) -> list[Record]:
    """The records at these places, in order."""
    taken: list[Record] = []
    begin = at = 0
    for some in columns(batch, RECORDS_PER_LOOK):
        end = begin + len(some)
        while at < len(places) and places[at] < end:
            row = places[at] - begin
            stamp = some.timestamps[row]
            taken.append(Record(places[at], stamp, some.keys[row], some.values[row], some.headers[row]))
            at += 1
        if at == len(places):
            break
        begin = end
    return taken
