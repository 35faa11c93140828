"""Consumer groups: commits of positions, a member that joins a large group, a coordinator that is killed.

The members are raw frames in this process (tests/equipment/group_members.py). What a join takes is mostly the
time until members hear of it with their next heartbeat, which is the same for both brokers.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated import offset_commit as oc
from deploy.services import Etcd, Minio
from deploy.services.kafka import Kafka
from tests.bench.figure import ROUNDS, Figure, interleaved, median
from tests.bench.load import cpu_seconds, create_topic
from tests.compat.cluster import Cluster
from tests.compat.raw import set_broker_config
from tests.equipment.group_members import Crowd, coordinator_of

GROUPS, ROUNDS_OF_COMMITS, CONNECTIONS = 200, 150, 8
MEMBERS, PARTITIONS = 100, 1_000
HEARTBEAT_S = 0.5
SESSION_MS = 30_000  # nobody is taken for dead on a busy machine
TTL_S = 6
COMMIT_VERSION = 8
SIZE_BYTES = 4
DELAY = "group.initial.rebalance.delay.ms"
_numbers = itertools.count(1)


def commit_frame(group: str, topic: str) -> bytes:
    """OffsetCommit of one position, from outside of the group's membership."""
    row = oc.OffsetCommitRequestPartition(0, 1)
    request = oc.OffsetCommitRequest(group, topics=[oc.OffsetCommitRequestTopic(topic, partitions=[row])])
    api = BY_NAME["OffsetCommit"]
    header = encode_request_header(api, COMMIT_VERSION, 1, "bench")
    return frame_request(header, api.codec().encode_request(request, COMMIT_VERSION))


def check(answer: bytes) -> None:
    """An OffsetCommit answer without errors."""
    api = BY_NAME["OffsetCommit"]
    _, start = parse_response_header(api, COMMIT_VERSION, answer)
    decoded = oc.decode_response(memoryview(answer)[start:], COMMIT_VERSION)
    codes = [part.error_code for topic in decoded.topics for part in topic.partitions]
    assert codes == [0], codes


async def commit_all(bootstrap: str, frames: Sequence[bytes], rounds: int) -> None:
    """Send every frame so often on one connection; of each, one is unanswered at a time.

    Answers of commits that were taken are alike, byte for byte, so only the first one is decoded.
    """
    host, port = bootstrap.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    writer.write(b"".join(frames))
    first = b""
    for number in range(len(frames) * rounds):
        size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
        answer = await reader.readexactly(size)
        if not first:
            check(answer)
            first = answer
        assert answer == first, answer
        if number < len(frames) * (rounds - 1):
            writer.write(frames[number % len(frames)])
    writer.close()
    await writer.wait_closed()


async def commits_per_s(bootstrap: str) -> float:
    """Commits of one position, by 200 groups at once."""
    topic = f"positions-{next(_numbers)}"
    await create_topic(bootstrap, topic, 1)
    frames = [commit_frame(f"{topic}-group-{number}", topic) for number in range(GROUPS)]
    await commit_all(bootstrap, frames, 2)
    begin = time.perf_counter()
    shares = [frames[place::CONNECTIONS] for place in range(CONNECTIONS)]
    await asyncio.gather(*[commit_all(bootstrap, share, ROUNDS_OF_COMMITS) for share in shares])
    return GROUPS * ROUNDS_OF_COMMITS / (time.perf_counter() - begin)


async def one_more(bootstrap: str) -> float:
    """100 members share 1,000 partitions; one comes: seconds until all own their share."""
    topic = f"shared-{next(_numbers)}"
    await create_topic(bootstrap, topic, PARTITIONS)
    crowd = Crowd(
        bootstrap, f"{topic}-group", {topic: PARTITIONS}, heartbeat_s=HEARTBEAT_S, session_ms=SESSION_MS
    )
    try:
        for _ in range(MEMBERS):
            crowd.add()
        await crowd.settled(120)
        begin = time.perf_counter()
        crowd.add()
        await crowd.settled(120)
        return time.perf_counter() - begin
    finally:
        await crowd.stop()


async def until_commits_again(cluster: Cluster) -> float:
    """A group's coordinator is killed: seconds until its member's commits succeed again."""
    topic = f"killed-{next(_numbers)}"
    await create_topic(cluster.agents[0].bootstrap, topic, 1)
    crowd = Crowd(cluster.bootstrap, f"{topic}-group", {topic: 1}, session_ms=SESSION_MS)
    member = crowd.add()
    try:
        await crowd.settled()
        number = (topic, 0)
        assert await member.commit({number: 1}) == 0
        where = await coordinator_of(cluster.bootstrap.split(","), crowd.group)
        victim = next(agent for agent in cluster.agents if agent.bootstrap == where)
        await asyncio.to_thread(victim.kill)
        begin, code = time.perf_counter(), -1
        while code:
            try:
                code = await member.commit({number: 2})
            except (OSError, asyncio.IncompleteReadError):
                await member.reconnect()
            await asyncio.sleep(0.02)
        taken = time.perf_counter() - begin
        assert member.generation == 1, "no rebalance"
        await asyncio.to_thread(victim.start)
    finally:
        await crowd.stop()
    return taken


def figures() -> Iterable[Figure]:
    """Commits and what they cost; a join against Kafka; a kill beside the lease."""
    with TemporaryDirectory() as folder, Etcd() as etcd, Minio() as minio:
        with Cluster(etcd, minio, agents=1) as one, Kafka(settings=(f"{DELAY}=500",)) as kafka:
            agent = one.agents[0]
            assert asyncio.run(set_broker_config(agent.bootstrap, DELAY, "500")) == 0
            cpu: list[float] = []

            def commits() -> float:
                before = cpu_seconds(agent.pid)
                speed = asyncio.run(commits_per_s(agent.bootstrap))
                cpu.append((cpu_seconds(agent.pid) - before) / (GROUPS * (ROUNDS_OF_COMMITS + 2)) * 1e6)
                return speed

            yield Figure("offset commits, 200 groups", median(commits), "commits/s", goal=5_000)
            yield Figure("agent CPU of an offset commit", statistics.median(cpu), "µs", better="less")
            ours, theirs = interleaved(
                [
                    lambda: asyncio.run(one_more(agent.bootstrap)),
                    lambda: asyncio.run(one_more(kafka.bootstrap)),
                ]
            )
            yield Figure(
                "classic group, 100 members of 1,000 partitions, one more: until all own their share",
                ours,
                "s",
                peer="Apache Kafka",
                peer_value=theirs,
                goal=1.0,
                better="less",
            )
        with Cluster(etcd, minio, directory=Path(folder), lease_ttl_s=TTL_S) as two:
            assert asyncio.run(set_broker_config(two.agents[0].bootstrap, DELAY, "500")) == 0
            taken = [asyncio.run(until_commits_again(two)) for _ in range(ROUNDS)]
        yield Figure(
            f"group coordinator killed: until commits succeed again (lease {TTL_S} s)",
            statistics.median(taken),
            "s",
            goal=2 * TTL_S,
            better="less",
        )
