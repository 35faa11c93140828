"""A topic that has a quarantine with flights in it, their repair, and what Spark's replays made of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from deploy.run.stages import Embedded
from tests.spark.embedded import command
from tests.unit.schema import samples

TIME = 1_700_000_000_000
FLIGHT: Any = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight").message_class
DISTANCE = b"\x81\x01" + b"\0\0\0\0\0\0\xf0\x3f"
"""Field 16, a double of 1: behind a message it is what counts."""


def bad(number: int) -> bytes:
    """A flight that breaks its rules."""
    made: bytes = FLIGHT(month=1, origin="EWR", dest="JFK", flight=number, distance=-1).SerializeToString()
    return made


def mended(value: bytes | None) -> bytes | None:
    """The flight with a distance that may be; those whose number ends with a 9 are left out."""
    assert value is not None, "flights have values"
    return None if FLIGHT.FromString(value).flight % 10 == 9 else value + DISTANCE


def make(floe: Embedded, topic: str, partitions: int, folder: Path) -> None:
    """A topic of flights whose bad records are set aside."""
    file = folder / "flights.proto"
    file.write_bytes(samples.RULED_FLIGHTS)
    command(floe, "topic", "create", topic, "--partitions", str(partitions))
    bound = ("--proto", str(file), "--message", "nyc.Flight", "--rules", "quarantine")
    command(floe, "topic", "bind", topic, *bound)


def fill(floe: Embedded, topic: str, partitions: int, numbers: range) -> None:
    """Bad flights, by turns to the partitions."""
    producer = Producer({"bootstrap.servers": floe.bootstrap, "enable.idempotence": True, "linger.ms": 50})
    for number in numbers:
        while True:
            try:
                producer.produce(
                    topic, bad(number), b"%d" % number, number % partitions,
                    timestamp=TIME + number, headers=[("n", b"%d" % number)],
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(300) == 0


def positions(floe: Embedded, topic: str, partitions: int) -> list[int]:
    """How far each partition of the quarantine was replayed."""
    own = {"isolation.level": "read_uncommitted"}  # and does not wait for transactions that are open
    consumer = Consumer({"bootstrap.servers": floe.bootstrap, "group.id": f"floe-replay.{topic}", **own})
    places = [TopicPartition(f"{topic}.quarantine", at) for at in range(partitions)]
    try:
        return [max(0, each.offset) for each in consumer.committed(places, 60)]
    finally:
        consumer.close()


def read(floe: Embedded, topic: str, partitions: int) -> list[Message]:
    """All that committed readers get."""
    consumer = Consumer(
        {
            "bootstrap.servers": floe.bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    consumer.close()
    return found


def begun(floe: Embedded, topic: str, *words: str, master: str = "") -> subprocess.Popen[str]:
    """`python -m iceberg.spark.replay`, in a session of its own."""
    line = [sys.executable, "-m", "iceberg.spark.replay", f"{floe.http[0]}/iceberg", floe.bootstrap, topic]
    environment = {
        **os.environ,
        **({"PYSPARK_SUBMIT_ARGS": f"--master {master} pyspark-shell"} if master else {}),
    }
    return subprocess.Popen(
        [*line, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def below(pid: int) -> dict[int, tuple[int, str]]:
    """A process's descendants: by id their parent's, and their command line."""
    told = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    lines = (line.split(None, 2) for line in told.stdout.splitlines())
    every = {int(each[0]): (int(each[1]), each[2] if len(each) > 2 else "") for each in lines}
    found: dict[int, tuple[int, str]] = {}
    while more := {at: one for at, one in every.items() if at not in found and one[0] in {pid, *found}}:
        found |= more
    return found


def workers(known: Mapping[int, tuple[int, str]]) -> list[int]:
    """Of these processes, those that run Python for Spark's tasks."""
    daemons = [at for at, (_, line) in known.items() if "pyspark.daemon" in line]
    return [at for at in daemons if known[at][0] in daemons]


def kill(pids: list[int]) -> None:
    """SIGKILL those that are still there."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def mended_record(kept: Any) -> bytes | None:
    """As the command line's functions are asked."""
    return mended(kept.value)


def with_distance(value: bytes | None) -> bytes | None:
    """The flight with a distance that may be."""
    return None if value is None else value + DISTANCE
