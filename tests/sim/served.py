"""A copy that was promoted is served by agents of its own, and written to, as it is after a restore.

The new log is empty, behind the revision at which the state was made anew; the bucket is bound to it. What
clients read there is what the state promises, and what is acknowledged there stays, at its offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from coordination.memory_server import MemoryServer
from coordination.snapshot import encode
from coordination.state import State
from objectstore import fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.fingerprint import Fingerprint
from objectstore.naming import snapshot_key
from tests.checker.findings import Finding
from tests.sim.audit import agree
from tests.sim.clients import SHORT, stopped
from tests.sim.clock import START_MS
from tests.sim.queues import _everything
from tests.sim.second import Second

if TYPE_CHECKING:
    from tests.sim.world import World

FIRST, AUTHOR = 70, 7
"""Number of the promoted cluster's first agent, and the incarnation that wrote its snapshot."""
LOG = "promoted"
WRITES = 4
KINDS: tuple[dict[str, str], ...] = ({}, {"transactional_id": "promoted"})
"""Of producers."""
Contents = Mapping[tuple[str, int], Mapping[int, bytes | None]]


async def judged(world: World, bucket: MemoryStore, state: State, due: Contents) -> list[Finding]:
    """Promote the bucket with this state, which has `due`; what its agents make of it."""
    around = world.around
    assert around is not None, "the world ran"
    bucket._now_ms = lambda: START_MS + int(world.loop.time() * 1000)
    await bucket.put(snapshot_key(state.revision, AUTHOR), [encode(state)])
    found, etag = await fingerprint.stored(bucket)
    await fingerprint.replace(bucket, Fingerprint(found.cluster, found.cluster_id, f"memory:{LOG}"), etag)
    server = MemoryServer(LOG)
    log = server._state
    log.revision = log.trimmed = log.compacted = state.revision
    second = Second(world, FIRST, server, bucket)
    there = second.around(around)
    if not await second.healed():
        return second.findings
    world.seen.counts["promoted served"] += 1
    findings = [*second.findings, *await _as_due(there, due, "before it was written to")]
    topic = around.keys.every[0].topic
    written = {} if findings else await _written(there, topic, len(state.topics[topic].partitions))
    world.seen.counts["promoted records written"] += sum(map(len, written.values()))
    if not findings:
        findings += await _as_due(there, {key: {**due[key], **more} for key, more in written.items()}, "then")
        findings += await agree(second.agents)
    for agent in second.agents:
        agent.crash()
    return findings


async def _as_due(there: Any, due: Contents, when: str) -> list[Finding]:
    """Whatever a client must find, it finds."""
    findings: list[Finding] = []
    for (topic, index), values in due.items():
        try:
            read = await _everything(there, TopicPartition(topic, index))
        except (KafkaError, OSError, TimeoutError) as error:
            told = f"{topic}-{index} cannot be read, {when}: {error!r}"
            findings.append(Finding("promoted-lost", "", told, ()))
            continue
        found = {each.offset: each.value for each in read}
        lost = {at: value for at, value in values.items() if found.get(at, b"no record") != value}
        if lost:
            told = f"{topic}-{index}, {when}: not as it was acknowledged: {dict(sorted(lost.items()))}"
            findings.append(Finding("promoted-lost", "", told[:300], ()))
    return findings


async def _written(there: Any, topic: str, partitions: int) -> dict[tuple[str, int], dict[int, bytes]]:
    """Some records into each partition, some of them in a transaction, by offset: those acknowledged."""
    done: dict[tuple[str, int], dict[int, bytes]] = {}
    for transactional in KINDS:
        producer: Any = AIOKafkaProducer(
            bootstrap_servers=there.bootstrap, client_id="promoted", **SHORT, **transactional
        )
        try:
            await producer.start()
            if transactional:
                await producer.begin_transaction()
            sent: dict[tuple[str, int], dict[int, bytes]] = {}
            for index in range(partitions):
                for number in range(WRITES):
                    value = f"promoted {len(transactional)}.{number}".encode()
                    told = await producer.send_and_wait(
                        topic, value, partition=index, timestamp_ms=there.timestamp()
                    )
                    sent.setdefault((topic, index), {})[told.offset] = value
            if transactional:
                await producer.commit_transaction()
            for key, values in sent.items():
                done.setdefault(key, {}).update(values)
        except (KafkaError, OSError, TimeoutError):
            continue  # what was not acknowledged is nobody's
        finally:
            await stopped(producer)
    return done
