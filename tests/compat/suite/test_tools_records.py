"""kafka-console-*, kafka-*-perf-test, kafka-get-offsets, kafka-delete-records, Verifiable*, e2e-latency."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from objectstore.batch import peek
from tests.compat.raw import fetch_batches
from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, numbered
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(TOOLS)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BEFORE_ALL = "1000000000000"  # ms, the year 2001
AFTER_ALL = "4102444800000"  # ms, the year 2100
PATIENCE_MS = "60000"


def offsets(tools: Tools, topic: str, *arguments: str) -> dict[int, int]:
    """What kafka-get-offsets prints: partition → offset."""
    rows = [line.rsplit(":", 2) for line in tools.ok("get-offsets", "--topic", topic, *arguments).split()]
    assert all(name == topic for name, _, _ in rows), rows
    return {int(partition): int(offset) for _, partition, offset in rows}


def test_the_console(broker: Broker, tools: Tools) -> None:
    """kafka-console-producer writes keys, headers, nulls; kafka-console-consumer reads from anywhere."""
    topic = broker.topic()
    reader = ("parse.key=true", "key.separator=:", "null.marker=NULL", "parse.headers=true")
    properties = [word for each in reader for word in ("--reader-property", each)]
    lines = "h:1,g:x\ta:erste Zeile\nh:2\tb:zweite für alle\nh:3\tc:NULL\n"
    tools.ok("console-producer", "--topic", topic, *properties, stdin=lines)
    one = ("--topic", topic, "--partition", "0", "--timeout-ms", PATIENCE_MS)
    shown = [word for each in ("key", "headers", "offset") for word in _print(each)]
    said = tools.ok("console-consumer", *one, "--offset", "earliest", "--max-messages", "3", *shown)
    assert said.splitlines() == [
        "Offset:0\th:1,g:x\ta\terste Zeile",
        "Offset:1\th:2\tb\tzweite für alle",
        "Offset:2\th:3\tc\tnull",
    ]
    middle = ("--offset", "1", "--max-messages", "1")
    assert tools.ok("console-consumer", *one, *middle) == "zweite für alle\n"


def _print(what: str) -> Sequence[str]:
    return ("--formatter-property", f"print.{what}=true")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_in_a_group(protocol: str, broker: Broker, tools: Tools) -> None:
    """kafka-console-consumer reads as a member of a group, and the next one goes on where it was."""
    topic, group = broker.topic(), broker.fresh("group")
    tools.ok("console-producer", "--topic", topic, stdin="".join(f"{n}\n" for n in range(6)))
    member = ("--group", group, "--from-beginning", "--max-messages", "3", "--timeout-ms", PATIENCE_MS)
    words = ("--topic", topic, *member, "--command-property", f"group.protocol={protocol}")
    assert tools.ok("console-consumer", *words).split() == ["0", "1", "2"]
    assert tools.ok("console-consumer", *words).split() == ["3", "4", "5"]


@pytest.mark.parametrize(
    ("acks", "codec"),
    [
        ("0", "none"),
        ("1", "gzip"),
        ("all", "none"),
        *(pytest.param("all", codec, marks=pytest.mark.compat_only) for codec in ("snappy", "lz4", "zstd")),
    ],
)
async def test_perf_tests(acks: str, codec: str, broker: Broker, tools: Tools, java: Java) -> None:
    """kafka-producer-perf-test's records all arrive, in order, and kafka-consumer-perf-test counts them."""
    topic, count = broker.topic(partitions=3), 2000
    load = ("--num-records", str(count), "--payload-monotonic", "--throughput", "-1")
    properties = ("--command-property", f"acks={acks}", f"compression.type={codec}")
    assert f"{count} records sent" in tools.ok("producer-perf-test", "--topic", topic, *load, *properties)
    tools.until("get-offsets", lambda said: _total(said) == count, "--topic", topic)
    with java.consumer() as consumer:
        consumer.assign([java.part(topic, index) for index in range(3)])
        found = java.read(consumer, count)
    assert sorted(map(int, found)) == list(range(count))
    batches = [batch for index in range(3) for batch in await fetch_batches(broker.bootstrap, topic, index)]
    assert {peek(batch).attributes & 7 for batch in batches} == {CODECS[codec]}
    assert {peek(batch).producer_id >= 0 for batch in batches} == {acks == "all"}
    words = ("--topic", topic, "--num-records", str(count), "--group", broker.fresh("group"))
    *_, row = tools.ok("consumer-perf-test", *words, "--timeout", PATIENCE_MS).strip().splitlines()
    assert int(row.split(", ")[4]) == count, row


def _total(said: str) -> int:
    return sum(int(line.rpartition(":")[2]) for line in said.split())


def test_get_offsets(broker: Broker, tools: Tools, java: Java, saw: Saw) -> None:
    """kafka-get-offsets tells the latest, earliest, newest, by time, of all and of some partitions."""
    topic = broker.topic(partitions=3)
    java.produce(topic, numbered(9, 2))
    for time in ("latest", "earliest", "max-timestamp", "-1", "-2", "-3", "-4", "-5", BEFORE_ALL, AFTER_ALL):
        saw(time, offsets(tools, topic, "--time", time))
    saw("some", offsets(tools, topic, "--partitions", "0,2"))
    done = tools.run("get-offsets", "--topic", broker.fresh("absent"))
    saw("absent", (done.status, done.err.strip().splitlines()[:1]))


def test_delete_records(broker: Broker, tools: Tools, java: Java, tmp_path: Path, saw: Saw) -> None:
    """kafka-delete-records moves the start of partitions, and says what it cannot delete."""
    topic = broker.topic(partitions=3)
    java.produce(topic, numbered(30, 3))
    wanted = {0: 4, 1: -1, 2: 99}
    plan = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": part, "offset": offset} for part, offset in wanted.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    done = tools.run("delete-records", "--offset-json-file", str(plan))
    saw("says", sorted(line for line in done.out.splitlines() if line.startswith("partition:")))
    assert offsets(tools, topic, "--time", "earliest") == {0: 4, 1: 10, 2: 0}


def test_a_verifiable_producer_and_consumer(broker: Broker, tools: Tools, saw: Saw) -> None:
    """VerifiableProducer names every record's offset, VerifiableConsumer reads and commits just these."""
    topic, count = broker.topic(partitions=2), 300
    words = ("--topic", topic, "--max-messages", str(count))
    said = tools.ok("verifiable-producer", *words, "--throughput", "-1", "--repeating-keys", "20")
    rows = [json.loads(line) for line in said.splitlines()]
    sent = {(row["partition"], row["offset"]) for row in rows if row["name"] == "producer_send_success"}
    ends = offsets(tools, topic)
    assert sent == {(part, offset) for part, end in ends.items() for offset in range(end)}
    assert len(sent) == count
    group = broker.fresh("group")
    member = ("--group-id", group, "--reset-policy", "earliest", "--max-messages", str(count))
    said = tools.ok("verifiable-consumer", "--topic", topic, *member, "--verbose")
    events = [json.loads(line) for line in said.splitlines()]
    read = [(row["partition"], row["offset"]) for row in events if row["name"] == "record_data"]
    assert sorted(read) == sorted(sent)
    saw("events", sorted({row["name"] for row in events}))
    assert {row["success"] for row in events if row["name"] == "offsets_committed"} == {True}
    assert tools.ok("consumer-groups", "--describe", "--group", group, "--offsets").count(topic) == 2


def test_latency_from_end_to_end(broker: Broker, tools: Tools) -> None:
    """kafka-e2e-latency's records come back one by one."""
    words = (
        "--topic",
        broker.topic(),
        "--num-records",
        "20",
        "--record-size",
        "100",
        "--producer-acks",
        "all",
    )
    assert re.search(r"Avg latency: \d", tools.ok("e2e-latency", *words))
