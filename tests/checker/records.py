"""Anomalies of records: lost, doubled, torn, never sent, from transactions that did not happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.checker.findings import Finding
from tests.checker.operations import History, Operation, Send, Value
from tests.checker.versions import Versions


def inconsistent_offsets(history: History, known: Versions) -> Iterator[Finding]:
    """One (key, offset), two or more values."""
    del history
    for name, key in known.keys.items():
        for offset in key.order:
            values = key.values[offset]
            if len(values) > 1:
                authors = _authors(known, name, values)
                yield Finding("inconsistent-offset", name, f"offset {offset} holds {values}", authors)


def duplicates(history: History, known: Versions) -> Iterator[Finding]:
    """One value at two or more offsets."""
    del history
    for name, key in known.keys.items():
        for value, offsets in key.offsets.items():
            if len(offsets) > 1:
                yield Finding(
                    "duplicate", name, f"{value} at {sorted(offsets)}", _authors(known, name, [value])
                )


def lost_writes(history: History, known: Versions) -> Iterator[Finding]:
    """A proven value at or below the highest index that an ok poll returned, itself read by none.

    Where it stood may be known from its acknowledgement or from polls of operations that are not ok.
    """
    for op, send in _proven_sends(history, known):
        key = known.keys.get(send.key)
        if key is None or send.value in key.read or send.value not in key.offsets:
            continue
        at = min(key.offsets[send.value])
        if key.index[at] <= key.read_index_max:
            past = key.order[key.read_index_max]
            detail = f"{send.value} stood at {at}, reads went to {past} without it"
            yield Finding("lost-write", send.key, detail, (op.index,))


def unseen(history: History, known: Versions) -> Iterator[Finding]:
    """An acknowledged send that no ok poll returned by the end of the final reads."""
    for op in history.of("ok"):
        for send in op.sends:
            key = known.keys.get(send.key)
            if key is None or send.value not in key.read:
                yield Finding("unseen", send.key, f"{send.value} at {send.offset}", (op.index,))


def aborted_reads(history: History, known: Versions) -> Iterator[Finding]:
    """G1a: a poll returns a value of another operation, which failed."""
    for op, name, value in _polled(history.operations):
        author = known.writer.get((name, value))
        if author is not None and author.outcome == "fail" and author is not op:
            detail = f"{value}, whose operation failed with {author.error or 'no error'}"
            yield Finding("aborted-read", name, detail, (author.index, op.index))


def precommitted_reads(history: History, known: Versions) -> Iterator[Finding]:
    """An operation polls its own send, whatever becomes of it."""
    for op, name, value in _polled(history.operations):
        if known.writer.get((name, value)) is op:
            yield Finding("precommitted-read", name, f"{value} by its own author", (op.index,))


def phantom_reads(history: History, known: Versions) -> Iterator[Finding]:
    """A polled value that nobody sent."""
    for op, name, value in _polled(history.operations):
        if (name, value) not in known.writer:
            yield Finding("phantom-read", name, str(value), (op.index,))


def torn_transactions(history: History, known: Versions) -> Iterator[Finding]:
    """Some sends of a transaction are visible, others never, though what came later on their key was read."""
    later = _newest_read_author(history, known)
    for op in history.operations:
        if op.f != "txn":
            continue
        sends = list(op.sends)
        visible = [send for send in sends if _is_seen(known, send)]
        hidden = [send for send in sends if not _is_seen(known, send) and _passed(known, later, op, send)]
        if visible and hidden:
            detail = f"{[s.value for s in visible]} visible, {[(s.key, s.value) for s in hidden]} not"
            yield Finding("torn-transaction", hidden[0].key, detail, (op.index,))


def _is_seen(known: Versions, send: Send) -> bool:
    key = known.keys.get(send.key)
    return key is not None and send.value in key.seen


def _passed(known: Versions, later: dict[str, int], op: Operation, send: Send) -> bool:
    """Whether reads of the key went past where the send must be."""
    key = known.keys.get(send.key)
    if key is None:
        return False
    if send.offset is not None and send.offset in key.index:
        return key.index[send.offset] <= key.read_index_max
    return later.get(send.key, -1) > op.completed_ns


def _newest_read_author(history: History, known: Versions) -> dict[str, int]:
    """By key: when the youngest operation one of whose sends was read had been called, ns."""
    newest: dict[str, int] = {}
    for _, name, value in _polled(history.of("ok")):
        author = known.writer.get((name, value))
        if author is not None:
            newest[name] = max(newest.get(name, -1), author.invoked_ns)
    return newest


def _proven_sends(history: History, known: Versions) -> Iterator[tuple[Operation, Send]]:
    for op in history.operations:
        if op.index in known.proven:
            for send in op.sends:
                yield op, send


def _polled(operations: Iterable[Operation]) -> Iterator[tuple[Operation, str, Value]]:
    """Every record of every poll of the operations."""
    for op in operations:
        for poll in op.polls:
            for name, records in poll.records.items():
                for _, value in records:
                    yield op, name, value


def _authors(known: Versions, name: str, values: list[Value]) -> tuple[int, ...]:
    return tuple(known.writer[name, value].index for value in values if (name, value) in known.writer)
