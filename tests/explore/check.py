"""What must hold in every world, whatever happened: rules 1 to 4, 7 and 9."""

from __future__ import annotations

from collections import Counter

from agent.kafka.fetch.planner import Wanted, plan_fetch
from coordination.state import Partition
from objectstore.naming import ChunkId
from tests.explore.agents import Scope
from tests.explore.history import History
from tests.explore.language import BATCH_BYTES, FIRST_POSITION, NAMES
from tests.explore.world import Stored, World

Record = tuple[int, int]
Chunks = dict[ChunkId, Stored]


def findings(world: World, history: History, scope: Scope) -> list[str]:
    """What is wrong, each with its anomaly's name first (CORRECTNESS §3's, where it has one)."""
    found: list[str] = []
    stored: Chunks = {each.chunk: each for each in world.stored}
    logs: list[list[Record | None]] = []
    for partition in history[world.etcd.head].state.partitions:
        assert partition is not None, "topics are not deleted here"
        log = _read(partition, stored, found)
        logs.append(log)
        for number, node in enumerate(world.nodes):
            behind = history[node].state.partitions[partition.handle]
            assert behind is not None, "topics are not deleted here"
            found += _consumer(NAMES[number], behind, log, stored)
    return found + _clients(world, logs, scope)


def _read(partition: Partition, stored: Chunks, found: list[str]) -> list[Record | None]:
    """The partition's records, None where they are gone."""
    log: list[Record | None] = []
    for ref in partition.slices.plan(0, 1 << 60):
        assert isinstance(ref.chunk, ChunkId), "rows of a tail without transactions are in chunks"
        chunk = stored.get(ref.chunk)
        first = (ref.position - FIRST_POSITION) // BATCH_BYTES
        count = ref.length // BATCH_BYTES
        if chunk is None:
            found.append(f"lost-write: offset {ref.base_offset} is in {ref.chunk}, which is not there")
            log += [None] * count
        else:
            log += chunk.records[first : first + count]
    return log


def _consumer(agent: str, partition: Partition, log: list[Record | None], stored: Chunks) -> list[str]:
    """Rules 5 and 7, for a consumer at any place, through an agent that may be behind.

    It gets the record of its offset, the same that everybody gets there, or nothing yet.
    """
    found = []
    for offset, record in enumerate(log):
        planned = plan_fetch([Wanted(partition, offset, 1)], 1, False).partitions[0]
        if offset > partition.high_watermark:
            continue  # out of range for this state: the agent asks the log first, and plans again
        if offset == partition.high_watermark:
            if planned.code or planned.slices:
                found.append(f"phantom-read: {agent} gives {planned.slices}, {planned.code} at its watermark")
            continue
        if planned.code or not planned.slices:
            found.append(
                f"poll-skip: a fetch of offset {offset} from {agent} plans nothing, code {planned.code}"
            )
            continue
        ref = planned.slices[0]
        assert isinstance(ref.chunk, ChunkId), "rows of a tail without transactions are in chunks"
        chunk = stored.get(ref.chunk)
        place = (ref.position - FIRST_POSITION) // BATCH_BYTES + offset - ref.base_offset
        if not ref.base_offset <= offset < ref.end_offset:
            found.append(f"poll-skip: a fetch of offset {offset} from {agent} plans {ref}")
        elif chunk is not None and chunk.records[place] != record:
            found.append(
                f"inconsistent-offset: {agent} reads {chunk.records[place]} at {offset}, not {record}"
            )
    return found


def parked_for_ever(world: World) -> list[str]:
    """Entries that nothing answers any more: an agent that waits for one says no more what it has applied."""
    return [
        f"stuck: {NAMES[number]} counts as {agent.incarnation:x} and waits for entry {each.sequence} of "
        f"{each.incarnation:x}"
        for number, agent in enumerate(world.agents)
        if agent.registered
        for each in agent.parked
        if each.incarnation != agent.incarnation
    ]


def _torn(logs: list[list[Record | None]]) -> list[str]:
    """The last partition has the companions of what is in the others: of each, and of no other."""
    *leaders, companions = (Counter(each for each in log if each is not None) for log in logs)
    there = sum(leaders, Counter[Record]())
    return [] if companions == there else [f"torn-batch: companions of {companions}, batches {there}"]


def _clients(world: World, logs: list[list[Record | None]], scope: Scope) -> list[str]:
    found = []
    for log in logs:
        seen = [record for record in log if record is not None]
        found += [f"duplicate: {record}" for record in set(seen) if seen.count(record) > 1]
    if scope.companions:
        found += _torn(logs)
    for number, client in enumerate(world.clients):
        for batch, base in enumerate(client.acked):
            log = logs[scope.targets[number][batch]]
            if base >= len(log) or log[base] != (number, batch):
                found.append(f"lost-write: {number}.{batch} was acknowledged at {base}, the log is {log}")
        for log in logs:
            own = [record[1] for record in log if record is not None and record[0] == number]
            if own != sorted(own):
                found.append(f"nonmonotonic-send: client {number}'s batches stand as {own}")
    return sorted(found)
