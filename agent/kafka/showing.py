"""What the console is shown of Kafka's side: a partition's records as their reader gets them, and groups.

Records come as Fetch gives them to a client that is known by its principal alone: committed ones, without
what their schemas keep from whoever is not cleared. Whether somebody may read them the console has asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.kafka.context import Client, Context, Services
from agent.kafka.fetch.driver import Fetched, FetchRequest
from agent.kafka.fetch.frames import AS_WRITTEN_CLIENTS
from agent.kafka.fetch.placing import Placing
from agent.kafka.fetch.planner import Wanted, aborted_in
from agent.kafka.fetch.rewriting import Reader
from agent.kafka.groups.consumer.embedded import BadEmbedded, read_assignment
from agent.kafka.groups.listing import listed, members_of
from agent.kafka.handlers.k02_list_offsets import by_time
from agent.kafka.handlers.lookup import find_partition
from agent.kafka.produce.firsts import Firsts
from agent.telemetry.shown import GroupMember, RecordLife, RecordsRead, ShownGroup
from agent.telemetry.trail import Actor
from coordination.kafka_codes import Code
from coordination.state.deleted import existing
from coordination.state.group_types import CONSUMER, Group
from coordination.state.redacting import policy_of
from coordination.state.types import Partition, Topic
from objectstore.batch import CorruptBatch, peek, split
from objectstore.store import StoreError
from objectstore.transactions import without_aborted

NO_LISTENER = ""
"""By none of them: clearance of a listener is for whoever comes by that one."""
AS_WRITTEN = min(AS_WRITTEN_CLIENTS)
"""Frames stay, as for `floe consume`: they say which schema a record is of."""
NO_CONNECTION = -1


class Showing:
    """Of one agent."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(
        self, actor: Actor, topic: str, index: int, offset: int, bytes_max: int
    ) -> RecordsRead | None:
        """Committed batches from `offset` on, about `bytes_max` bytes and one at least.

        None: there is no such partition.
        """
        services = self._services
        partition = self._partition(topic, index)
        if partition is None:
            return None
        bounded = min(max(offset, partition.log_start), partition.high_watermark)
        wanted = Wanted(partition, bounded, bytes_max)
        asked = FetchRequest(lambda: [wanted], 0, 0, bytes_max, read_committed=True)
        (fetched,) = await services.fetch.fetch(asked)
        if services.trail.tells_access and fetched.records:
            services.trail.accessed(actor, "Read", [topic])
        cleared = services.rewriting.redaction.cleared(NO_LISTENER, None, actor.principal)
        await services.rewriting.apply([fetched], Reader(NO_LISTENER, AS_WRITTEN, cleared, bytes_max))
        return _read(fetched, bounded)

    async def as_written(
        self, actor: Actor, handle: int, offset: int, bytes_max: int, *, held: bool = False
    ) -> tuple[Code, list[memoryview]] | None:
        """Batches as they lie in the log, from the one that holds `offset` on: aborted ones and markers too.

        About `bytes_max` bytes, one batch at least; none at the end. Also of a topic that is deleted and can
        come back; `held`: also below the log start what is held there. None: there is no such partition.
        With a code there are none.
        """
        services = self._services
        partition = existing(services.replica.state, handle)
        if partition is None:
            return None

        def resolve() -> list[Wanted]:  # anew for each plan: the topic may go meanwhile
            found = existing(services.replica.state, handle)
            start = found.held_start if held and found is not None else None
            return [Wanted(found, offset, bytes_max, start=start)]

        (fetched,) = await services.fetch.fetch(FetchRequest(resolve, 0, 0, bytes_max, read_committed=False))
        if services.trail.tells_access and fetched.records:
            services.trail.accessed(actor, "Read", [partition.topic.name])
        return fetched.planned.code, fetched.records

    def reads_all(self, actor: Actor, topic: Topic) -> bool:
        """Whether nothing of its records is kept from whoever asks (floe.redact)."""
        redaction = self._services.rewriting.redaction
        return policy_of(self._services.replica.state, topic) is None or redaction.cleared(
            NO_LISTENER, None, actor.principal
        )

    async def offset_at(self, topic: str, index: int, at_ms: int) -> int | None:
        """The offset of the first record at or after a time, Unix ms; None: there is none.

        As ListOffsets tells it: also of a transaction that is open, and behind one. Raises OSError where
        that cannot be read.
        """
        partition = self._partition(topic, index)
        if partition is None:
            return None
        client = Client(NO_CONNECTION, NO_LISTENER, Firsts(self._services.config.produce))
        try:
            found = await by_time(Context(self._services, client), partition, at_ms)
        except (StoreError, CorruptBatch) as error:
            raise OSError(f"records cannot be looked at: {error}") from None
        return None if found is None else found.offset

    async def life(self, topic: str, index: int, offset: int) -> RecordLife | None:
        """Where the record at an offset is and how it came; None: there is no such partition."""
        partition, services = self._partition(topic, index), self._services
        if partition is None:
            return None
        return await Placing(services.replica, services.merged, services.reader).life(partition, offset)

    def group(self, group_id: str) -> ShownGroup | None:
        """The group as this agent knows it; None where there is none."""
        found = listed(self._services.replica.state, self._services.groups, group_id)
        return None if found is None else ShownGroup(found.kind, found.state, found.protocol)

    def members(self, group: Group) -> list[GroupMember]:
        """Its members, with the partitions that each has."""
        state = self._services.replica.state
        if group.kind == CONSUMER:
            return [] if group.consumer is None else _consumers(group, state.topics_by_id)
        found = []
        for each in members_of(state, self._services.groups, group.group_id):
            try:
                assigned = read_assignment(each.assignment)
            except BadEmbedded:  # of a protocol of its own
                assigned = {}
            found.append(
                GroupMember(
                    each.member_id, each.instance_id or "", each.client_id, each.client_host, assigned
                )
            )
        return found

    def _partition(self, topic: str, index: int) -> Partition | None:
        return find_partition(self._services.replica.state.topics.get(topic), index)


def _consumers(group: Group, topics: Mapping[bytes, Topic]) -> list[GroupMember]:
    data = group.consumer
    assert data is not None, "a group of KIP-848 has its members"
    return [
        GroupMember(
            each.member_id,
            each.instance_id or "",
            each.client_id,
            each.client_host,
            {topics[one].name: tuple(rows) for one, rows in each.assigned.items() if one in topics},
        )
        for each in data.members.values()
    ]


def _read(fetched: Fetched, offset: int) -> RecordsRead:
    """What came, without what was aborted, and where to go on."""
    planned, following, batches = fetched.planned, offset, []
    gone = aborted_in(planned, fetched.records)
    for view in fetched.records:
        position, _ = split(view)[-1]
        following = max(following, peek(view, position).last_offset + 1)
        for run in without_aborted(view, gone):
            batches += [run[at : at + size] for at, size in split(run)]
    problem = "" if planned.code is Code.NONE else planned.code.name
    return RecordsRead(batches, following, planned.log_start, planned.last_stable, problem)
