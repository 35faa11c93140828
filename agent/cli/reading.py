"""Reading records for `floe consume` and `floe topic rules`, through aiokafka, without a group."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from agent.cli.command_config import command_config
from agent.cli.failures import refused, unreachable
from agent.cli.requests import Bounds
from agent.cli.session import CLIENT_ID
from agent.cli.stalls import Stalls
from agent.cli.values import Values, line

POLL_MS = 500

Record: TypeAlias = "ConsumerRecord[bytes | None, bytes | None]"


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read. `offset` -1: the beginning, or the end with `newest`; `partition` -1: all."""

    topic: str
    follow: bool
    records_max: int
    newest: bool
    offset: int
    partition: int


async def read(bootstrap: str, given: Reading, bounds: Sequence[Bounds], values: Values) -> int:
    """Print what is asked for; returns how many records. Raises Failure."""
    wanted = {
        TopicPartition(given.topic, b.partition): b for b in bounds if given.partition in (-1, b.partition)
    }
    if not given.follow and all(_begin(given, bound) >= bound.end for bound in wanted.values()):
        return 0  # nothing is there; a client that is stopped while it starts gives its work up
    begins = {where: _begin(given, bound) for where, bound in wanted.items()}
    ends = {where: bound.end for where, bound in wanted.items() if begins[where] < bound.end}
    count, stalls = 0, Stalls(bootstrap, follow=given.follow)
    async with _reader(bootstrap, begins) as consumer:
        async for record in _records(consumer, ends, stalls, follow=given.follow):
            print(_line(record, values), flush=given.follow)
            count += 1
            if count == given.records_max:
                break
    return count


async def newest(
    bootstrap: str, topic: str, bounds: Sequence[Bounds], count: int, look: Callable[[Record], None]
) -> None:
    """Look at the newest records of a topic, at most `count`. Raises Failure."""
    shared = shares(bounds, count)
    begins = {TopicPartition(topic, b.partition): b.end - shared[b.partition] for b in bounds}
    ends = {TopicPartition(topic, b.partition): b.end for b in bounds}
    ends = {where: end for where, end in ends.items() if begins[where] < end}
    if not ends:
        return
    async with _reader(bootstrap, {where: begins[where] for where in ends}) as consumer:
        async for record in _records(consumer, ends, Stalls(bootstrap), follow=False):
            look(record)


def shares(bounds: Sequence[Bounds], count: int) -> dict[int, int]:
    """How many offsets at the end of each partition make `count`: as many of each, where each has them."""
    found, left = dict[int, int](), count
    fewest_first = sorted(bounds, key=lambda each: each.end - each.start)
    for behind, each in enumerate(fewest_first):
        own = min(each.end - each.start, -(-left // (len(bounds) - behind)))
        found[each.partition] = own
        left -= own
    return found


@asynccontextmanager
async def _reader(bootstrap: str, begins: Mapping[TopicPartition, int]) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that stands at these offsets. Raises Failure for what fails while it is used."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an error
    consumer: AIOKafkaConsumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        **command_config().aiokafka(),
        client_id=CLIENT_ID,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await consumer.start()
        consumer.assign(list(begins))
        for where, offset in begins.items():
            consumer.seek(where, offset)
        yield consumer
    except KafkaConnectionError as error:
        raise unreachable(f"no agent is reached at {bootstrap}: {error}") from None
    except KafkaError as error:
        raise refused(f"{type(error).__name__}: {error}") from None
    finally:
        await consumer.stop()


def _begin(given: Reading, bound: Bounds) -> int:
    if given.newest:
        return bound.end
    return bound.start if given.offset < 0 else max(bound.start, min(given.offset, bound.end))


async def _records(
    consumer: AIOKafkaConsumer, before: Mapping[TopicPartition, int], stalls: Stalls, *, follow: bool
) -> AsyncIterator[Record]:
    """Records up to those offsets, or for ever. Raises Failure when none come any more."""
    ends = dict(before)
    while follow or ends:
        for where, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            for record in records:
                if not follow and record.offset >= ends.get(where, 0):
                    break
                yield record
        places = consumer.assignment() if follow else list(ends)
        for where, at in (await stalls.positions(consumer, places)).items():
            if not follow and at >= ends[where]:  # a transaction's marker takes an offset and is no record
                del ends[where]


def _line(record: Record, values: Values) -> str:
    shown: dict[str, object] = {
        "key": values.show("key", record.key, record.headers),
        "value": values.show("value", record.value, record.headers),
    }
    if record.headers:
        shown["headers"] = [[name, _header(value)] for name, value in record.headers]
    return line(record.partition, record.offset, record.timestamp, shown)


def _header(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
