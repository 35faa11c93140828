"""A torture run as a history for the checker (tests/checker): an operation per send, and per run of reads.

Keys are partitions. Writers and readers are processes of their own, the final read one more. Times are those
that clients told, or else the place in the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tests.checker.operations import History, Operation, Outcome, Poll, Send
from tests.torture.verdict import Place, Seen, Sent

OUTCOMES: dict[str, Outcome] = {"ok": "ok", "fail": "fail", "info": "info"}


def history_of(
    sent: Iterable[Sent], seen: Iterable[Seen], final: Mapping[Place, Sequence[tuple[int, bytes]]]
) -> History:
    """What the clients did, each in its own order: sends, what readers were given, the final read."""
    made, numbers = History(), dict[str, int]()

    def add(client: str, f: str, outcome: Outcome, micro: Send | Poll, *times: int) -> None:
        index = len(made.operations)
        process = numbers.setdefault(client, len(numbers))
        invoked, completed = times if all(times) else (index, index)
        told = Operation(index, process, f, outcome, (micro,), invoked_ns=invoked, completed_ns=completed)
        made.operations.append(told)

    last = 0
    for each in sent:
        known = each.offset if each.outcome == "ok" and each.offset >= 0 else None
        told = Send(_key(each.topic, each.partition), text(each.value), known)
        add(each.writer, "send", OUTCOMES[each.outcome], told, each.invoked_ns, each.completed_ns)
        last = max(last, each.completed_ns)
    for (reader, topic, partition), run in groupby(seen, lambda s: (s.reader, s.topic, s.partition)):
        rows = list(run)
        records = tuple((record.offset, text(record.value)) for record in rows)
        at = (rows[0].at_ns, rows[-1].at_ns)
        add(reader, "poll", "ok", Poll({_key(topic, partition): records}), *at)
        last = max(last, *at)
    for (topic, partition), found in final.items():
        records = tuple((offset, text(value)) for offset, value in found)
        add("final", "poll", "ok", Poll({_key(topic, partition): records}), last, last)
    return made


def _key(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def text(value: bytes) -> str:
    """A record's value as a history spells it, without what fills it up."""
    return value.decode("latin-1").rstrip(".")
