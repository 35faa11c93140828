"""Brings records back from a quarantine, each exactly once: by transactions of records and positions.

The position is that of a consumer group, GROUP and the topic; the producer's transactional id is called the
same, with the quarantine's partition behind it. So whoever begins with a partition a second time, after a
death at any moment or beside another one, ends what that one left open, goes on where its last transaction
ended, and keeps it from writing any more: this command, and a task of Spark
(iceberg/spark/replay_writer.py).
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError
from google.protobuf.message import DecodeError

from agent.cli.command_config import command_config
from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.cli.requests import Bounds
from agent.cli.session import CLIENT_ID
from agent.cli.stalls import Stalls
from coordination.state.quarantine_names import name_of
from schema.proto.quarantine_pb2 import Record

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord

GROUP = "floe-replay."
"""Behind it, the topic: the group whose position says how far a quarantine was replayed."""

HEADER = "floe.replayed-from"
"""Key of the header that names a replayed record's origin: quarantine/partition/offset."""

POLL_MS = 500
TRANSACTION_MS = 60_000

Repaired = tuple[bytes | None, bytes | None] | None
"""Key and value to be written; None: the record is left out, and counts as done."""

Repair = Callable[[Record], Any]


@dataclass(frozen=True, slots=True)
class Replaying:
    """What to bring back: `batch` records in a transaction, at most `records_max` altogether."""

    topic: str
    partitions: int
    repair: Repair
    batch: int
    records_max: int


@dataclass(slots=True)
class Replayed:
    """Records that were written and left out, and where the quarantine's partitions stand."""

    written: int = 0
    left_out: int = 0

    @property
    def done(self) -> int:
        """Records that are behind."""
        return self.written + self.left_out


def as_it_was(kept: Record) -> Repaired:
    """No repair: the rules or the schema have changed."""
    return (
        kept.key if kept.HasField("key") else None,
        kept.value if kept.HasField("value") else None,
    )


def repair_of(place: str) -> Repair:
    """The function that FILE.py:NAME names. Raises Failure."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path) if file else None
    if spec is None or spec.loader is None:
        raise usage(f"--with {place!r} is not FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # it is the user's own code
        raise Failure(Status.FAILED, f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise usage(f"--with {place!r}: {path} has no function {name!r}")
    return found  # type: ignore[no-any-return]  # of the user's making


def repaired(repair: Repair, kept: Record, where: str) -> Repaired:
    """What the function made of a record. Raises Failure, with the record's place."""
    try:
        made = repair(kept)
    except Exception as error:
        raise Failure(
            Status.FAILED, f"{where}: {type(error).__name__}: {error}; nothing of it is lost"
        ) from error
    if isinstance(made, Record):
        return as_it_was(made)
    if made is None:
        return None
    key, value = (
        (kept.key if kept.HasField("key") else None, made) if isinstance(made, bytes) else (made, made)
    )
    if isinstance(made, tuple) and len(made) == 2:
        key, value = made
    if isinstance(key, bytes | None) and isinstance(value, bytes | None):
        return key, value
    what = "bytes (the value), (key, value), the record itself, or None to leave it out"
    raise Failure(Status.FAILED, f"{where}: the function gave {type(made).__name__}: it gives {what}")


async def replay(
    bootstrap: str, given: Replaying, bounds: Sequence[Bounds], advance: Callable[[int], None]
) -> Replayed:
    """Bring back what was in the quarantine when `bounds` were asked for. Raises Failure."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what matters comes as an error
    consumer: AIOKafkaConsumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        **command_config().aiokafka(),
        client_id=CLIENT_ID,
        group_id=GROUP + given.topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_poll_records=given.batch,
    )
    replayed = Replayed()
    try:
        await consumer.start()
        for each in bounds:
            if replayed.done < given.records_max and each.start < each.end:
                await _one(bootstrap, consumer, given, each, replayed, advance)
        return replayed
    except KafkaConnectionError as error:
        raise unreachable(f"no agent is reached at {bootstrap}: {error}") from None
    except KafkaError as error:
        raise refused(f"{type(error).__name__}: {error}; what was committed before stays") from None
    finally:
        await consumer.stop()


async def _one(
    bootstrap: str,
    consumer: AIOKafkaConsumer,
    given: Replaying,
    bounds: Bounds,
    replayed: Replayed,
    advance: Callable[[int], None],
) -> None:
    """A partition of the quarantine, from where the last transaction ended."""
    where = TopicPartition(name_of(given.topic), bounds.partition)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        **command_config().aiokafka(),
        client_id=CLIENT_ID,
        transactional_id=f"{GROUP}{given.topic}.{bounds.partition}",
        transaction_timeout_ms=TRANSACTION_MS,
    )
    try:
        await producer.start()  # first: it ends what another run of this left open, and keeps it from more
        consumer.assign([where])
        at = max(bounds.start, await consumer.committed(where) or 0)
        consumer.seek(where, at)
        stalls = Stalls(bootstrap)
        while at < bounds.end and replayed.done < given.records_max:
            polled: Mapping[TopicPartition, list[ConsumerRecord[Any, Any]]] = await consumer.getmany(
                where, timeout_ms=POLL_MS, max_records=min(given.batch, given.records_max - replayed.done)
            )
            taken = [each for each in polled.get(where, ()) if each.offset < bounds.end]
            if taken:
                before = replayed.done
                await _together(producer, given, where, taken, replayed)
                advance(replayed.done - before)
            # Not by the last record: a transaction's marker takes an offset and is none.
            at = (await stalls.positions(consumer, [where])).get(where, at)
    finally:
        await producer.stop()


async def _together(
    producer: AIOKafkaProducer,
    given: Replaying,
    where: TopicPartition,
    records: Sequence[ConsumerRecord[Any, Any]],
    replayed: Replayed,
) -> None:
    """One transaction: these records, and the position behind them."""
    written = left_out = 0
    async with producer.transaction():
        under_way = []
        for each in records:
            place = f"{where.topic}/{where.partition}/{each.offset}"
            kept = _kept(each.value, place)
            made = repaired(given.repair, kept, place)
            if made is None:
                left_out += 1
                continue
            written += 1
            under_way.append(await producer.send(given.topic, **_record(given, kept, made, place)))
        await asyncio.gather(*under_way)
        end = {where: records[-1].offset + 1}
        await producer.send_offsets_to_transaction(end, GROUP + given.topic)
    replayed.written += written
    replayed.left_out += left_out


def _kept(value: bytes | None, place: str) -> Record:
    try:
        return Record.FromString(value or b"")
    except DecodeError as error:
        raise Failure(Status.FAILED, f"{place} is no record of a quarantine: {error}") from None


def _record(
    given: Replaying, kept: Record, made: tuple[bytes | None, bytes | None], place: str
) -> dict[str, Any]:
    """As it was sent: to its partition while there is one, with its time and headers, and one more."""
    headers = [(each.key, each.value if each.HasField("value") else None) for each in kept.headers]
    return {
        "key": made[0],
        "value": made[1],
        "partition": kept.partition if kept.partition < given.partitions else None,
        "timestamp_ms": kept.timestamp_ms if kept.timestamp_ms >= 0 else None,
        "headers": [*headers, (HEADER, place.encode())],
    }
