"""What must hold in every world, whatever happened: rules 1 to 4 and 9."""

from __future__ import annotations

from agent.fetch.planner import Wanted, plan_fetch
from coordination.state import Partition
from tests.explore.history import History
from tests.explore.moves import BATCH_BYTES, FIRST_POSITION, Scope
from tests.explore.world import World

Record = tuple[int, int]


def findings(world: World, history: History, scope: Scope) -> list[str]:
    """What is wrong, each with its anomaly's name first (CORRECTNESS §3's, where it has one)."""
    found: list[str] = []
    stored = {each.chunk: each for each in world.stored}
    logs: list[list[Record | None]] = []
    for partition in history[world.etcd.head].state.partitions:
        assert partition is not None, "topics are not deleted here"
        log: list[Record | None] = []
        for ref in partition.slices.plan(0, 1 << 60):
            chunk = stored.get(ref.chunk)
            first = (ref.position - FIRST_POSITION) // BATCH_BYTES
            count = ref.length // BATCH_BYTES
            if chunk is None or not chunk.there:
                found.append(f"lost-write: offset {ref.base_offset} is in {ref.chunk}, which is not there")
                log += [None] * count
            else:
                log += chunk.records[first : first + count]
        logs.append(log)
        found += _fetchable(partition, len(log))
    return found + _clients(world, logs, scope)


def _fetchable(partition: Partition, records: int) -> list[str]:
    """Rule 7: whatever offset is asked for, the plan begins with the slice that holds it."""
    found = []
    for offset in range(records):
        plan = plan_fetch([Wanted(partition, offset, 1)], 1, False).partitions[0]
        if plan.code or not plan.slices or not plan.slices[0].base_offset <= offset < plan.slices[0].end_offset:
            found.append(f"poll-skip: a fetch of offset {offset} plans {plan.slices} with code {plan.code}")
    return found


def _clients(world: World, logs: list[list[Record | None]], scope: Scope) -> list[str]:
    found = []
    for log in logs:
        seen = [record for record in log if record is not None]
        found += [f"duplicate: {record}" for record in set(seen) if seen.count(record) > 1]
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
