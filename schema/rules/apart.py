"""Takes the few records of a batch that may break rules out of it: a worker is sent these, not the batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from google.protobuf.message import DecodeError

from objectstore.batch import NewRecord, Record, build, peek
from objectstore.columns import columns
from objectstore.parting import part
from schema.descriptors import MessageType
from schema.rules.ruled import FEW, NO_RULES, Apart, Ruled, Run, Signed
from schema.rules.sure.signature import Signature, signing

RECORDS_PER_LOOK = 4_096
"""Records that are held decoded at once."""

_first = attrgetter("first")


def apart(batch: memoryview, ruled: Ruled, decoded_bytes_max: int, *, parted: bool) -> Apart | None:
    """The records that are to be evaluated; None where they are many, or none, or the topic has own rules.

    `parted`: also what is left of the batch without them, and their signatures. Raises CorruptBatch.
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
    return Apart(places, records, alone, runs, left, _signed(records, runs, ruled.kinds) if parted else None)


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


def _signed(
    records: Sequence[Record], runs: Mapping[str, Sequence[Run]], kinds: Sequence[MessageType]
) -> Sequence[Signed] | None:
    """What is to be evaluated of the records; None where the library has to look at some of it."""
    found: list[Signed] = []
    for role, those in runs.items():
        for at, run in enumerate(those):
            if run.kind == NO_RULES:
                continue
            kind = kinds[run.kind]
            stop = those[at + 1].first if at + 1 < len(those) else len(records)
            signatures = _signatures(records[run.first : stop], role, kind, run.start)
            if None in signatures:
                return None
            found += (
                Signed(index, role, kind.digest, each)
                for index, each in enumerate(signatures, run.first)
                if each is not None
            )
    return found


def _signatures(
    records: Sequence[Record], role: str, kind: MessageType, start: int
) -> Sequence[Signature | None]:
    """Of messages of one type, which begin at byte `start` of what their records have of that role."""
    sign, parse = signing(kind), kind.message_class.FromString
    if sign is None:
        return [None]
    contents = [each.key if role == "key" else each.value for each in records]
    try:
        return [None if each is None else sign(parse(each[start:])) for each in contents]
    except (DecodeError, ValueError):  # a text of proto2 that is no UTF-8; the others were parsed before
        return [None]


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
