"""Transactions as sections of a snapshot, and back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from coordination.proto import snapshot_pb2 as pb
from coordination.state.data import StateData
from coordination.state.transaction_types import (
    Extent,
    LastEnd,
    PartitionTransactions,
    PendingOffset,
    Phase,
    Source,
    Transaction,
)

NAMES_PER_SECTION = 512  # partitions, groups and ids in one section, about
OFFSETS_PER_SECTION = 4096


def transaction_sections(state: StateData) -> Iterator[pb.Section]:
    """Ids, then the positions that wait; each section is complete and independent of later changes."""
    section, names = pb.Section(), 0
    for transaction in state.transactions.values():
        section.transactions.transactions.append(_transaction(transaction))
        names += 1 + len(transaction.partitions) + len(transaction.groups)
        if names >= NAMES_PER_SECTION:
            yield section
            section, names = pb.Section(), 0
    if names:
        yield section
    for group, by_transaction in state.pending_offsets.items():
        for transactional_id, waiting in by_transaction.items():
            yield from _pending(group, transactional_id, list(waiting.items()))


def _transaction(transaction: Transaction) -> pb.Transaction:
    message = pb.Transaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        state=transaction.phase,
        timeout_ms=transaction.timeout_ms,
        started_ms=transaction.started_ms,
        updated_ms=transaction.updated_ms,
        number=transaction.number,
        previous_id=transaction.previous[0],
        previous_epoch=transaction.previous[1],
        timed_out=transaction.timed_out,
        partition=transaction.partitions,
        group=transaction.groups,
        abort_only=transaction.abort_only,
    )
    if any(transaction.groups.values()):
        none = pb.Transaction.Source()
        message.source.extend(
            none if each is None else pb.Transaction.Source(**each._asdict())
            for each in transaction.groups.values()
        )
    if transaction.last_end is not None:
        message.last_end.MergeFrom(pb.Transaction.End(**transaction.last_end._asdict()))
    return message


def _pending(
    group: str, transactional_id: str, waiting: Sequence[tuple[int, PendingOffset]]
) -> Iterator[pb.Section]:
    for first in range(0, max(len(waiting), 1), OFFSETS_PER_SECTION):
        message = pb.PendingOffsets(group=group, transactional_id=transactional_id)
        for handle, position in waiting[first : first + OFFSETS_PER_SECTION]:
            message.partition.append(handle)
            message.offset.append(position.offset)
            message.leader_epoch.append(position.leader_epoch)
            message.metadata.append(position.metadata)
            message.committed_ms.append(position.committed_ms)
            message.revision.append(position.revision)
        yield pb.Section(pending_offsets=message)


def encode_partition(transactions: PartitionTransactions | None) -> bytes:
    """What a partition knows, serialized; empty for nothing."""
    if transactions is None:
        return b""
    flat = transactions.aborted
    message = pb.PartitionTransactions(
        open_producer_id=transactions.open.keys(),
        open_first_offset=transactions.open.values(),
        aborted_producer_id=flat[0::3],
        aborted_first_offset=flat[1::3],
        aborted_marker_offset=flat[2::3],
    )
    return message.SerializeToString(deterministic=True)


def note_extents(extents: Iterable[Extent]) -> list[int]:
    """Extents, flat (snapshot.proto)."""
    numbers: list[int] = []
    for extent in extents:
        numbers.append(len(extent))
        for index, (first, marker) in extent.items():
            numbers += (index, first, marker)
    return numbers


def thaw_transaction(state: StateData, told: pb.Transaction) -> None:
    """Add a transactional id to the state. Raises ValueError for columns of different lengths."""
    transaction = Transaction(
        told.transactional_id,
        told.producer_id,
        told.producer_epoch,
        told.timeout_ms,
        told.updated_ms,
        Phase(told.state),
        told.started_ms,
        told.number,
        (told.previous_id, told.previous_epoch),
        told.timed_out,
        None,
        dict.fromkeys(told.partition),
        dict.fromkeys(told.group),
        told.abort_only,
    )
    for group, source in zip(told.group, told.source, strict=bool(told.source)):
        if source.revision:
            transaction.groups[group] = Source(
                source.incarnation, source.connection, source.revision, source.proven
            )
    if told.HasField("last_end"):
        end = told.last_end
        transaction.last_end = LastEnd(end.incarnation, end.connection, end.revision)
    state.transactions[told.transactional_id] = transaction
    state.transactions_by_producer[told.producer_id] = transaction


def thaw_pending(
    state: StateData, told: pb.PendingOffsets
) -> Iterator[tuple[dict[int, PendingOffset], int, PendingOffset]]:
    """Positions that wait, each with where it goes. Raises ValueError for columns of different lengths."""
    waiting = state.pending_offsets.setdefault(told.group, {}).setdefault(told.transactional_id, {})
    columns = zip(
        told.partition,
        told.offset,
        told.leader_epoch,
        told.metadata,
        told.committed_ms,
        told.revision,
        strict=True,
    )
    for handle, *position in columns:
        yield waiting, handle, PendingOffset(*position)


def thaw_partition(content: bytes) -> PartitionTransactions:
    """What a partition knows. Raises ValueError for columns of different lengths."""
    told = pb.PartitionTransactions.FromString(content)
    made = PartitionTransactions()
    made.open = dict(zip(told.open_producer_id, told.open_first_offset, strict=True))
    triples = zip(
        told.aborted_producer_id, told.aborted_first_offset, told.aborted_marker_offset, strict=True
    )
    made.aborted = array("q", [number for triple in triples for number in triple])
    return made


def thaw_extents(numbers: Sequence[int]) -> Iterator[Extent]:
    """Extents from their flat form."""
    at = 0
    while at < len(numbers):
        size = numbers[at]
        rows = [numbers[at + 1 + 3 * row : at + 4 + 3 * row] for row in range(size)]
        yield {index: (first, marker) for index, first, marker in rows}
        at += 1 + 3 * size
