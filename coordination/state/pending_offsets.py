"""Positions committed inside a transaction: they wait for its end (KIP-447), decided as Kafka does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordination.commands import CommitTransactionOffsets
from coordination.kafka_codes import Code
from coordination.state import consumer_groups, deleted, fence
from coordination.state.data import StateData
from coordination.state.group_types import CONSUMER, CommittedOffset, Group
from coordination.state.groups import is_empty, open_group
from coordination.state.transaction_owner import begin, owned, too_many_groups
from coordination.state.transaction_types import PendingOffset, Transaction
from coordination.state.types import At, Done, Refused, Result

NO_EPOCH = -1
_UNKNOWN = int(Code.UNKNOWN_TOPIC_OR_PARTITION)


def commit_transaction_offsets(state: StateData, message: CommitTransactionOffsets, at: At) -> Result:
    """Keep positions for the end of the transaction. Done's value: None, or a code per partition.

    Refused as a whole for a pair that is over, a group that is not part of the transaction, for a member or a
    generation that is not the group's, and by the connection fence (fence.py).
    """
    known = _transaction(state, message, at)
    if isinstance(known, Refused):
        return known
    code = _member_refusal(state.groups.get(message.group), message)
    if code is not None:
        return Refused(code, f"group {message.group!r}, member {message.member_id!r}: {code.name}")
    handles = message.partition
    total = len(handles)
    epochs: Sequence[int] = message.leader_epoch or (NO_EPOCH,) * total
    metadata: Sequence[str] = message.metadata or ("",) * total
    if not len(message.offset) == len(epochs) == len(metadata) == total:
        return Refused(Code.INVALID_REQUEST, "CommitTransactionOffsets: columns of different lengths")
    opened = too_many_groups(known, (message.group,)) or open_group(state, message.group)
    if isinstance(opened, Refused):
        return opened
    begin(known, at)
    known.groups.setdefault(message.group, None)
    waiting = state.pending_offsets.setdefault(message.group, {}).setdefault(known.transactional_id, {})
    if message.HasField("fence"):
        refused = fence.note_positions(known, message.group, message.fence, waiting, handles, at)
        if refused is not None:
            return refused
    codes: list[int] = []
    for handle, offset, epoch, text in zip(handles, message.offset, epochs, metadata, strict=True):
        exists = handle < len(state.partitions) and state.partitions[handle] is not None
        codes.append(0 if exists else _UNKNOWN)
        if exists:
            waiting[handle] = PendingOffset(offset, epoch, text, at.now_ms, at.revision)
    return Done(tuple(codes) if any(codes) else None)


def _transaction(state: StateData, message: CommitTransactionOffsets, at: At) -> Transaction | Refused:
    known = owned(
        state,
        message.transactional_id,
        (message.producer_id, message.producer_epoch),
        Code.INVALID_PRODUCER_EPOCH,
        abortable_known=True,  # handlers say it to older versions as what these abort for
    )
    if isinstance(known, Refused):
        return known
    refused = None
    if message.HasField("fence"):
        refused = fence.positions_refusal(known, message.group, message.fence, at)
    refused = refused or fence.abort_only(known)
    if refused is not None:
        return refused
    if not message.adds_group and message.group not in known.groups:
        return Refused(
            Code.TRANSACTION_ABORTABLE if message.abortable_known else Code.INVALID_TXN_STATE,
            f"transactional id {known.transactional_id!r}: group {message.group!r} was not added before",
        )
    return known


def _member_refusal(group: Group | None, message: CommitTransactionOffsets) -> Code | None:
    """Kafka's OffsetMetadataManager.validateTransactionalOffsetCommit."""
    number, member_id = message.generation, message.member_id
    instance_id = message.instance_id if message.HasField("instance_id") else None
    if group is None:
        return Code.ILLEGAL_GENERATION if number >= 0 else None
    if number < 0 and (is_empty(group) or (not member_id and instance_id is None)):
        return None
    if group.kind == CONSUMER:
        code = consumer_groups.commit_refusal(group, member_id, number)
        return Code.ILLEGAL_GENERATION if code is Code.STALE_MEMBER_EPOCH else code
    generation = group.classic
    members = generation.members if generation is not None else {}
    if instance_id is not None:
        current = next((m.member_id for m in members.values() if m.instance_id == instance_id), None)
        if current != member_id:
            return Code.UNKNOWN_MEMBER_ID if current is None else Code.FENCED_INSTANCE_ID
    if member_id not in members or generation is None:
        return Code.UNKNOWN_MEMBER_ID
    return None if number == generation.generation else Code.ILLEGAL_GENERATION


def settle(state: StateData, group_id: str, transactional_id: str, commit: bool) -> None:
    """The transaction has ended: its positions become the group's, or go."""
    by_transaction = state.pending_offsets.get(group_id, {})
    waiting = by_transaction.pop(transactional_id, {})
    if group_id in state.pending_offsets and not by_transaction:
        del state.pending_offsets[group_id]
    known = [h for h in waiting if deleted.existing(state, h) is not None] if commit else []
    if not known:
        return
    group = open_group(state, group_id)
    if isinstance(group, Refused):  # the cluster has as many groups as it takes: nobody can read them
        return
    for handle in known:
        position = waiting[handle]
        group.offsets.put(
            handle,
            CommittedOffset(position.offset, position.leader_epoch, position.metadata, position.committed_ms),
        )
        supersede(state, group_id, (handle,), position.revision)


def supersede(state: StateData, group_id: str, handles: Iterable[int], before: int) -> None:
    """The group's positions of these partitions were set: what waits from before that revision is void.

    Of a position in a transaction and one outside, the later commit counts, not the later end (KAFKA-5259).
    """
    for waiting in state.pending_offsets.get(group_id, {}).values():
        for handle in handles:
            known = waiting.get(handle)
            if known is not None and known.revision < before:
                del waiting[handle]


def pending_of(state: StateData, group_id: str) -> frozenset[int]:
    """Handles whose positions of the group a transaction under way may change: not stable (KIP-447)."""
    return frozenset[int]().union(*state.pending_offsets.get(group_id, {}).values())
