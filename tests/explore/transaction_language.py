"""What the entries of the transactions' scope say, and what a state of it means."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from google.protobuf.message import Message

from coordination.commands import (
    AbortTransaction,
    AddToTransaction,
    CommitChunk,
    CommitTransactionOffsets,
    CreateTopic,
    EndTransaction,
    Fence,
    InitTransactions,
    RegisterAgent,
    SetFeatureLevel,
    command,
)
from coordination.state import State
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.group_offsets import position_of
from objectstore.naming import MarkerId
from tests.explore.history import NOW_MS, Node

AGENTS = (11, 12)
GROUP = "g"
BATCH_BYTES = 100
Record = tuple[int, int, int]
"""Client, transaction, partition: each transaction writes a record to each partition."""


class Requests:
    """One request per entry. A node's notes: the record of each chunk (author, number) on the way to it."""

    def __init__(self, speaks: Sequence[Any]) -> None:
        self._speaks = speaks
        self._chunks = 0

    def encode(self, author: int, item: Any) -> bytes:
        """See Language."""
        kind, number, fields = item
        made: Message
        match kind:
            case "register":
                made = RegisterAgent(
                    name="ab"[number], node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX
                )
            case "topic":
                made = CreateTopic(name="t", topic_id=bytes(16), partitions=number)
            case "level":
                made = SetFeatureLevel(level=number)
            case "abort":
                made = AbortTransaction(transactional_id=f"x{number}", number=fields, forced=True)
            case _:
                made = self._request(kind, number, fields)
        return command(made).SerializeToString()

    def _request(self, kind: str, client: int, fields: Any) -> Message:
        if kind == "init" and len(fields) == 2:
            return InitTransactions(
                transactional_id=f"x{client}", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
        what, pair, sequence, source = fields
        names = {"transactional_id": f"x{client}", "producer_id": pair[0], "producer_epoch": pair[1]}
        v2 = self._speaks[client].v2
        fence = None if v2 else Fence(connection=source[0], stamp=source[1])
        match kind:
            case "init":
                return InitTransactions(**names, timeout_ms=60_000)
            case "add":
                return AddToTransaction(
                    **names, partition=[0, 1], group=[GROUP], fence=fence, abortable_known=v2
                )
            case "offsets":
                handles = named_by(what[1])
                return CommitTransactionOffsets(
                    **names, group=GROUP, generation=-1, partition=handles, adds_group=v2, fence=fence,
                    offset=[offset_of(client, what[2], what[1])] * len(handles), abortable_known=v2,
                )  # fmt: skip
            case "end":
                return EndTransaction(
                    **names, commit=bool(what[1]), bumps_epoch=v2, fence=fence, abortable_known=v2
                )
        assert kind == "send", kind
        return CommitChunk(
            number=self._number(what, pair, sequence), size=1000, first_position=64,
            partition=[what[1]], length=[BATCH_BYTES], offsets=[1], max_timestamp_ms=[NOW_MS],
            producer_id=[pair[0]], producer_epoch=[pair[1]], base_sequence=[sequence],
            transaction=[2 if v2 else 1],
        )  # fmt: skip

    def _number(self, what: Any, pair: Any, sequence: int) -> int:
        """Chunks are numbered as they are applied; which one holds what is in the nodes' notes."""
        self._chunks += 1
        return self._chunks

    def essence(self, node: Node) -> Hashable:
        """See Language; what the fence of v1 compares with is left to the world's key, which ranks it."""
        known: dict[tuple[int, int], Record] = node.notes or {}
        if node.content is not None and node.content[2][0][0] == "send":
            author, _, ((_, client, fields),) = node.content
            what = fields[0]
            node.notes = known = {**known, (author, self._chunks): (client, what[2], what[1])}
        state = node.state
        transactions = tuple(
            (name, each.current, each.phase, each.number, each.previous, each.timed_out,
             tuple(each.partitions), tuple(each.groups), each.abort_only)
            for name, each in sorted(state.transactions.items())
        )  # fmt: skip
        logs = tuple(
            (log_of(state, handle, known), _producers(state, handle))
            for handle in range(len(state.partitions))
        )
        waiting = tuple(
            (name, tuple((handle, each.offset) for handle, each in sorted(rows.items())))
            for name, rows in sorted(state.pending_offsets.get(GROUP, {}).items())
        )
        return transactions, logs, waiting, positions(state)


def named_by(argument: int) -> list[int]:
    """The partitions that a TxnOffsetCommit names: bits 0 and 1; the others tell it from its like."""
    return [handle for handle in range(2) if argument >> handle & 1]


def offset_of(client: int, transaction: int, argument: int) -> int:
    """A position that says who sent it when."""
    return 1 + 100 * client + 10 * transaction + (argument >> 2)


def positions(state: State) -> tuple[int, ...]:
    """The group's position by partition; -1: none."""
    found = [position_of(state, GROUP, handle) for handle in range(len(state.partitions))]
    return tuple(-1 if each is None else each.offset for each in found)


def log_of(state: State, handle: int, known: dict[tuple[int, int], Record]) -> tuple[Any, ...]:
    """The partition offset by offset: (producer id, record), or the marker that stands there."""
    partition = state.partitions[handle]
    assert partition is not None, "topics are not deleted here"
    log: list[Any] = []
    for ref in partition.slices.plan(0, 1 << 60):
        if isinstance(ref.chunk, MarkerId):
            log.append(ref.chunk)
        else:
            log.append(known[ref.chunk[0], ref.chunk[1]])
    return tuple(log)


def _producers(state: State, handle: int) -> Hashable:
    partition = state.partitions[handle]
    assert partition is not None, "topics are not deleted here"
    entries = tuple(
        (number, each.epoch, each.floor_sequence, each.last_sequence, tuple(each.recent))
        for number, each in sorted(partition.producers.items())
    )
    known = partition.transactions
    open_and_aborted = () if known is None else (*known.open.items(), tuple(known.aborted))
    return entries, open_and_aborted if known is not None and (known.open or known.aborted) else ()
