"""`floe bench`: a load of your shape against your own cluster, and how long its records take.

Open loop: each record has a time at which it is due, whatever became of those before it, and both its
acknowledgement and its arrival at a reader are counted from there (no coordinated omission). Clients are
aiokafka in this one process: `behind_ms` says how late this process was itself, and when that is not small,
it is this client that is measured and not the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from agent.cli import requests
from agent.cli.command_config import command_config
from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.cli.options import BOOTSTRAP_DEFAULT, COUNT_MAX, Bootstrap, Form, Output
from agent.cli.output import print_json, print_table, remarks
from agent.cli.session import CLIENT_ID, session
from coordination.clock import SystemClock
from objectstore import tasks

RECORDS_MAX = 10_000_000
"""Of one run: the times of each are kept, 16 bytes."""
SIZE_MIN, SIZE_MAX = 16, 1_000_000
PRODUCERS_MAX = 64
SETTLE_S_MAX = 30.0
"""After the last record was due: for its acknowledgement and its arrival."""
STOP_S_MAX = 5.0
"""For a client to end: aiokafka waits for answers without a bound."""
WARM_SHARE = 0.1
"""Of the run, at its beginning, that is not counted: connections are made, caches filled."""
PERCENTILES = (50.0, 95.0, 99.0, 99.9, 100.0)
STAMP = struct.Struct(">dQ")
"""In front of each value: when it was due (monotonic seconds), and its number below the run's own bits."""
NUMBER_BITS, RUN_BITS = 24, 40
CLOCK = SystemClock()

Topic = Annotated[
    str, typer.Option("--topic", help="Write to this topic and keep it. Without: one is made and removed.")
]
Rate = Annotated[
    float, typer.Option("--rate", min=0.1, help="Records in a second, of all producers together.")
]
Size = Annotated[int, typer.Option("--size", min=SIZE_MIN, max=SIZE_MAX, help="Bytes of a value.")]
Producers = Annotated[int, typer.Option("--producers", min=1, max=PRODUCERS_MAX, help="Producers.")]
Partitions = Annotated[
    int, typer.Option("--partitions", min=1, max=COUNT_MAX, help="Of the topic that is made.")
]
Seconds = Annotated[float, typer.Option("--seconds", min=1.0, help="How long records are due.")]
Linger = Annotated[int, typer.Option("--linger-ms", min=0, max=10_000, help="The producers' linger.ms.")]
Idempotent = Annotated[bool, typer.Option("--idempotent/--plain", help="enable.idempotence.")]


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for. `rate` in records a second, `size` in bytes."""

    rate: float
    size: int
    producers: int
    seconds: float
    linger_ms: int
    idempotent: bool

    @property
    def records(self) -> int:
        """How many are due."""
        return round(self.rate * self.seconds)


@dataclass(slots=True)
class Times:
    """What was measured, each in ms since a record was due, by number of the record."""

    acknowledged: array[float] = field(default_factory=lambda: array("d"))
    arrived: array[float] = field(default_factory=lambda: array("d"))
    behind: array[float] = field(default_factory=lambda: array("d"))
    failures: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    acks: int = 0
    seen: set[int] = field(default_factory=set)
    doubled: int = 0
    run: int = 0
    """By which this run's records are told from others in a topic that was given."""
    stays: Failure | None = None
    """Why the topic that was made is there still."""

    def fail(self, name: str) -> None:
        """Count a failure."""
        self.failures[name] = self.failures.get(name, 0) + 1


def bench(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    topic: Topic = "",
    rate: Rate = 1_000.0,
    size: Size = 1_000,
    producers: Producers = 1,
    partitions: Partitions = 6,
    seconds: Seconds = 30.0,
    linger_ms: Linger = 5,
    idempotent: Idempotent = True,
    output: Output = Form.TABLE,
) -> None:
    """Write and read a load of your shape; print how long acknowledgement and arrival took.

    Status 1 when a record failed, was not answered in time, was lost or came twice.
    """
    load = Load(rate, size, producers, seconds, linger_ms, idempotent)
    if rate * seconds > RECORDS_MAX:
        raise usage(
            f"--rate {rate:g} for --seconds {seconds:g} is above {RECORDS_MAX} records: take less of one"
        )
    times = asyncio.run(_run(bootstrap, topic, partitions, load))
    found = verdict(load, times)
    if output is Form.JSON:
        print_json(found)
    else:
        _show(found)
    if times.failures or found["unanswered"] or found["lost"] or found["doubled"]:
        raise typer.Exit(Status.FAILED)
    if times.stays is not None:
        raise typer.Exit(times.stays.status)


async def _run(bootstrap: str, topic: str, partitions: int, load: Load) -> Times:
    times = Times(run=CLOCK.random_bits(RUN_BITS))
    async with (
        _topic(bootstrap, topic, partitions, times) as name,
        _clients(bootstrap, name, load) as (reader, writers),
    ):
        over = asyncio.Event()
        reading = tasks.start(_read(reader, times, over), "floe bench")
        begun = CLOCK.monotonic()
        shares = [_write(each, name, load, times, begun, at) for at, each in enumerate(writers)]
        try:
            await asyncio.gather(*shares)
            deadline = CLOCK.monotonic() + SETTLE_S_MAX
            while len(times.seen) < times.acks and CLOCK.monotonic() < deadline:
                await CLOCK.sleep(0.05)
        finally:
            over.set()
            await reading
    return times


@asynccontextmanager
async def _topic(bootstrap: str, topic: str, partitions: int, times: Times) -> AsyncIterator[str]:
    """The topic's name; one of our own is removed in the end, or `times` says why it is not."""
    name = topic or f"floe-bench-{CLOCK.random_bits(32):08x}"
    async with session(bootstrap) as kafka:
        if topic:
            await requests.topic(kafka, name)
        else:
            await requests.create(kafka, name, partitions, {})
    try:
        yield name
    finally:
        if not topic:
            try:
                async with session(bootstrap) as kafka:
                    for problem in (await requests.delete(kafka, [name]))[1]:
                        raise problem
            except Failure as failure:  # what was measured is told all the same
                times.stays = failure
                remarks().print(f"topic {name} stays: {failure}; floe topic delete {name}")


@asynccontextmanager
async def _clients(bootstrap: str, topic: str, load: Load) -> AsyncIterator[tuple[Any, list[Any]]]:
    """A reader at the topic's end and the producers. Raises Failure."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError, KafkaError

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    common = {"bootstrap_servers": bootstrap, "client_id": CLIENT_ID, **command_config().aiokafka()}
    reader = AIOKafkaConsumer(topic, auto_offset_reset="latest", enable_auto_commit=False, **common)
    settings = {"linger_ms": load.linger_ms, "enable_idempotence": load.idempotent, "acks": "all"}
    writers = [AIOKafkaProducer(**settings, **common) for _ in range(load.producers)]
    started = []
    try:
        for each in (reader, *writers):
            await each.start()
            started.append(each)
        await reader.seek_to_end()
        for where in reader.assignment():
            await reader.position(where)
        yield reader, writers
    except KafkaConnectionError as error:
        raise unreachable(f"no agent is reached at {bootstrap}: {error}") from None
    except KafkaError as error:
        raise refused(f"{type(error).__name__}: {error}") from None
    finally:
        await asyncio.gather(*map(_stopped, started))


async def _stopped(client: Any) -> None:
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await client.stop()
    except TimeoutError:  # a producer: what it waits for has failed, or is counted as unanswered
        await client.client.close()


async def _write(writer: Any, topic: str, load: Load, times: Times, begun: float, share: int) -> None:
    """Send this producer's records when they are due, and wait for what becomes of them: neither for ever."""
    from aiokafka.errors import KafkaError

    filling = CLOCK.random_bytes(load.size - STAMP.size)
    waiting: set[asyncio.Future[Any]] = set()
    number, total = share, load.records
    until = begun + load.seconds + SETTLE_S_MAX
    while number < total and CLOCK.monotonic() < until:
        due, now = begun + number / load.rate, CLOCK.monotonic()
        if due > now:
            await CLOCK.sleep(due - now)
            continue
        times.behind.append(1000 * (now - due))
        number += load.producers
        try:
            sent = await writer.send(topic, STAMP.pack(due, times.run << NUMBER_BITS | number) + filling)
        except KafkaError as error:
            times.fail(type(error).__name__)
            continue
        times.sent += 1
        waiting.add(sent)
        sent.add_done_callback(lambda done, due=due: _acknowledged(done, due, times, waiting))
    if waiting:
        await asyncio.wait(waiting, timeout=SETTLE_S_MAX)


def _acknowledged(done: asyncio.Future[Any], due: float, times: Times, waiting: set[Any]) -> None:
    waiting.discard(done)
    error = None if done.cancelled() else done.exception()
    if done.cancelled() or error is not None:
        times.fail(type(error).__name__ if error else "cancelled")
        return
    times.acks += 1
    times.acknowledged.append(1000 * (CLOCK.monotonic() - due))


async def _read(reader: Any, times: Times, over: asyncio.Event) -> None:
    from aiokafka.errors import KafkaError

    while not over.is_set():
        try:
            found = await reader.getmany(timeout_ms=200)
        except KafkaError as error:
            times.fail(f"{type(error).__name__} to the reader")
            return
        now = CLOCK.monotonic()
        for record in (each for records in found.values() for each in records):
            arrived(times, record.value, now)


def arrived(times: Times, value: bytes | None, now: float) -> None:
    """Note a value that was read; somebody else's, in a topic that was given, says nothing."""
    if value is None or len(value) < STAMP.size:
        return
    due, number = STAMP.unpack_from(value)
    if number >> NUMBER_BITS != times.run:
        return
    if number in times.seen:
        times.doubled += 1
    else:
        times.seen.add(number)
        times.arrived.append(1000 * (now - due))


def verdict(load: Load, times: Times) -> dict[str, Any]:
    """What is printed: percentiles in ms without the warm beginning, counts, MiB a second."""
    failed = sum(times.failures.values())
    return {
        "load": asdict(load),
        "sent": times.sent,
        "acknowledged": times.acks,
        "failed": failed,
        "failures": times.failures,
        "unanswered": max(0, load.records - times.acks - failed),
        "lost": max(0, times.acks - len(times.seen)),
        "doubled": times.doubled,
        "mib_per_s": round(times.acks * load.size / load.seconds / 2**20, 3),
        "acknowledged_ms": percentiles(times.acknowledged),
        "end_to_end_ms": percentiles(times.arrived),
        "behind_ms": percentiles(times.behind),
    }


def percentiles(found: Sequence[float]) -> dict[str, float]:
    """By name, of what is left without the first WARM_SHARE; empty when nothing was measured."""
    kept = sorted(found[int(len(found) * WARM_SHARE) :])
    if not kept:
        return {}
    names = {each: f"p{each:g}" for each in PERCENTILES} | {100.0: "max"}
    places = {each: min(len(kept) - 1, int(each / 100 * len(kept))) for each in PERCENTILES}
    return {names[each]: round(kept[at], 2) for each, at in places.items()}


def _show(found: dict[str, Any]) -> None:
    print(
        f"{found['sent']} records sent, {found['acknowledged']} acknowledged ({found['mib_per_s']} MiB/s), "
        f"{found['failed']} failed, {found['unanswered']} unanswered, {found['lost']} lost, "
        f"{found['doubled']} doubled"
    )
    for name, count in found["failures"].items():
        print(f"  {name}: {count} times")
    kinds = {
        "acknowledged_ms": "acknowledged",
        "end_to_end_ms": "end to end",
        "behind_ms": "this client late",
    }
    columns = list(found["behind_ms"])
    print_table(
        ("ms", *columns), [(shown, *(found[key].get(c, "") for c in columns)) for key, shown in kinds.items()]
    )
