"""Which answer at a damaged offset makes each client speak: an experiment, not a test.

`python -m tests.compat.damage_answers` damages a chunk, has an agent answer in each of several ways, and
prints what the application of each client gets to hear; docs/clients.md has the table. `agent` as first
argument is that agent: `floe` with the answer named by the second one.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiokafka
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JJavaError

from agent.cli import main as floe
from agent.kafka.fetch.driver import FetchDriver
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build, patch
from tests.compat.conftest import start, stop
from tests.compat.damaged import SETTINGS, TOPIC, fill
from tests.compat.kafka_python import KafkaConsumer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java, failed

INTACT = {(0, 0), (1, 0), (1, 1), (1, 2)}
MADE_UP = b"made up"
LOOK_S = 12.0  # for which a client is asked
HANGS_S = 30.0  # then it does not come back from a call


def wrong(offset: int, *, torn: bool) -> memoryview:
    """A batch of one record whose CRC does not match; `torn`: nor can its record be read."""
    data = bytearray(build([NewRecord(1_700_000_000_000, None, MADE_UP)]))
    patch(data, 0, offset)
    data[17] ^= 1  # of the CRC
    if torn:
        data[61] = 0x7E  # a record of 63 bytes, where there are fewer
    return memoryview(bytes(data))


def answer_by(name: str) -> None:
    """Have this process answer damaged offsets so."""
    usual = FetchDriver._answers

    def answers(self: Any, *arguments: Any) -> Any:
        fetched, damages = usual(self, *arguments)
        for each in fetched:
            if each.planned.code is not Code.CORRUPT_MESSAGE or name == "CORRUPT_MESSAGE":
                continue
            if name == "UNKNOWN_SERVER_ERROR":
                each.planned.code = Code.UNKNOWN_SERVER_ERROR
                continue
            each.planned.code = Code.NONE
            each.records = [wrong(each.planned.wanted.offset, torn=name == "torn batch")]
        return fetched, damages

    FetchDriver._answers = answers  # type: ignore[method-assign]  # no agent of the product answers so


NAMES = ("CORRUPT_MESSAGE", "UNKNOWN_SERVER_ERROR", "wrong CRC", "torn batch")


class Seen:
    """What an application got: records by (partition, offset), and what it was told."""

    def __init__(self) -> None:
        self.got: set[tuple[int, int]] = set()
        self.told: list[str] = []
        self.logged: list[str] = []
        self._end = time.monotonic() + LOOK_S

    @property
    def over(self) -> bool:
        """Whether the look is over."""
        return time.monotonic() > self._end or (self.got >= INTACT and len(self.told) > 1)

    def record(self, partition: int, offset: int, value: bytes | None) -> None:
        """Note a record."""
        self.got.add((partition, offset))
        if value == MADE_UP:
            self.told.append("A RECORD THAT NOBODY SENT")

    def text(self) -> str:
        """In one line."""
        told = f"{len(self.told)}x {self.told[0][:110]}" if self.told else "nothing"
        logged = f"; log: {self.logged[0][:90]}" if self.logged and not self.told else ""
        missing = INTACT - self.got
        return f"{told}{logged}" + (f"; MISSING {sorted(missing)}" if missing else "")


def librdkafka(bootstrap: str, **SETTINGS: Any) -> Seen:
    """By default it does not check CRCs."""
    seen = Seen()
    config = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **SETTINGS}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in (0, 1)])
    while not seen.over:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            seen.record(message.partition() or 0, message.offset() or 0, message.value())
        else:
            seen.told.append(str(error))
    consumer.close()
    return seen


def librdkafka_checking(bootstrap: str) -> Seen:
    """With check.crcs."""
    return librdkafka(bootstrap, **{"check.crcs": True})


def kafka_python(bootstrap: str) -> Seen:
    """See `librdkafka`."""
    seen = Seen()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([PyTopicPartition(TOPIC, partition) for partition in (0, 1)])
    while not seen.over:
        try:
            for where, records in consumer.poll(200).items():
                for each in records:
                    seen.record(where.partition, each.offset, each.value)
        except Exception as error:
            seen.told.append(f"{type(error).__name__}: {error}")
    consumer.close()
    return seen


def by_aiokafka(bootstrap: str) -> Seen:
    """See `librdkafka`."""
    seen = Seen()
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    logging.getLogger("aiokafka").addHandler(handler)

    async def look() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(TOPIC, partition) for partition in (0, 1)])
        while not seen.over:
            try:
                found: dict[Any, Any] = await consumer.getmany(timeout_ms=200)
            except Exception as error:
                seen.told.append(f"{type(error).__name__}: {error}")
                continue
            for where, records in found.items():
                for each in records:
                    seen.record(where.partition, each.offset, each.value)
        await consumer.stop()

    asyncio.run(look())
    logging.getLogger("aiokafka").removeHandler(handler)
    seen.logged = [line for line in kept.getvalue().splitlines() if "rror" in line]
    return seen


def java_clients(jvm: Jvm) -> dict[str, Callable[[str], Seen]]:
    """Java's KafkaConsumer and the console consumer."""

    def consumer(bootstrap: str) -> Seen:
        seen, java = Seen(), Java(jvm, bootstrap)
        with java.consumer() as one:
            one.assign([java.part(TOPIC, partition) for partition in (0, 1)])
            while not seen.over:
                try:
                    for each in java.poll(one):
                        seen.record(each.partition, each.offset, each.value)
                except Py4JJavaError as error:

                    def again(error: Py4JJavaError = error) -> None:
                        raise error

                    seen.told.append(failed(again))
        return seen

    def console(bootstrap: str) -> Seen:
        seen = Seen()
        seen.got = set(INTACT)
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--from-beginning"]
        said = jvm.tool("console-consumer", *arguments, "--timeout-ms", "8000")
        lines = [line for line in said.err.splitlines() if line.strip()]
        seen.told = [f"status {said.status}; {' / '.join(lines[:3])}"]
        if "made up" in said.out:
            seen.told.insert(0, "A RECORD THAT NOBODY SENT")
        return seen

    return {"Java KafkaConsumer": consumer, "Java console consumer": console}


def looked(look: Callable[[str], Seen], bootstrap: str) -> str:
    """What a client saw, in one line; its application may not get its thread back."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(look(bootstrap).text()), daemon=True)
    thread.start()
    thread.join(HANGS_S)
    return found[0] if found else "hangs in a call"


def main(names: Sequence[str]) -> None:
    """Print what each client says at each answer."""
    with Jvm() as jvm, tempfile.TemporaryDirectory() as folder:
        clients = {
            "librdkafka": librdkafka,
            "librdkafka, check.crcs": librdkafka_checking,
            "kafka-python": kafka_python,
            "aiokafka": by_aiokafka,
            **java_clients(jvm),
        }
        for name in names:
            data = Path(folder) / name.replace(" ", "-") / "data"
            data.parent.mkdir()
            agent = start(data, *SETTINGS, module=("tests.compat.damage_answers", "agent", name))
            try:
                fill(agent)
                for client, look in clients.items():
                    print(f"{name} | {client} | {looked(look, agent.bootstrap)}", flush=True)
            finally:
                stop(agent)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        answer_by(sys.argv[2])
        sys.argv[1:3] = []
        floe()
    main(sys.argv[1:] or NAMES)
    sys.stdout.flush()
    os._exit(0)  # threads that hang are not waited for
