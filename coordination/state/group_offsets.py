"""Committed positions: who may commit, decided as Kafka does, at the commit's place in the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordination.commands import CommitOffsets, DeleteOffsets, ExpireOffsets
from coordination.kafka_codes import Code
from coordination.state import bounds, consumer_groups, pending_offsets
from coordination.state.consumer_protocol import PROTOCOL_TYPE
from coordination.state.data import StateData
from coordination.state.group_types import CONSUMER, ClassicGeneration, CommittedOffset, Group
from coordination.state.groups import is_empty, open_group, subscribes
from coordination.state.types import At, Done, Refused, Result

NO_EPOCH = -1
ALL_PLACES = slice(None)
_UNKNOWN = int(Code.UNKNOWN_TOPIC_OR_PARTITION)


def position_of(state: StateData, group_id: str, handle: int) -> CommittedOffset | None:
    """What the group committed for a partition that exists."""
    group = state.groups.get(group_id)
    return None if group is None else group.offsets.get(handle)


def commit_offsets(state: StateData, message: CommitOffsets, at: At) -> Result:
    """Store positions. Done's value: None when all are stored, else an error code per partition.

    Refused as a whole for a member or a generation that is not the group's, and (NOT_COORDINATOR) when
    another agent stored positions that the author had not seen as it took the request: what an agent held
    back never overwrites what the group's next coordinator has acknowledged since.
    """
    group = state.groups.get(message.group)
    code = Code.NOT_COORDINATOR if _overtaken(group, message, at) else _commit_refusal(state, group, message)
    if code is not None:
        return Refused(code, f"group {message.group!r}, member {message.member_id!r}: {code.name}")
    handles = message.partition
    total = len(handles)
    epochs: Sequence[int] = message.leader_epoch or (NO_EPOCH,) * total
    metadata: Sequence[str] = message.metadata or ("",) * total
    if not len(message.offset) == len(epochs) == len(metadata) == total:
        return Refused(Code.INVALID_REQUEST, "CommitOffsets: columns of different lengths")
    expire_ms = None
    if message.HasField("retention_ms"):  # up to 2^63 - 1 from clients that mean "for ever"
        expire_ms = bounds.EXPIRE_MS.cut(at.now_ms + message.retention_ms)
    missing = [not _exists(state, handle) for handle in handles]
    if group is None and not all(missing):
        opened = open_group(state, message.group)
        if isinstance(opened, Refused):
            return opened
        group = opened
    rows = zip(handles, message.offset, epochs, metadata, missing, strict=True)
    for handle, offset, epoch, text, gone in rows:
        if not gone and group is not None:
            group.offsets.put(handle, CommittedOffset(offset, epoch, text, at.now_ms, expire_ms))
    if message.group in state.pending_offsets:
        pending_offsets.supersede(state, message.group, handles, at.revision + 1)
    if group is not None and not all(missing):
        group.committer, group.committed_revision = at.author.incarnation, at.revision
    if any(missing):
        return Done(tuple(_UNKNOWN if gone else 0 for gone in missing))
    return Done()


def _overtaken(group: Group | None, message: CommitOffsets, at: At) -> bool:
    return (
        group is not None
        and group.committer != at.author.incarnation
        and message.HasField("seen_revision")
        and message.seen_revision < group.committed_revision
    )


def _exists(state: StateData, handle: int) -> bool:
    return handle < len(state.partitions) and state.partitions[handle] is not None


def _commit_refusal(state: StateData, group: Group | None, message: CommitOffsets) -> Code | None:
    """Kafka's OffsetMetadataManager.validateOffsetCommit."""
    if group is None:
        if message.generation < 0:
            return None
        return Code.GROUP_ID_NOT_FOUND if message.member_epochs_known else Code.ILLEGAL_GENERATION
    if message.generation < 0 and is_empty(group):
        return None
    if group.kind == CONSUMER:
        return _consumer_refusal(state, group, message)
    instance_id = message.instance_id if message.HasField("instance_id") else None
    return classic_refusal(group.classic, message.generation, message.member_id, instance_id)


def _consumer_refusal(state: StateData, group: Group, message: CommitOffsets) -> Code | None:
    known = [state.partitions[handle] for handle in message.partition if _exists(state, handle)]
    rows = [(one.topic.topic_id, one.index) for one in known if one is not None]
    code = consumer_groups.commit_refusal(group, message.member_id, message.generation, rows)
    if code is Code.UNKNOWN_MEMBER_ID or message.member_epochs_known:
        return code
    classic = consumer_groups.speaks_classic(group, message.member_id)
    return code if classic else Code.UNSUPPORTED_VERSION


def classic_refusal(
    generation: ClassicGeneration | None, number: int, member_id: str, instance_id: str | None
) -> Code | None:
    """Why a commit to a classic group is refused; None when it is not (ClassicGroup.validateOffsetCommit)."""
    members = generation.members if generation is not None else {}
    if number < 0 and not member_id and instance_id is None:
        return Code.UNKNOWN_MEMBER_ID if members else None
    if instance_id is not None:
        current = next((m.member_id for m in members.values() if m.instance_id == instance_id), None)
        if current is not None and current != member_id:
            return Code.FENCED_INSTANCE_ID
        if current is None:
            return Code.UNKNOWN_MEMBER_ID
    if generation is None or member_id not in members:
        return Code.UNKNOWN_MEMBER_ID
    if number != generation.generation:
        return Code.ILLEGAL_GENERATION
    return None if generation.assigned else Code.REBALANCE_IN_PROGRESS


def delete_offsets(state: StateData, message: DeleteOffsets, at: At) -> Result:
    """Forget positions, unless the group consumes their topic. Done's value: an error code per partition.

    What a transaction that is under way has committed for them goes too, as in Kafka.
    """
    group = state.groups.get(message.group)
    if group is None:
        return Refused(Code.GROUP_ID_NOT_FOUND, f"group {message.group!r} does not exist")
    members = group.classic is not None and bool(group.classic.members)
    if group.classic is not None and members and group.classic.protocol_type != PROTOCOL_TYPE:
        return Refused(Code.NON_EMPTY_GROUP, f"group {message.group!r} has members of another protocol")
    codes: list[int] = []
    known: dict[str, bool] = {}
    for handle in message.partition:
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is None:
            codes.append(_UNKNOWN)
            continue
        topic = partition.topic.name
        if topic not in known:
            known[topic] = subscribes(group, topic)
        if not known[topic]:
            group.offsets.remove(handle)
            pending_offsets.supersede(state, message.group, (handle,), at.revision + 1)
        codes.append(int(Code.GROUP_SUBSCRIBED_TO_TOPIC) if known[topic] else 0)
    return Done(tuple(codes))


def expire_offsets(state: StateData, message: ExpireOffsets, at: At) -> Result:
    """Apply Kafka's retention of positions. Done's value: (positions forgotten, groups deleted)."""
    forgotten = deleted = 0
    for group_id in message.group:
        group = state.groups.get(group_id)
        if group is None:
            continue
        for handle in list(_expired(state, group, at.now_ms, message.retention_ms)):
            group.offsets.remove(handle)
            forgotten += 1
        if _is_bare(state, group):
            del state.groups[group_id]
            deleted += 1
    return Done((forgotten, deleted))


def expirable(
    state: StateData, group: Group, now_ms: int, retention_ms: int, places: slice = ALL_PLACES
) -> bool:
    """Whether ExpireOffsets would change anything about the group at that time.

    `places`: which of its positions are looked at, as they stand in its table.
    """
    if next(iter(_expired(state, group, now_ms, retention_ms, places)), None) is not None:
        return True
    return _is_bare(state, group)


def _is_bare(state: StateData, group: Group) -> bool:
    """Whether nothing is left of the group."""
    return is_empty(group) and not len(group.offsets) and group.group_id not in state.pending_offsets


def _expired(
    state: StateData, group: Group, now_ms: int, retention_ms: int, places: slice = ALL_PLACES
) -> Iterable[int]:
    """Handles whose positions go: of deleted topics, and what is too old (OffsetExpirationCondition)."""
    since_empty = _base_ms(group)
    table = group.offsets
    known: dict[str, bool] = {}
    for handle, committed_ms in zip(table.handles[places], table.committed_ms[places], strict=True):
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is None and handle in state.deleted_partitions:
            continue  # the topic may come back, and the group goes on where it was
        if partition is None:
            yield handle
            continue
        if since_empty is None:
            continue
        until = table.expires.get(handle)
        if now_ms < ((since_empty or committed_ms) + retention_ms if until is None else until):
            continue
        topic = partition.topic.name
        if topic not in known:
            known[topic] = subscribes(group, topic)
        if not known[topic]:
            yield handle


def _base_ms(group: Group) -> int | None:
    """From when retention counts: a stamp, 0 for each commit's own; None: nothing of the group expires."""
    if group.kind == CONSUMER or group.classic is None:
        return 0
    if not group.classic.members:
        return group.state_ms
    consuming = group.classic.protocol_type == PROTOCOL_TYPE
    return 0 if consuming and group.classic.assigned else None
