"""Reading records for `floe consume`, through aiokafka, without a group."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError

from agent.cli.failures import refused, unreachable
from agent.cli.requests import Bounds
from agent.cli.session import CLIENT_ID
from agent.cli.values import Values, line

POLL_MS = 500


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
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an error
    wanted = {
        TopicPartition(given.topic, b.partition): b for b in bounds if given.partition in (-1, b.partition)
    }
    if not given.follow and all(_begin(given, bound) >= bound.end for bound in wanted.values()):
        return 0  # nothing is there; a client that is stopped while it starts gives its work up
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=CLIENT_ID,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    try:
        await consumer.start()
        consumer.assign(list(wanted))
        for where, bound in wanted.items():
            consumer.seek(where, _begin(given, bound))
        return await _print(consumer, given, wanted, values)
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


async def _print(
    consumer: AIOKafkaConsumer, given: Reading, wanted: Mapping[TopicPartition, Bounds], values: Values
) -> int:
    count = 0
    ends = {where: bound.end for where, bound in wanted.items() if _begin(given, bound) < bound.end}
    while given.follow or ends:
        for where, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            for record in records:
                if not given.follow and record.offset >= ends.get(where, 0):
                    break
                print(_line(record, values), flush=given.follow)
                count += 1
                if count == given.records_max:
                    return count
        for where in list(ends):  # a transaction's marker takes an offset and is no record
            if await consumer.position(where) >= ends[where]:
                del ends[where]
    return count


def _line(record: ConsumerRecord[bytes | None, bytes | None], values: Values) -> str:
    shown: dict[str, object] = {
        "key": values.show("key", record.key),
        "value": values.show("value", record.value),
    }
    if record.headers:
        shown["headers"] = [[name, _header(value)] for name, value in record.headers]
    return line(record.partition, record.offset, record.timestamp, shown)


def _header(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
