"""A torture run as a history for the checker (tests/checker): an operation per send, and per run of reads.

Keys are partitions. Writers and readers are processes of their own, the final read one more.
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

    def add(client: str, f: str, outcome: Outcome, micro: Send | Poll) -> None:
        index = len(made.operations)
        process = numbers.setdefault(client, len(numbers))
        made.operations.append(
            Operation(index, process, f, outcome, (micro,), invoked_ns=index, completed_ns=index)
        )

    for each in sent:
        known = each.offset if each.outcome == "ok" and each.offset >= 0 else None
        told = Send(_key(each.topic, each.partition), text(each.value), known)
        add(each.writer, "send", OUTCOMES[each.outcome], told)
    for (reader, topic, partition), run in groupby(seen, lambda s: (s.reader, s.topic, s.partition)):
        records = tuple((record.offset, text(record.value)) for record in run)
        add(reader, "poll", "ok", Poll({_key(topic, partition): records}))
    for (topic, partition), rows in final.items():
        records = tuple((offset, text(value)) for offset, value in rows)
        add("final", "poll", "ok", Poll({_key(topic, partition): records}))
    return made


def _key(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def text(value: bytes) -> str:
    """A record's value as a history spells it, without what fills it up."""
    return value.decode("latin-1").rstrip(".")
