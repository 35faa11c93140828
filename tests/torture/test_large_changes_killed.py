"""One request far beyond what etcd takes at once; its agent dies on the way (rule 12, KIP-868).

Thousands of topics are created, altered, grown or deleted by one request to one agent, which is killed with
SIGKILL at a step of the change. Another agent is read all the while: it shows the state before or the state
after, never a part of the change, and forgets what the dead one had begun. The client's retry succeeds.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.net.wire.generated import metadata as m
from coordination.clock import SystemClock
from coordination.commands import Entry
from coordination.etcd.log import ENTRY_BYTES_MAX
from coordination.kafka_codes import Code
from coordination.open import open_log
from coordination.replica.proposals import PART_BYTES_MAX
from deploy.services import Etcd, Minio
from tests.compat.cluster import Cluster, status
from tests.compat.raw import call
from tests.torture.crashing_agent import ALL_STEPS, Armed, CrashingAgent

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

FULL = os.environ.get("TORTURE") == "full"
COUNT = 6_800  # topics; requests of each kind weigh 1.7 to 1.9 MB as commands: four parts
NAME_LENGTH = 240  # characters
WAIT_S_MAX = 200
PAUSE_S = 0.05  # between two looks, so that looking does not take a core for itself
RETENTION, BEFORE, AFTER = "retention.ms", "604800000", "7000"
TOPIC = 2  # as a kind of resource
ARRIVED = {("begin", 1): 0, ("part", 2): 1, ("part", 3): 2, ("end", 1): 2, ("ended", 1): 4}
"""By the step of the death, and how often it was reached: parts that are in the log then. The last two parts
travel in one entry with the end."""


@dataclass(frozen=True)
class View:
    """What one look at the cluster shows: topics, their partitions in sum, the configs of a few."""

    topics: int
    partitions: int
    configs: frozenset[str | None]


@dataclass(frozen=True)
class Change:
    """A request for these names, the version it is sent in, where its answer has its rows."""

    api: str
    version: int
    rows: str
    request: Callable[[list[str]], Any]
    again: Code  # what a retry is told when the change had been made
    before: View
    after: View


def create(names: list[str]) -> ct.CreateTopicsRequest:
    return ct.CreateTopicsRequest([ct.CreatableTopic(name, 1, -1) for name in names], 60_000)


def alter(names: list[str]) -> ia.IncrementalAlterConfigsRequest:
    set_to = [ia.AlterableConfig(RETENTION, 0, AFTER)]
    return ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(TOPIC, n, set_to) for n in names])


def grow(names: list[str]) -> cp.CreatePartitionsRequest:
    return cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, 2, None) for name in names], 60_000)


def delete(names: list[str]) -> dt.DeleteTopicsRequest:
    return dt.DeleteTopicsRequest([dt.DeleteTopicState(name=name) for name in names], timeout_ms=60_000)


NOTHING = View(0, 0, frozenset())
MADE = View(COUNT, COUNT, frozenset({BEFORE}))
ALTERED = View(COUNT, COUNT, frozenset({AFTER}))
GROWN = View(COUNT, 2 * COUNT, frozenset({AFTER}))
CHANGES = {
    "create": Change("CreateTopics", 4, "topics", create, Code.TOPIC_ALREADY_EXISTS, NOTHING, MADE),
    "alter": Change("IncrementalAlterConfigs", 1, "responses", alter, Code.NONE, MADE, ALTERED),
    "grow": Change("CreatePartitions", 3, "results", grow, Code.INVALID_PARTITIONS, ALTERED, GROWN),
    "delete": Change("DeleteTopics", 6, "responses", delete, Code.UNKNOWN_TOPIC_OR_PARTITION, GROWN, NOTHING),
}
CASES = [(name, step, times) for name in CHANGES for step, times in ARRIVED] if FULL else [
    ("create", "part", 2), ("alter", "end", 1), ("alter", "ended", 1),
]  # fmt: skip


class Pair:
    """Two agents: `victim` is asked and dies, `witness` is looked at."""

    def __init__(self, cluster: Cluster, armed: Armed) -> None:
        self.armed = armed
        self.victim, self.witness = cluster.agents
        self.log_url = cluster.log_url

    async def see(self, names: list[str]) -> View:
        """One look."""
        everything = await call(self.witness.bootstrap, "Metadata", m.MetadataRequest(None, False), 12)
        few = [names[0], names[len(names) // 2], names[-1]]
        asked = [dc.DescribeConfigsResource(TOPIC, name, [RETENTION]) for name in few]
        told = await call(self.witness.bootstrap, "DescribeConfigs", dc.DescribeConfigsRequest(asked), 4)
        values = frozenset(c.value for row in told.results for c in row.configs)
        return View(len(everything.topics), sum(len(t.partitions) for t in everything.topics), values)

    async def ask(self, change: Change, names: list[str]) -> set[int]:
        """The codes of all rows."""
        answer = await call(self.victim.bootstrap, change.api, change.request(names), change.version)
        return {row.error_code for row in getattr(answer, change.rows)}


class Views:
    """Looks at the witness as often as it answers; `seen`: what was shown, each but once in a row.

    Metadata and configs are asked one after the other, so a change may come between: then once more.
    """

    def __init__(self, pair: Pair, names: list[str], possible: Sequence[View]) -> None:
        self.seen: list[View] = []
        self._pair, self._names, self._possible = pair, names, possible
        self._newer = asyncio.Condition()

    async def __aenter__(self) -> Views:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, view: View) -> None:
        """Return when this is what is shown."""
        looks = 0
        async with self._newer:
            while looks < 2 or self.seen[-1] != view:  # a look that began before counts for nothing
                assert not self._task.done(), self._task
                await self._newer.wait()
                looks += 1

    async def _look(self) -> None:
        while True:
            view = await self._pair.see(self._names)
            if view not in self._possible:
                view = await self._pair.see(self._names)
            async with self._newer:
                if self.seen[-1:] != [view]:
                    self.seen.append(view)
                self._newer.notify_all()
            await asyncio.sleep(PAUSE_S)


async def parts_of(log_url: str, after: int, incarnation: int) -> list[int]:
    """The bytes of each part that this author has in the log."""
    log = open_log(log_url, SystemClock())
    try:
        newest, sizes, reached = await log.current(), [], after
        async for entries in log.follow(after):
            for each in entries.entries:
                assert len(each.payload) <= ENTRY_BYTES_MAX
                if each.incarnation == incarnation:
                    commands = Entry.FromString(each.payload).commands
                    sizes += [len(c.part.content) for c in commands if c.WhichOneof("kind") == "part"]
            reached = max(reached, entries.through)
            if reached >= newest:
                return sizes
        raise AssertionError("the log ends nowhere")
    finally:
        await log.close()


@pytest.fixture(scope="module")
def pair(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("large")
    armed = Armed(directory / "armed")

    class Agent(CrashingAgent):
        """Knows where the armed step is written."""

    Agent.armed = armed.path
    with Cluster(etcd, minio, 2, directory, Agent) as cluster:
        yield Pair(cluster, armed)


@pytest.mark.parametrize(("name", "step", "times"), CASES)
async def test_a_large_change_whose_agent_dies(pair: Pair, name: str, step: str, times: int) -> None:
    change = CHANGES[name]
    names = [f"{step}{times}-{number:05}".ljust(NAME_LENGTH, "x") for number in range(COUNT)]
    for earlier in itertools.takewhile(lambda each: each != name, CHANGES):
        assert await pair.ask(CHANGES[earlier], names) == {0}
    start, incarnation = status(pair.witness)["revision"], int(status(pair.victim)["incarnation"], 16)
    made = step == "ended"  # the end is in the log, but the client was not told
    pair.armed.arm(f"change/{step}", times)
    async with asyncio.timeout(WAIT_S_MAX), Views(pair, names, (change.before, change.after)) as views:
        await views.until(change.before)
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await pair.ask(change, names)
        while pair.victim.ended_by_itself is None:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.02)
        assert pair.victim.ended_by_itself == -signal.SIGKILL, pair.victim.log_tail()
        await views.until(change.after if made else change.before)
        await asyncio.to_thread(pair.victim.restart)  # which fences the one that died
        assert await pair.ask(change, names) == {change.again if made else Code.NONE}
        await views.until(change.after)
        assert status(pair.witness)["open_changes"] == 0, "the dead one's parts are forgotten"
    assert views.seen == [change.before, change.after], "the state before, the state after, nothing else"
    arrived = await parts_of(pair.log_url, start, incarnation)
    assert len(arrived) == ARRIVED[step, times]
    assert all(size <= PART_BYTES_MAX for size in arrived)
    if name != "delete":
        assert await pair.ask(CHANGES["delete"], names) == {0}


def test_a_death_at_every_step_of_a_change_is_tried() -> None:
    assert {f"change/{step}" for step, _ in ARRIVED} == {s for s in ALL_STEPS if s.startswith("change/")}
