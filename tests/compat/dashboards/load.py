"""What the cluster on the pictures of the dashboards does: a little of everything that they show."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import count

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.bench.load import set_quota

PER_S, CUSTOMERS, LARGE_EVERY, PARTITIONS = 60, 97, 12, 6
RULE = json.dumps([{"id": "amount", "expression": "!string(value).contains('-')"}])
TOPICS: Mapping[str, Mapping[str, str]] = {
    "orders": {},
    "customers": {"cleanup.policy": "compact", "floe.table.mode": "upsert", "max.compaction.lag.ms": "60000"},
    "payments": {"floe.value.rules": "quarantine", "floe.rules": RULE},
    "clicks": {"retention.ms": "120000"},
    "old": {},
}
CITIES = ("Oslo", "Lima", "Pune", "Graz", "Suva")
QUOTA_BYTES_PER_S = 4_000


async def prepare(bootstrap: str) -> None:
    """The topics, one of them deleted again, and a quota of the shop's clients."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    wanted = [NewTopic(name, PARTITIONS, 3, topic_configs=dict(more)) for name, more in TOPICS.items()]
    await admin.create_topics(wanted)
    await admin.delete_topics(["old"])
    await admin.close()
    await set_quota(bootstrap.partition(",")[0], "clicks", "producer_byte_rate", QUOTA_BYTES_PER_S)


async def shop(bootstrap: str, over: threading.Event) -> None:
    """Orders with their payments in transactions, customers that change, clicks."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        plain = await enter(AIOKafkaProducer(bootstrap_servers=bootstrap))
        clicks = await enter(AIOKafkaProducer(bootstrap_servers=bootstrap, client_id="clicks"))
        sure = await enter(AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="shop"))
        for number in count():
            if over.is_set():
                break
            key = f"customer-{number % CUSTOMERS}".encode()
            order = {"order": number, "cents": 7 * number % 400 - 9, "city": CITIES[number % 5]}
            await plain.send("customers", json.dumps({"orders": number // CUSTOMERS}).encode(), key=key)
            await clicks.send("clicks", b"c" * (300 + 3_000 * (number % LARGE_EVERY == 0)), key=key)
            if number % PER_S < PER_S // 2:
                await plain.send("orders", json.dumps(order).encode(), key=key)
            else:
                async with sure.transaction():
                    for topic in ("orders", "payments"):
                        await sure.send(topic, json.dumps(order).encode(), key=key)
            await asyncio.sleep(1 / PER_S)


async def reader(bootstrap: str, group: str, topic: str, pause_s: float, over: threading.Event) -> None:
    """A member of a group that reads, a hundred records at a time, and pauses."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=2_000,
        isolation_level="read_committed",
    )
    async with consumer:
        while not over.is_set():
            await consumer.getmany(timeout_ms=500, max_records=100)
            await asyncio.sleep(pause_s)


async def work(bootstrap: str, over: threading.Event) -> None:
    """All of it, until `over`."""
    await prepare(bootstrap)
    await asyncio.gather(
        shop(bootstrap, over),
        reader(bootstrap, "billing", "orders", 0.0, over),
        reader(bootstrap, "billing", "orders", 0.0, over),
        reader(bootstrap, "mails", "orders", 4.0, over),
        reader(bootstrap, "reports", "payments", 0.5, over),
        reader(bootstrap, "trends", "clicks", 0.2, over),
    )
