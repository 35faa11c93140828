"""How many idempotent producers are remembered has a bound, and forgetting them takes small steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordination import jobs
from coordination.clock import ManualClock
from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    DeleteTopic,
    ExpireProducers,
    Heartbeat,
    RegisterAgent,
    SetFeatureLevel,
)
from coordination.jobs import ProducerExpiry
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, State, producers
from tests.unit.coordination.conftest import Agents, until
from tests.unit.coordination.kit import DAY_MS, A, B, Producer, Script, chunk
from tests.unit.coordination.test_replica import topic

MOST = 8


def made(level: int = 2) -> Script:
    """Two partitions, and nobody has written."""
    script = Script()
    for author in (A, B):
        script.register(author, level=level)
    script.topic(A, "t", 1)
    script.topic(A, "u", 1)
    return script


def remembered(state: State) -> list[list[int]]:
    """The producers of each partition; the count of all agrees."""
    found = [list(one.producers) for one in state.partitions if one is not None]
    assert state.producer_count == sum(map(len, found))
    return found


def write(script: Script, handle: int, first: int, last: int) -> None:
    """Producers first to last, of whom each writes a millisecond after the one before."""
    for producer in range(first, last + 1):
        script.now_ms += 1
        assert script.commit(A, (handle, 1, producer, 0, 0)).errors == [0]


def most_of_cluster(script: Script, most: int) -> None:
    """Set floe.producers.max."""
    change = AlterTopicConfigs.Change(name="floe.producers.max", value=str(most))
    assert script.one(A, AlterClusterConfigs(changes=[change])) == Done()


def test_a_partition_forgets_the_longest_idle_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", MOST)
    script = made()
    write(script, 0, 1, MOST)
    script.now_ms += 1
    script.commit(A, (0, 1, 1, 0, 1))  # the first one is not idle
    script.through_snapshot()
    write(script, 0, 100, 100)
    assert remembered(script.state)[0] == [1, 4, 5, 6, 7, 8, 100], "a quarter goes at once"
    write(script, 0, 101, 130)
    assert len(remembered(script.state)[0]) <= MOST
    assert 130 in remembered(script.state)[0]


def test_who_was_forgotten_goes_on_as_after_its_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", 1)
    script = made()
    write(script, 0, 1, 2)
    answer = script.commit(A, (0, 1, 1, 0, 1))
    assert (answer.errors, answer.base_offsets) == ([0], [2])


def test_a_producer_with_an_open_transaction_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", 2)
    script = made()
    writer = Producer(script, A, "writer")
    writer.init()
    writer.add(0)
    writer.send(0)
    open_one = remembered(script.state)[0]
    write(script, 0, 100, 110)
    assert remembered(script.state)[0] == [*open_one, 110]


def test_those_in_transactions_stand_in_nobody_s_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came first, and are all that is looked at; the table would grow for as long as they are open."""
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", MOST)
    monkeypatch.setattr(producers, "LOOKED_AT_FOR_ROOM", 4)
    script = made()
    for number in range(4):
        writer = Producer(script, A, f"writer-{number}")
        writer.init()
        writer.add(0)
        writer.send(0)
    open_ones = remembered(script.state)[0]
    write(script, 0, 1_000_000, 1_000_050)
    found = remembered(script.state)[0]
    assert len(found) <= MOST
    assert set(open_ones) < set(found)
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)


def test_those_at_work_that_came_first_are_not_forgotten_for_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is forgotten is not recognised when it is sent again."""
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", MOST)
    monkeypatch.setattr(producers, "LOOKED_AT_FOR_ROOM", 4)
    script = made()
    write(script, 0, 1, MOST)
    script.sleep(DAY_MS // 2)
    for producer in range(1, 5):
        assert script.commit(A, (0, 1, producer, 0, 1)).errors == [0]
    write(script, 0, 100, 103)
    assert remembered(script.state)[0][:4] == [1, 2, 3, 4]
    script.through_snapshot()
    for producer in range(1, 5):
        again = script.commit(A, (0, 1, producer, 0, 1))
        assert (again.errors, again.base_offsets[0] < script.state.partitions[0].high_watermark) == (
            [0],
            True,
        )  # type: ignore[union-attr]  # it exists
        assert script.commit(A, (0, 1, producer, 0, 3)).errors == [Code.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_beyond_the_clusters_most_each_partition_keeps_its_share() -> None:
    script = made()
    most_of_cluster(script, 4)
    write(script, 0, 1, 4)
    write(script, 1, 11, 12)
    assert remembered(script.state) == [[1, 2, 3, 4], [11, 12]], "its share is free, whatever others have"
    write(script, 1, 13, 13)
    write(script, 0, 5, 5)
    assert remembered(script.state) == [[2, 3, 4, 5], [12, 13]]
    script.one(A, DeleteTopic(name="t"))
    assert decode(encode(script.state)).producer_count == script.state.producer_count == 2
    write(script, 1, 14, 15)
    assert remembered(script.state) == [[12, 13, 14, 15]]


def test_at_level_1_nobody_is_forgotten_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_PER_PARTITION_MAX", 1)
    script = made(level=1)
    write(script, 0, 1, 5)
    assert remembered(script.state)[0] == [1, 2, 3, 4, 5]


def test_those_that_are_named_expire_if_they_are_idle() -> None:
    script = made()
    write(script, 0, 1, 3)
    write(script, 1, 1, 1)
    script.sleep(DAY_MS + 1000)
    script.commit(A, (0, 1, 2, 0, 1))
    since = script.now_ms - DAY_MS
    named = ExpireProducers(idle_since_ms=since, partition=[0, 0, 0, 7, 1 << 31], producer_id=[1, 2, 9, 1, 1])
    assert script.one(A, named) == Done(1)
    assert remembered(script.state) == [[2, 3], [1]]
    uneven = script.one(A, ExpireProducers(idle_since_ms=since, partition=[0]))
    assert isinstance(uneven, Refused)
    assert uneven.code == Code.INVALID_REQUEST
    assert script.one(A, ExpireProducers(idle_since_ms=since)) == Done(2), "in the range of all partitions"


def test_at_level_1_names_are_not_looked_at() -> None:
    script = made(level=1)
    write(script, 0, 1, 3)
    named = ExpireProducers(idle_since_ms=script.now_ms + 1, partition=[0], producer_id=[1])
    assert script.one(A, named) == Done(3)


class Steps:
    """Counts the producers that are looked at between two turns of the event loop."""

    def __init__(self) -> None:
        self.looked_at = self.longest = 0
        self._real = jobs.is_idle

    def is_idle(self, *args: Any) -> bool:
        """In place of the job's own."""
        self.looked_at += 1
        return self._real(*args)

    async def watch(self) -> None:
        """Until it is cancelled."""
        seen = 0
        while True:
            self.longest, seen = max(self.longest, self.looked_at - seen), self.looked_at
            await asyncio.sleep(0)


async def test_the_job_looks_and_names_in_small_steps(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command for 2,000 partitions held apply up for as long as all their producers took."""
    replica = agents.make("a")
    await replica.start(RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=2))
    await replica.propose(SetFeatureLevel(level=2))
    await replica.propose(topic("t", 3))
    count, step = 40, 5
    ids = range(count)
    await replica.propose(chunk(1, *((one % 2, 1, one, 0, 0) for one in ids), (2, 1, 900, 0, 0)))
    most = AlterTopicConfigs.Change(name="producer.id.expiration.ms", value="1")
    await replica.propose(AlterClusterConfigs(changes=[most]))
    clock = replica._clock
    assert isinstance(clock, ManualClock)
    clock.advance(1)
    await replica.propose(Heartbeat())
    monkeypatch.setattr(ProducerExpiry, "NAMED_MAX", step + 2)
    monkeypatch.setattr(ProducerExpiry, "LOOKED_AT", step)
    steps, sizes, propose = Steps(), [], replica.propose

    async def noted(message: Any, **fields: Any) -> Any:
        if isinstance(message, ExpireProducers):
            sizes.append(len(message.producer_id))
        return await propose(message, **fields)

    monkeypatch.setattr(jobs, "is_idle", steps.is_idle)
    monkeypatch.setattr(replica, "propose", noted)
    job, watching = ProducerExpiry(replica, clock, poll_s=1000.0), asyncio.ensure_future(steps.watch())
    job.start()
    await until(lambda: replica.state.producer_count == 0)
    await job.stop()
    watching.cancel()
    assert remembered(replica.state) == [[], [], []]
    assert steps.looked_at == count + 1
    assert steps.longest <= step
    assert sizes == [7, 7, 7, 7, 7, 6]
