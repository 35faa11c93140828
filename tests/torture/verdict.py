"""The verdict over a torture run: what writers were told, what readers saw, what the topic holds in the end.

Pure: values in, findings out. Each finding bears the name of its anomaly in CORRECTNESS terms, the place
and the values, so that a failing run says what broke.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

FINDINGS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """One record handed to a client. `outcome`: ok (acknowledged), fail (certainly not written) or info.

    `offset` is -1 where its client was told none: not only of those that failed (see `unplaced`). Times are
    the monotonic clock's, ns; 0 where nobody looked.
    """

    writer: str
    sequence: int
    topic: str
    partition: int
    value: bytes
    outcome: str
    offset: int = -1
    key: bytes | None = None
    invoked_ns: int = 0
    completed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that a reader was given, in the order in which it was given; when, as Sent's times."""

    reader: str
    topic: str
    partition: int
    offset: int
    value: bytes
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly."""

    anomaly: str
    place: str
    detail: str

    def __str__(self) -> str:
        return f"{self.anomaly} at {self.place}: {self.detail}"


@dataclass(slots=True)
class Verdict:
    """All findings, and the counts that make a clean verdict mean something."""

    findings: list[Finding] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    read: int = 0
    superseded: int = 0
    unplaced: int = 0
    """Acknowledged without an offset. librdkafka does so where the answer to one batch was that nobody knows,
    and the next batch is acknowledged: the one before it must be there. So must it be in the final read.
    """

    def report(self) -> str:
        """The counts, then the first findings."""
        head = (
            f"acknowledged {self.acknowledged} · unknown {self.unknown} · failed {self.failed} · "
            f"read {self.read} · superseded {self.superseded} · unplaced {self.unplaced} · "
            f"findings {len(self.findings)}"
        )
        return "\n".join([head, *(str(f) for f in self.findings[:FINDINGS_SHOWN])])


Place = tuple[str, int]


def judge(
    sent: Iterable[Sent],
    final: Mapping[Place, Sequence[tuple[int, bytes]]],
    seen: Iterable[Seen],
    *,
    compacted: bool = False,
) -> Verdict:
    """Judge a run. `final` is each partition read from its start by a fresh client after all faults ended.

    `compacted`: a record may be gone when a later one of its key is there, and nothing else may.
    """
    verdict = Verdict()
    sends = list(sent)
    for send in sends:
        verdict.acknowledged += send.outcome == "ok"
        verdict.unknown += send.outcome == "info"
        verdict.failed += send.outcome == "fail"
        verdict.unplaced += is_unplaced(send)
    verdict.read = sum(len(records) for records in final.values())
    gone: frozenset[bytes] = frozenset()
    if compacted:
        gone = frozenset(send.value for send in superseded(sends, final))
        verdict.superseded = len(gone)
    else:
        _final_is_dense(final, verdict)
    _every_send([send for send in sends if send.value not in gone], final, verdict)
    _order_of_writers(sends, final, verdict)
    _readers(seen, final, verdict)
    return verdict


def is_unplaced(send: Sent) -> bool:
    """Whether the record is acknowledged, and its client does not know at which offset."""
    return send.outcome == "ok" and send.offset < 0


def superseded(sends: Iterable[Sent], final: Mapping[Place, Sequence[tuple[int, bytes]]]) -> list[Sent]:
    """Acknowledged records that are not there because a later one of their key is."""
    known = {send.value: send for send in sends}
    newest: dict[tuple[str, int, bytes | None], int] = {}
    there: set[bytes] = set()
    for (topic, partition), records in final.items():
        for offset, value in records:
            there.add(value)
            if value in known:
                newest[topic, partition, known[value].key] = offset
    return [
        send
        for send in known.values()
        if send.outcome == "ok"
        and send.value not in there
        and send.key is not None
        and newest.get((send.topic, send.partition, send.key), -1) > send.offset
    ]


def _final_is_dense(final: Mapping[Place, Sequence[tuple[int, bytes]]], verdict: Verdict) -> None:
    for (topic, partition), records in final.items():
        for expected, (offset, _) in enumerate(records):
            if offset != expected:
                detail = f"offset {offset} where {expected} was due"
                verdict.findings.append(Finding("poll-skip", f"{topic}-{partition}", detail))
                break


def _every_send(
    sends: list[Sent], final: Mapping[Place, Sequence[tuple[int, bytes]]], verdict: Verdict
) -> None:
    places: dict[bytes, list[tuple[str, int, int]]] = defaultdict(list)
    for (topic, partition), records in final.items():
        for offset, value in records:
            places[value].append((topic, partition, offset))
    by_value = {send.value: send for send in sends}
    for send in sends:
        where = places.get(send.value, [])
        place = f"{send.topic}-{send.partition}"
        if len(where) > 1:
            verdict.findings.append(Finding("duplicate", place, f"{send.value!r} at {where}"))
        elif send.outcome == "ok" and not where:
            verdict.findings.append(
                Finding("lost-write", place, f"{send.value!r} acknowledged at {send.offset}")
            )
        elif send.outcome == "fail" and where:
            verdict.findings.append(
                Finding("aborted-read", place, f"{send.value!r} failed but is at {where}")
            )
        elif send.outcome == "ok" and not _is_at(send, where[0]):
            detail = f"{send.value!r} acknowledged at {send.offset}, found at {where[0]}"
            verdict.findings.append(Finding("inconsistent-offset", place, detail))
    for value, where in places.items():
        if value not in by_value:
            verdict.findings.append(Finding("phantom-read", f"{where[0][0]}-{where[0][1]}", repr(value)))


def _is_at(send: Sent, where: tuple[str, int, int]) -> bool:
    """Whether an acknowledged record is where its client was told; it may know no more than the partition."""
    offset = where[2] if is_unplaced(send) else send.offset
    return where == (send.topic, send.partition, offset)


def _order_of_writers(
    sends: list[Sent], final: Mapping[Place, Sequence[tuple[int, bytes]]], verdict: Verdict
) -> None:
    sequences = {send.value: (send.writer, send.sequence) for send in sends}
    for (topic, partition), records in final.items():
        newest: dict[str, int] = {}
        for offset, value in records:
            writer, sequence = sequences.get(value, ("", 0))
            if sequence <= newest.get(writer, -1) and writer:
                detail = f"{writer} sequence {sequence} at offset {offset} after {newest[writer]}"
                verdict.findings.append(Finding("nonmonotonic-send", f"{topic}-{partition}", detail))
            newest[writer] = max(sequence, newest.get(writer, -1))


def _readers(
    seen: Iterable[Seen], final: Mapping[Place, Sequence[tuple[int, bytes]]], verdict: Verdict
) -> None:
    last: dict[tuple[str, str, int], int] = {}
    contents = {place: dict(records) for place, records in final.items()}
    for record in seen:
        place = f"{record.topic}-{record.partition} for {record.reader}"
        before = last.get((record.reader, record.topic, record.partition), -1)
        if record.offset != before + 1:
            anomaly = "poll-skip" if record.offset > before else "nonmonotonic-poll"
            verdict.findings.append(Finding(anomaly, place, f"{record.offset} after {before}"))
        last[record.reader, record.topic, record.partition] = record.offset
        kept = contents.get((record.topic, record.partition), {}).get(record.offset)
        if kept != record.value:
            detail = f"read {record.value!r} at {record.offset}, which holds {kept!r}"
            verdict.findings.append(Finding("inconsistent-offset", place, detail))
