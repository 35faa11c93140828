"""What the entries of the produce scope say, and what a state of it means.

Left out of a state's meaning is what no later step asks for: revisions (only that they rise matters), the
authors' counts (entries in flight are numbered behind them), the names and serials of
chunks that are committed (their records stand in their place), stamps (all the same here), brokers.
"""

from __future__ import annotations

from collections.abc import Hashable

from coordination.commands import (
    CommitChunk,
    CreateTopic,
    FenceIncarnation,
    Heartbeat,
    RegisterAgent,
    SetFeatureLevel,
    command,
)
from coordination.snapshot import canonical_digest
from coordination.state import State
from coordination.state.digest import START
from coordination.state.levels import COMPANIONS
from objectstore.naming import ChunkId
from tests.explore.history import NOW_MS, Node
from tests.explore.world import Item

BATCH_BYTES = 100
FIRST_POSITION = 64
RUNS_MAX = 16  # incarnations of one agent
NAMES = "abcdefgh"

Batches = tuple[tuple[int, int], ...]
Records = dict[ChunkId, Batches]


class Commits:
    """Registrations, fences, heartbeats, a topic, and chunks of batches of one record each."""

    def __init__(
        self, targets: tuple[tuple[int, ...], ...], dedup: bool, exact: bool, companions: int = -1
    ) -> None:
        self._targets = targets
        self._dedup = dedup
        self._exact = exact
        self._companions = companions  # the handle of their partition; -1: there are none

    def held(self, records: Batches) -> Batches:
        """What a chunk of these batches holds, in its order: behind them their companions, if any."""
        return records if self._companions < 0 else records + records

    def encode(self, author: int, item: Item) -> bytes:
        """See Language."""
        kind, number, records = item
        match kind:
            case "commit":
                made = command(self._commit(number, records))
            case "register":
                most = 1 if self._companions < 0 else COMPANIONS
                agent = RegisterAgent(name=NAMES[number], node_id=-1, feature_min=1, feature_max=most)
                made = command(agent)
            case "level":
                made = command(SetFeatureLevel(level=number))
            case "fence":
                made = command(FenceIncarnation(incarnation=number))
            case "heartbeat":
                made = command(Heartbeat())
            case "topic":
                made = command(CreateTopic(name="t", topic_id=bytes(16), partitions=number))
            case _:
                raise AssertionError(f"no command {kind!r}")
        return made.SerializeToString()

    def _commit(self, number: int, records: tuple[tuple[int, int], ...]) -> CommitChunk:
        message = CommitChunk(
            number=number,
            size=FIRST_POSITION + BATCH_BYTES * len(records),
            first_position=FIRST_POSITION,
            partition=[self._targets[client][batch] for client, batch in records],
            length=[BATCH_BYTES] * len(records),
            offsets=[1] * len(records),
            max_timestamp_ms=[NOW_MS] * len(records),
        )
        if self._dedup:
            message.producer_id.extend([client for client, _ in records])
            message.producer_epoch.extend([0] * len(records))
            message.base_sequence.extend([self._sequence(client, batch) for client, batch in records])
        if self._companions >= 0:
            self._add_companions(message, len(records))
        return message

    def _add_companions(self, message: CommitChunk, count: int) -> None:
        message.size += BATCH_BYTES * count
        message.partition.extend([self._companions] * count)
        message.length.extend([BATCH_BYTES] * count)
        message.offsets.extend([1] * count)
        message.max_timestamp_ms.extend([NOW_MS] * count)
        for column in (message.producer_id, message.producer_epoch, message.base_sequence):
            column.extend([-1] * count)
        message.companion_of.extend([0] * count + list(range(1, count + 1)))

    def _sequence(self, client: int, batch: int) -> int:
        """How many batches of its client went to the same partition before."""
        targets = self._targets[client]
        return targets[:batch].count(targets[batch])

    def essence(self, node: Node) -> Hashable:
        """See Language; `notes` of a node become the records of all chunks named up to it."""
        known: Records = node.notes or {}
        if node.content is not None:
            author, _, items = node.content
            commits = ((number, records) for kind, number, records in items if kind == "commit")
            named = {ChunkId(author, number): self.held(records) for number, records in commits}
            node.notes = known = {**known, **named}
        if self._exact:
            return _canon(node.state)
        state = node.state
        incarnations = tuple(sorted((each.incarnation, each.live) for each in state.incarnations.values()))
        return incarnations, tuple(
            (self._log(state, handle, known), _producers(state, handle))
            for handle in range(len(state.partitions))
        )

    def _log(self, state: State, handle: int, known: Records) -> tuple[tuple[int, tuple[Hashable, ...]], ...]:
        """Of each slice: its author, and its records."""
        partition = state.partitions[handle]
        assert partition is not None, "topics are not deleted here"
        log = []
        for ref in partition.slices.plan(0, 1 << 60):
            assert isinstance(ref.chunk, ChunkId), "rows of a tail without transactions are in chunks"
            first = (ref.position - FIRST_POSITION) // BATCH_BYTES
            log.append((ref.chunk.incarnation, known[ref.chunk][first : first + ref.length // BATCH_BYTES]))
        return tuple(log)


def _producers(state: State, handle: int) -> Hashable:
    partition = state.partitions[handle]
    assert partition is not None, "topics are not deleted here"
    return tuple(
        (number, each.epoch, each.floor_sequence, each.last_sequence, tuple(each.recent))
        for number, each in sorted(partition.producers.items())
    )


def _canon(state: State) -> str:
    """The state without the way it came about: equal for orders that make no difference."""
    kept, state.digest = state.digest, START
    try:
        return canonical_digest(state)
    finally:
        state.digest = kept
