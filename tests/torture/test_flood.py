"""A flood of small requests: any number under way on each of many connections, as librdkafka's default is.

Begun as they come, one round of the agent's event loop would take seconds: its lease would end, its writes to
the bucket time out, and what it answers in the end nobody would wait for any more. It goes on serving, and
keeps its incarnation. The control is an agent that begins whatever it reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from tests.bench.load import PRODUCE_VERSION, decoded, produce_frame
from tests.torture.other_disk import status
from tests.torture.run import create_topic, unexplained
from tests.torture.unpaced_agent import UnpacedAgent
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

FLOODED, TOPIC, PARTITIONS = "flooded", "calm", (0, 1)
CONNECTIONS, REQUESTS = 200, 450
LEASE_S = 5


@pytest.fixture(
    params=[
        pytest.param(FloeAgent, id="takes turns"),
        pytest.param(UnpacedAgent, id="control", marks=pytest.mark.thorough),
    ]
)
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FloeAgent]:
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        settings: dict[str, Any] = {
            "log": {"url": f"etcd://{etcd.endpoint}/floe", "lease_ttl_s": LEASE_S},
            "store": {"url": f"file://{tmp_path / 'bucket'}"},
            "tables": {"enabled": False},
        }
        yield stack.enter_context(request.param("agent", settings))


def test_whoever_floods_is_served_by_turns(agent: FloeAgent, request: pytest.FixtureRequest) -> None:
    control = request.node.callspec.id == "control"
    for topic in (FLOODED, TOPIC):
        create_topic(agent.bootstrap, topic, len(PARTITIONS))
    writer = Writer("writer", agent.bootstrap, TOPIC, PARTITIONS, rate=50)
    writer.start()
    before = status(agent)["incarnation"]
    begun = time.monotonic()
    answers = asyncio.run(_flood(agent.bootstrap))
    print(f"{len(answers)} requests, {time.monotonic() - begun:.1f} s")
    writer.stop()
    after, failed = status(agent)["incarnation"], sum(map(bool, answers))
    kept = before == after and not failed
    print(f"incarnation {before}, then {after}; {failed} failed")
    assert kept is not control, f"incarnation {before}, then {after}; {failed} failed"
    if not control:
        assert len(answers) == CONNECTIONS * REQUESTS
        verdict = judge(writer.sent, read_all(agent.bootstrap, TOPIC, PARTITIONS), [])
        verdict.findings += unexplained([writer])
        assert verdict.findings == [], verdict.report()


async def _flood(bootstrap: str) -> list[int]:
    """The error codes of all answers; what a connection that ended did not get counts as one."""
    each = await asyncio.gather(*(_flood_one(bootstrap) for _ in range(CONNECTIONS)))
    return [code for codes in each for code in codes]


async def _flood_one(bootstrap: str) -> list[int]:
    host, port = bootstrap.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    batch = build([NewRecord(int(time.time() * 1000), None, b"x" * 50)])
    writer.write(produce_frame(FLOODED, batch, [0]) * REQUESTS)
    codes: list[int] = []
    try:
        for _ in range(REQUESTS):
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = decoded("Produce", PRODUCE_VERSION, await reader.readexactly(size))
            codes.append(answer.responses[0].partition_responses[0].error_code)
    except (ConnectionError, asyncio.IncompleteReadError):
        codes.append(-1)
    writer.close()
    return codes
