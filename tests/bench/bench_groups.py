"""Consumer groups: commits of positions, a member that joins a large group, a coordinator that is killed."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.wire.api import BY_NAME
from agent.wire.frame import encode_request_header, frame_request
from agent.wire.generated import offset_commit as oc
from deploy.services import Etcd, Minio
from deploy.services.kafka import Kafka
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import cpu_seconds, create_topic
from tests.compat.cluster import Cluster
from tests.compat.raw import set_broker_config
from tests.equipment.group_members import ClassicMember, Crowd, Line, coordinator_of

GROUPS, COMMITS, CONNECTIONS = 200, 40_000, 8
MEMBERS, PARTITIONS = 100, 1_000
HEARTBEAT_S = 0.5
TTL_S = 6
COMMIT_VERSION = 8
DELAY = "group.initial.rebalance.delay.ms"


def commit_frame(group: str, topic: str, partition: int, offset: int) -> bytes:
    """OffsetCommit of one position, from outside of the group's membership."""
    row = oc.OffsetCommitRequestPartition(partition, offset)
    request = oc.OffsetCommitRequest(group, topics=[oc.OffsetCommitRequestTopic(topic, partitions=[row])])
    api = BY_NAME["OffsetCommit"]
    header = encode_request_header(api, COMMIT_VERSION, 1, "bench")
    return frame_request(header, api.codec().encode_request(request, COMMIT_VERSION))


async def commit_all(bootstrap: str, frames: Sequence[bytes], rounds: int) -> None:
    """Send every frame so often; of each, one is unanswered at a time. Answers are alike, byte for byte."""
    host, port = bootstrap.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    writer.write(b"".join(frames))
    (size,) = (int.from_bytes(await reader.readexactly(4), "big"),)
    first = await reader.readexactly(size)
    assert first.endswith(b"\x00\x00\x00\x00\x00"), first  # partition 0, error 0, and no tagged fields
    expected = first
    answers = len(frames) * rounds - 1
    for number in range(answers):
        size = int.from_bytes(await reader.readexactly(4), "big")
        answer = await reader.readexactly(size)
        assert answer[-4:] == expected[-4:], answer
        if number < answers - len(frames) + 1:
            writer.write(frames[(number + 0) % len(frames)])
    writer.close()
    await writer.wait_closed()
