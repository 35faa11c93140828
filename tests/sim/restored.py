"""etcd is restored from a backup when a run is over and judged, as docs/operations.md says, with one mistake.

Records are acknowledged after the backup; then the log is at the backup again. One agent was forgotten and
stands still meanwhile. Whoever is started while a newer snapshot lies in the bucket must refuse. Then is done
what the docs say: newer snapshots go, objects that were deleted since the backup come back from the bucket's
versions, the others start and write on, past the revision that the forgotten one knows. It wakes: it must
notice, and stop. In the end exactly what was there at the backup is there, and what was written since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from coordination.log import LogRegressed
from objectstore.merged import MergedRanges
from objectstore.naming import parse_snapshot_key
from objectstore.reader import ChunkReader
from tests.checker.findings import Finding
from tests.sim.audit import CACHE_BYTES, Readers, agree, audit
from tests.sim.clients import SHORT, stopped
from tests.sim.node import AgentNode
from tests.sim.pairs import overlaps
from tests.sim.relay import COPIES

if TYPE_CHECKING:
    from tests.sim.world import World

WRITES, LOST, KEPT = 6, "lost", "kept"
SNAPSHOT_S = 3.0
"""Longer than the time between two snapshots."""
REFUSED_S = 3.0
READY_S_MAX = 40.0
NOTICED_S_MAX = 10.0
ROUNDS_MAX = 40
Contents = Mapping[int, Mapping[int, bytes | None]]
"""By handle the values by offset."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What one agent has."""

    contents: Contents
    positions: Mapping[tuple[str, int], int]


async def play(world: World) -> list[Finding]:
    """The whole story; what was wrong."""
    findings: list[Finding] = []
    before = await _found(world, world.agents[0])
    backup, revision = world.server.backup(), world.server.revision
    bucket = dict(world.objects._objects)
    await _written(world, LOST)
    await asyncio.sleep(SNAPSHOT_S)
    forgotten = world.loop.random.choice(world.agents)
    others = [each for each in world.agents if each is not forgotten]
    await _until(lambda: _through(forgotten) == world.server.revision, READY_S_MAX)  # nothing is on its way
    world.loop.pause(forgotten.identity)
    stood, author = _through(forgotten), forgotten.app.replica.incarnation if forgotten.app else 0
    for agent in others:
        agent.crash()
    world.trace(f"restore the log from {world.server.revision} to {revision}")
    world.seen.counts["restored"] += 1
    overlaps.restored(world)
    world.server.restore(backup)
    world.witness.restored(revision)
    findings += await _refused(world, others[0])
    for key in [key for key in world.objects._objects if _newer(key, revision)]:
        del world.objects._objects[key]
    _bring_back(world, bucket, revision)
    findings += await _served(others)
    if not findings:
        findings += await _written_past(world, forgotten)
    world.loop.resume(forgotten.identity)
    findings += await _noticed(world, forgotten, stood)
    for key in [key for key in world.objects._objects if _newer(key, revision) and _of(key, author)]:
        world.seen.counts["restored snapshot of the lost log"] += 1
        del world.objects._objects[key]  # it wrote one before it looked: who starts would refuse it
    _bring_back(world, bucket, revision)  # again: the forgotten one may have deleted, too
    forgotten.crash()
    forgotten.start()
    findings += await _served(world.agents)
    if not findings:
        findings += _judged(before, await _found(world, world.agents[0]))
        seen = world.witness
        findings += await audit(world.agents, world.objects, world.ledger, seen.truths, seen.mortal.was_start)
    return findings


def _bring_back(world: World, bucket: Mapping[str, Any], revision: int) -> None:
    """What was deleted since the backup, snapshots among it that the log needs."""
    world.objects._objects |= {key: each for key, each in bucket.items() if not _newer(key, revision)}


def _newer(key: str, revision: int) -> bool:
    snapshot = parse_snapshot_key(key)
    return snapshot is not None and snapshot.revision > revision


def _of(key: str, author: int) -> bool:
    snapshot = parse_snapshot_key(key)
    return snapshot is not None and snapshot.incarnation == author


async def _found(world: World, agent: AgentNode) -> _Found:
    """Every committed record of the topics that nothing is deleted from, and the positions of all groups."""
    app = agent.app
    assert app is not None, "it serves"
    state = app.replica.state
    ranges, chunks = MergedRanges(world.objects), ChunkReader(world.objects, CACHE_BYTES)
    readers, contents = Readers(ranges, chunks), {}
    for topic in (world.around.keys.every[0].topic if world.around else "", COPIES):
        for partition in state.topics[topic].partitions:
            contents[partition.handle] = {each.offset: each.value for each in await readers.all(partition)}
    await ranges.close()
    await chunks.close()
    positions = {
        (group.group_id, handle): offset
        for group in state.groups.values()
        for handle, offset in zip(group.offsets.handles, group.offsets.offsets, strict=True)
    }
    return _Found(contents, positions)


async def _written(world: World, what: str) -> int:
    """Some records into the judged topic; how many were acknowledged."""
    return int(await world._node(what, _write(world, what)))


async def _write(world: World, what: str) -> int:
    around = world.around
    assert around is not None, "the world ran"
    producer: Any = AIOKafkaProducer(bootstrap_servers=around.bootstrap, client_id=what, **SHORT)
    done = 0
    try:
        await producer.start()
        for number in range(WRITES):
            value = f"{what}.{number}".encode()
            stamp_ms = around.timestamp()
            topic = around.keys.every[0].topic
            await producer.send_and_wait(topic, value, partition=0, timestamp_ms=stamp_ms)
            done += 1
    except (KafkaError, OSError, TimeoutError):
        pass  # one agent of them stands still, and it may be the leader
    finally:
        await stopped(producer)
    return done


async def _refused(world: World, agent: AgentNode) -> list[Finding]:
    """Who starts refuses while a snapshot is newer than the log."""
    if not any(_newer(key, world.server.revision) for key in world.objects._objects):
        return []
    agent.start()
    await asyncio.sleep(REFUSED_S)
    served, error = _ready(agent), agent.error
    agent.crash()
    world.seen.counts["restored refused"] += 1
    if served or not isinstance(error, LogRegressed):
        told = f"{agent.name} begins behind a newer snapshot: {error!r}"
        return [Finding("restored-unnoticed", "", told, ())]
    return []


async def _served(agents: Sequence[AgentNode]) -> list[Finding]:
    """All of them serve, those that are down are started."""
    for agent in agents:
        if not agent.alive:
            agent.start()
    if await _until(lambda: all(_ready(each) for each in agents), READY_S_MAX):
        return []
    late = [f"{each.name}: {each.error!r}" for each in agents if not _ready(each)]
    return [Finding("stuck", "", f"not ready {READY_S_MAX:.0f} s after the log was restored: {late}", ())]


async def _written_past(world: World, forgotten: AgentNode) -> list[Finding]:
    """Write until the log is further than the forgotten agent was.

    And not trimmed exactly through where it stood: then nobody can tell (docs/operations.md).
    """
    assert forgotten.app is not None, "it served"
    acknowledged, past = 0, _through(forgotten) + 1
    for _ in range(ROUNDS_MAX):
        acknowledged += await _written(world, KEPT)
        unknowable = forgotten.app.replica.state.revision <= world.server.trimmed < past
        if acknowledged and world.server.revision > past and not unknowable:
            return []
        await asyncio.sleep(0.2)
    return [Finding("stuck", "", f"the restored log stays at {world.server.revision} of {past}", ())]


async def _noticed(world: World, agent: AgentNode, stood: int) -> list[Finding]:
    """It stops, and says why; or loads a snapshot of the restored log, where that is trimmed past it."""
    await _until(lambda: agent.error is not None, NOTICED_S_MAX)
    error = agent.error
    if isinstance(error, LogRegressed):
        return []
    if error is None and world.server.trimmed > stood:
        world.seen.counts["restored loaded"] += 1
        return await agree(world.agents)
    return [Finding("restored-unnoticed", "", f"{agent.name} goes on with another log: {error!r}", ())]


def _judged(before: _Found, after: _Found) -> list[Finding]:
    """What was there is there, as it was; what is new was written since."""
    wrong = []
    for handle, values in before.contents.items():
        found = after.contents.get(handle, {})
        wrong += [f"partition {handle}, {at}: {values[at]!r} is {found.get(at)!r}"
                  for at in values if found.get(at, b"gone") != values[at]]  # fmt: skip
        new = {at: value for at, value in found.items() if at not in values}
        wrong += [f"partition {handle}, {at}: {value!r} came from nowhere"
                  for at, value in new.items() if not (value or b"").startswith(KEPT.encode())]  # fmt: skip
    wrong += [f"position {key}: {at}, then {after.positions.get(key)}"
              for key, at in before.positions.items() if after.positions.get(key) != at]  # fmt: skip
    return [Finding("restored-wrong", "", each, ()) for each in wrong]


def _through(agent: AgentNode) -> int:
    """What it was told of the log; what still comes behind the restore would be of the lost one, rightly."""
    assert agent.app is not None, "it serves"
    return agent.app.replica.revision


def _ready(agent: AgentNode) -> bool:
    started = agent.started is not None and agent.started.done() and agent.started.exception() is None
    return started and agent.app is not None and agent.app.replica.ready


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it comes true within so long."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - polls a state
                await asyncio.sleep(0.1)
    except TimeoutError:
        return False
    return True
