"""Requests of clients that take more than they may, through the dispatcher, with a clock that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from agent.config.quotas import QuotasConfig
from agent.kafka.quotas import metering
from agent.kafka.quotas.quotas import ID_CHARS_MAX, Quotas
from agent.kafka.quotas.spent import Spent
from agent.net.wire.generated import alter_client_quotas as ac
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import produce as p
from coordination.clock import ManualClock
from coordination.commands import CreateTopic
from coordination.kafka_codes import Code
from coordination.state.types import Done
from tests.unit.agent.rig import Agent, batch

Who = Mapping[str, str | None]


class Limited:
    """An agent with quotas, its connection's pauses, and its quotas' clock."""

    def __init__(self, agent: Agent, config: QuotasConfig | None = None) -> None:
        self.agent, self.clock = agent, ManualClock()
        services = agent.services
        services.quotas = Quotas(
            config or QuotasConfig(), self.clock, lambda: services.replica.state.quotas, services.metrics
        )
        self.muted: list[float] = []
        agent.client.mute = self.muted.append
        agent.client.principal = "alice"

    async def set(self, who: Who, validate_only: bool = False, **values: float | None) -> ac.EntryResult:
        entity = [ac.EntityData(kind, name) for kind, name in who.items()]
        ops = [ac.OpData(key, value or 0.0, value is None) for key, value in values.items()]
        request = ac.AlterClientQuotasRequest([ac.EntryData(entity, ops)], validate_only)
        result: ac.EntryResult = (await self.agent.call("AlterClientQuotas", request, 1)).entries[0]
        return result

    async def produce(self, size: int, acks: int = -1, client_id: str = "app") -> Any:
        rows = [p.PartitionProduceData(0, memoryview(batch(bytes(size))))]
        request = p.ProduceRequest(
            acks=acks, timeout_ms=5000, topic_data=[p.TopicProduceData(name="t", partition_data=rows)]
        )
        return await self.agent.call("Produce", request, 9, client_id=client_id)

    async def fetch(self, offset: int = 0, bytes_max: int = 1 << 20, client_id: str = "app") -> Any:
        rows = [f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=bytes_max)]
        request = f.FetchRequest(
            max_wait_ms=0, max_bytes=bytes_max, topics=[f.FetchTopic("t", partitions=rows)]
        )
        return await self.agent.call("Fetch", request, 12, client_id=client_id)

    async def create(self, name: str, partitions: int, version: int = 7, **more: Any) -> Any:
        request = ct.CreateTopicsRequest([ct.CreatableTopic(name, partitions, 1)], 5000, **more)
        return await self.agent.call("CreateTopics", request, version)

    def figure(self, name: str, **labels: str) -> float:
        return self.agent.services.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def limited(agent: Agent) -> Limited:
    create = CreateTopic(name="t", topic_id=b"T" * 16, partitions=1)
    assert isinstance(await agent.services.replica.propose(create), Done)
    return Limited(agent)


async def test_without_quotas_nothing_is_remembered(limited: Limited) -> None:
    assert (await limited.produce(100_000)).throttle_time_ms == 0
    await limited.fetch()
    assert limited.agent.services.quotas._taken == {}
    assert limited.muted == []


async def test_a_producer_above_its_quota_is_answered_and_then_not_read(limited: Limited) -> None:
    assert (await limited.set({"client-id": "app"}, producer_byte_rate=1000)).error_code == 0
    assert (await limited.produce(5_000)).throttle_time_ms == 0
    told = await limited.produce(8_000)
    assert told.responses[0].partition_responses[0].error_code == 0
    assert 3_000 < told.throttle_time_ms < 4_000, "13 kB and their frames over ten seconds of 1 kB/s"
    assert limited.muted == [told.throttle_time_ms / 1000], "once, when it came"
    assert limited.figure("floe_throttled_requests_total", quota="producer_byte_rate") == 1
    entity = {"entity": "client-id=app", "quota": "producer_byte_rate"}
    assert limited.figure("floe_throttled_seconds_total", **entity) == limited.muted[0]
    limited.clock.advance(11 + limited.muted[0])
    assert (await limited.produce(5_000)).throttle_time_ms == 0
    assert (await limited.produce(5_000, client_id="other")).throttle_time_ms == 0


async def test_one_that_wants_no_answers_is_not_read_either(limited: Limited) -> None:
    await limited.set({"user": "alice"}, producer_byte_rate=100)
    assert await limited.produce(5_000, acks=0) is None
    assert limited.muted == [pytest.approx(30.0)], "quotas.throttle_ms_max"


async def test_a_users_clients_share_a_quota_and_one_of_its_own_comes_before(limited: Limited) -> None:
    await limited.set({"user": "alice"}, producer_byte_rate=1000)
    await limited.set({"user": None, "client-id": None}, producer_byte_rate=10)
    assert (await limited.produce(8_000, client_id="one")).throttle_time_ms == 0
    assert (await limited.produce(8_000, client_id="two")).throttle_time_ms > 0
    limited.agent.client.principal = "bob"
    assert (await limited.produce(80, client_id="one")).throttle_time_ms > 0


async def test_a_consumer_above_its_quota_waits_for_what_comes_next(limited: Limited) -> None:
    for _ in range(3):
        await limited.produce(4_000)
    await limited.set({"user": "alice"}, consumer_byte_rate=1000)
    for offset in range(2):
        told = await limited.fetch(offset, bytes_max=5_000)
        assert told.responses[0].partitions[0].records
        assert told.throttle_time_ms == 0
    third = await limited.fetch(2, bytes_max=5_000)
    assert third.responses[0].partitions[0].records, "what goes beyond is sent"
    assert 2_000 < third.throttle_time_ms < 3_000
    assert limited.muted == [third.throttle_time_ms / 1000]
    at_once = await limited.fetch(2, bytes_max=5_000)
    assert at_once.responses == [], "by another connection, or a client that does not wait"
    assert at_once.throttle_time_ms == third.throttle_time_ms, "nothing was sent, so nothing was counted"
    limited.clock.advance(11)
    paced = await limited.fetch(2, bytes_max=5_000)
    assert 3_000 < paced.throttle_time_ms < 4_000, (
        "a second's worth was saved up, not ten: it was above lately"
    )
    limited.clock.advance(30)
    assert (await limited.fetch(2, bytes_max=5_000)).throttle_time_ms == 0


async def test_a_fetch_is_cut_to_what_its_windows_hold(limited: Limited) -> None:
    for _ in range(4):
        await limited.produce(4_000)
    await limited.set({"user": "alice"}, consumer_byte_rate=1000)
    told = await limited.fetch()
    assert told.throttle_time_ms == 0
    assert 4_000 < len(told.responses[0].partitions[0].records) < 10_000


async def test_a_batch_that_is_larger_than_all_windows_is_read(limited: Limited) -> None:
    await limited.produce(50_000)
    await limited.set({"user": "alice"}, consumer_byte_rate=1000)
    told = await limited.fetch()
    assert told.responses[0].partitions[0].records
    assert told.throttle_time_ms == 30_000


async def test_the_loops_time_is_a_quota_too(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks waits one window at most, as in Kafka."""
    await limited.set({"user": "alice"}, request_percentage=1)
    request = lo.ListOffsetsRequest(
        topics=[lo.ListOffsetsTopic("t", [lo.ListOffsetsPartition(0, timestamp=-1)])]
    )
    assert (await limited.agent.call("ListOffsets", request, 7)).throttle_time_ms == 0

    class Busy(Spent):
        @property
        def seconds(self) -> float:
            return 0.2  # 20 percent of a second: 2 percent of ten

        @seconds.setter
        def seconds(self, value: float) -> None:
            pass

    monkeypatch.setattr(metering, "Spent", Busy)
    assert (await limited.agent.call("ListOffsets", request, 7)).throttle_time_ms == 1_000
    metadata = await limited.agent.call("Metadata", m.MetadataRequest(topics=[]), 12)
    assert metadata.throttle_time_ms == 1_000, "answers that are encoded beforehand say so as well"
    assert metadata.cluster_id
    assert limited.muted == [1.0, 1.0]


async def test_only_a_handlers_own_steps_are_counted() -> None:
    clock = ManualClock()
    spent = Spent(clock.monotonic)

    async def work() -> str:
        clock.advance(1)
        await asyncio.sleep(0)
        clock.advance(2)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            clock.advance(4)
        return "done"

    async def others() -> None:
        clock.advance(100)

    other = asyncio.create_task(others())
    assert await spent.on(work()) == "done"
    await other
    assert spent.seconds == pytest.approx(7)


async def test_what_changes_too_much_is_refused_from_the_version_that_knows_it(limited: Limited) -> None:
    await limited.set({"user": "alice"}, controller_mutation_rate=1)
    made = await limited.create("big", 12)
    assert made.topics[0].error_code == 0, "a burst of all windows is there, and one may go beyond it"
    assert made.throttle_time_ms == 0
    refused = await limited.create("more", 1)
    assert refused.topics[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED
    assert refused.topics[0].error_message is None
    assert refused.throttle_time_ms == 1_000
    older = await limited.create("more", 1, version=5)
    assert older.topics[0].error_code == 0
    assert older.throttle_time_ms == 2_000
    assert limited.muted == [1.0, 2.0]
    state = limited.agent.services.replica.state
    request = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("big", 13, None)], 5000)
    grown = await limited.agent.call("CreatePartitions", request, 3)
    assert grown.results[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED
    gone = dt.DeleteTopicsRequest(topic_names=["big"], timeout_ms=5000)
    deleted = await limited.agent.call("DeleteTopics", gone, 5)
    assert deleted.responses[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED
    assert len(state.topics["big"].partitions) == 12
    limited.clock.advance(60)
    assert (await limited.agent.call("DeleteTopics", gone, 5)).responses[0].error_code == 0


async def test_what_is_refused_anyway_takes_nothing(limited: Limited) -> None:
    await limited.set({"user": "alice"}, controller_mutation_rate=1)
    assert (await limited.create("t", 500)).topics[0].error_code == Code.TOPIC_ALREADY_EXISTS
    assert (await limited.create("bad", -5)).topics[0].error_code == Code.INVALID_PARTITIONS
    assert (await limited.create("good", 1)).topics[0].error_code == 0


async def test_as_many_are_remembered_as_configured(agent: Agent) -> None:
    create = CreateTopic(name="t", topic_id=b"T" * 16, partitions=1)
    assert isinstance(await agent.services.replica.propose(create), Done)
    limited = Limited(agent, QuotasConfig(entities_max=2))
    await limited.set({"client-id": None}, producer_byte_rate=1_000_000)
    for number in range(5):
        await limited.produce(1, client_id=f"client-{number}")
    quotas = agent.services.quotas
    assert [sharers.client_id for sharers in quotas._taken] == ["client-3", "client-4"]
    assert len(quotas._limits) <= 2
    await limited.produce(1, client_id="x" * 5_000)
    kept = [*(sharers.client_id for sharers in quotas._taken), *(name for _, name, _ in quotas._limits)]
    assert max(len(name or "") for name in kept) == ID_CHARS_MAX


async def test_a_change_of_a_quota_counts_at_once(limited: Limited) -> None:
    await limited.set({"user": "alice"}, producer_byte_rate=1_000_000)
    assert (await limited.produce(50_000)).throttle_time_ms == 0
    await limited.set({"user": "alice"}, producer_byte_rate=1_000)
    assert (await limited.produce(1)).throttle_time_ms > 0, "what was taken before counts"
    await limited.set({"user": "alice"}, producer_byte_rate=None)
    assert (await limited.produce(50_000)).throttle_time_ms == 0


async def test_names_of_clients_that_are_forgotten_are_no_labels(agent: Agent) -> None:
    create = CreateTopic(name="t", topic_id=b"T" * 16, partitions=1)
    assert isinstance(await agent.services.replica.propose(create), Done)
    limited = Limited(agent, QuotasConfig(entities_max=1))
    await limited.set({"client-id": None}, producer_byte_rate=1)
    for name in ("one", "two"):
        await limited.produce(1, client_id=name)
    for before in agent.services.metrics.before_reading:
        before()
    quota = "producer_byte_rate"
    assert limited.figure("floe_throttled_seconds_total", entity="client-id=one", quota=quota) == 0
    assert limited.figure("floe_throttled_seconds_total", entity="client-id=two", quota=quota) > 0
