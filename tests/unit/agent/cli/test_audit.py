"""`floe table audit`: equal for an honest table, unequal with the place for a damaged one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog.rest import RestCatalog

from deploy.run.damage import damage
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from objectstore.batch import NewRecord, build
from tests.bench.load import produce_all, produce_frame
from tests.compat.raw import set_broker_config
from tests.unit.agent.cli.conftest import CLEAN, ROOT, Dev, floe

LEAVING, DELETED = 200, 30  # records written to a topic, and of them deleted by request
ROWS = 5_000  # enough for a better compression of the damaged file to make up for its metadata
WAIT_S_MAX = 60.0
pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # Spark, twice


def audit(
    dev: Dev, topic: str, jars: Path, *options: str, secured: bool = False
) -> tuple[int, dict[str, Any]]:
    """Status and verdict. `secured`: by TLS and with a login, in Spark's tasks too."""
    where = {"FLOE_BOOTSTRAP": dev.bootstrap}
    if secured:
        where = {"FLOE_BOOTSTRAP": dev.secured, "FLOE_COMMAND_CONFIG": dev.command_config}
    ran = floe(
        *(
            "table",
            "audit",
            topic,
            *options,
            "--output",
            "json",
            "--jars",
            str(jars),
            "--java-home",
            str(java_home()),
        ),
        FLOE_HTTP=dev.http,
        **where,
    )
    assert ran.out, ran
    return ran.status, json.loads(ran.out)


@pytest.mark.thorough
def test_a_table_is_proven_equal_until_one_row_is_damaged(dev: Dev, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with transactions: aborted and open ones are in neither, and a row of an aborted one is seen.

    Spark reads the topic, with every kind of null and empty in its records, the first time by TLS and with a
    login, and the agent tells of both audits.
    """
    jars = ensure("iceberg")[0].parent
    assert dev.run("topic", "create", "audited", "--partitions", "2").status == 0
    lines = "".join(map(line, range(ROWS)))
    assert dev.run("produce", "audited", "--key-separator", "\t", stdin=lines).status == 0
    odd_records(dev, "audited")
    aborted = transactions(dev, "audited")

    status, verdict = audit(dev, "audited", jars, "--since", "start", secured=True)
    assert (status, verdict["equal"], verdict["read_by"]) == (0, True, "spark"), verdict
    until(lambda: figure(dev, "floe_audit_findings", "audited") == 0, "the agent tells of no audit")
    assert verdict["topics"][0]["table"] == verdict["topics"][0]["consumed"] == ROWS + len(ODD) + 2

    expected: set[tuple[int, str]] = set()
    way = partial(damaged, aborted, expected)
    monkeypatch.setattr("deploy.run.damage.WAYS", {"abort": way})
    (done,) = damage(["abort"], "audited", "floe.audited", f"{dev.http}/iceberg", {})
    status, verdict = audit(dev, "audited", jars, "--since", "start")
    assert (status, verdict["equal"]) == (1, False)
    assert verdict["since"] == [], "all is compared, whatever was before"
    wrong = sum(verdict["counts"].values())
    until(lambda: figure(dev, "floe_audit_findings", "audited") == wrong, "the agent does not tell")
    places = [(f["kind"], f["topic"], f["partition"], f["offset"]) for f in verdict["findings"]]
    assert ("missing", "audited", done.partition, done.offset) in places
    assert ("extra", "audited", done.partition, aborted[done.partition]) in places
    changed = [f for f in verdict["findings"] if f["kind"] == "changed"]
    assert {(f["offset"], f["detail"]) for f in changed} == {
        (offset, f"{what} of the table differs") for offset, what in expected
    }


def line(n: int) -> str:
    """A record as text."""
    return f"key {n}\torder {n} of {n * 7919 % 1000} costs {n * 104729 % 99991} cents on day {n % 365}\n"


def damaged(
    aborted: Mapping[int, int], expected: set[tuple[int, str]], table: pa.Table, row: int
) -> pa.Table:
    """A row takes an aborted offset, and four behind it are changed: where, and what, into `expected`."""
    (moved,) = table.slice(row, 1).to_pylist()
    moved["kafka"]["offset"] = aborted[moved["kafka"]["partition"]]
    changed = table.slice(row + 1, 4).to_pylist()
    at = changed[0]["kafka"]["offset"]
    changed[0]["value"]["__raw__"] = b"other"
    changed[1]["key"] = None
    changed[2]["headers"] = [{"key": "k", "value": None}]
    changed[3]["kafka"]["timestamp"] += timedelta(milliseconds=1)
    expected.update({(at, "value"), (at + 1, "key"), (at + 2, "headers"), (at + 3, "timestamp")})
    others = pa.Table.from_pylist([*changed, moved], schema=table.schema)
    return pa.concat_tables([table.slice(0, row), table.slice(row + 5), others])


Odd = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
ODD: Sequence[Odd] = (
    (None, None, None),
    (b"", b"", []),
    (b"k", None, [("h", None)]),
    (None, b"\xff\x00", [("h", b""), ("h", b"1"), ("größe", b"\x00:,-")]),
)


def odd_records(dev: Dev, topic: str) -> None:
    """What one side could show otherwise than the other."""
    producer = Producer({"bootstrap.servers": dev.bootstrap})
    for key, value, headers in ODD:
        producer.produce(topic, value, key, partition=0, headers=headers, timestamp=1)
    assert producer.flush(WAIT_S_MAX) == 0


def transactions(dev: Dev, topic: str) -> dict[int, int]:
    """One that is committed, one aborted, one open, a record each in both partitions.

    Returns the offset of the aborted record by partition.
    """
    aborted: dict[int, int] = {}

    def delivered(_: object, message: Message) -> None:
        aborted[message.partition() or 0] = message.offset() or 0

    for number, name in enumerate(("committed", "aborted", "open")):
        producer = Producer({"bootstrap.servers": dev.bootstrap, "transactional.id": name})
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, name, partition=partition, on_delivery=delivered if number == 1 else None)
        assert producer.flush(WAIT_S_MAX) == 0
        if number == 0:
            producer.commit_transaction(WAIT_S_MAX)
        if number == 1:
            producer.abort_transaction(WAIT_S_MAX)
    return aborted


@pytest.mark.thorough
def test_what_left_the_topic_by_right_stays_in_its_table(dev: Dev) -> None:
    """Records that were deleted, and those that compaction took: history, and no difference.

    Beside it is a table of the newest rows, which is audited with it.
    """
    configs = ("message.timestamp.type=LogAppendTime",)
    configs += ("cleanup.policy=compact,delete", "max.compaction.lag.ms=1", "retention.ms=-1")
    configs += ("floe.table.mode=upsert",)
    options = [part for config in configs for part in ("--config", config)]
    assert dev.run("topic", "create", "leaves", "--partitions", "1", *options).status == 0
    assert asyncio.run(set_broker_config(dev.bootstrap, "log.cleaner.backoff.ms", "50")) == 0
    lines = "".join(f"key {n % 7}\tvalue {n}\n" for n in range(LEAVING))
    assert dev.run("produce", "leaves", "--key-separator", "\t", stdin=lines).status == 0
    until(lambda: behind(dev, "leaves") == 0, "the table has no record")  # before the first ones go
    until(lambda: behind(dev, "leaves", latest=True) is not None, "there is no table of newest rows")
    start = [TopicPartition("leaves", 0, DELETED)]
    admin = AdminClient({"bootstrap.servers": dev.bootstrap})
    admin.delete_records(start)[start[0]].result(WAIT_S_MAX)
    until(lambda: compacted_away(dev) > 0, "nothing was compacted")

    status, verdict = audit(dev, "leaves", ensure("iceberg")[0].parent)
    assert (status, verdict["equal"]) == (0, True), verdict
    (count,) = verdict["topics"]
    assert count["table"] == LEAVING
    assert 7 <= count["consumed"] < LEAVING - DELETED, "read after it was compacted"
    assert count["history"] == LEAVING - count["consumed"]
    (latest,) = verdict["latest"]
    assert latest["table"] == "lake.floe.leaves__latest"
    assert latest["rows"] <= 7, "keys"
    assert latest["upto"][0] <= LEAVING


def until(done: Callable[[], bool], otherwise: str) -> None:
    """Wait for it."""
    end = time.monotonic() + WAIT_S_MAX
    while not done():
        assert time.monotonic() < end, otherwise
        time.sleep(0.2)


def behind(dev: Dev, topic: str, latest: bool = False) -> int | None:
    """Records that the topic's table lacks, or that of its newest rows; None before there is one."""
    with urllib.request.urlopen(f"{dev.http}/status.json", timeout=WAIT_S_MAX) as answer:
        tables = json.load(answer)["tables"]
    own = (row for row in tables if row["topic"] == topic and row["latest"] == latest)
    return next((row["records_behind"] for row in own), None)


def compacted_away(dev: Dev) -> float:
    """Bytes that compaction has taken away so far."""
    return sum(map(float, told(dev, "floe_compacted_away_bytes_total")))


def figure(dev: Dev, metric: str, topic: str) -> float | None:
    """A topic's figure; None where it has none."""
    return next(map(float, told(dev, f'{metric}{{topic="{topic}"}}')), None)


def told(dev: Dev, metric: str) -> list[str]:
    """Values of the metrics that begin so."""
    with urllib.request.urlopen(f"{dev.http}/metrics", timeout=WAIT_S_MAX) as answer:
        lines = answer.read().decode().splitlines()
    return [line.split()[1] for line in lines if line.startswith(metric)]


@pytest.mark.thorough
def test_an_audit_since_the_last_one_compares_what_is_new(dev: Dev) -> None:
    """The first one compares all; what it has compared is in a table of the catalog that anybody may read.

    In the second one are times that Spark cannot tell: one consumer reads the topic.
    """
    jars = ensure("iceberg")[0].parent
    assert dev.run("topic", "create", "grows", "--partitions", "2").status == 0
    for number, due in ((1, 60), (2, 25)):
        lines = "".join(f"key {n}\tvalue {number} {n}\n" for n in range(due))
        assert dev.run("produce", "grows", "--key-separator", "\t", stdin=lines).status == 0
        if number == 2:
            asyncio.run(before_1600(dev, "grows"))
            due += 1
        status, verdict = audit(dev, "grows", jars, "--since", "last")
        assert (status, verdict["equal"]) == (0, True), verdict
        assert verdict["read_by"] == ("spark" if number == 1 else "client")
        (count,) = verdict["topics"]
        assert (count["table"], count["consumed"]) == (due, due)
        assert sum(each["offset"] for each in verdict["since"]) == (0 if number == 1 else 60)
    catalog = RestCatalog("floe", uri=f"{dev.http}/iceberg")
    kept = catalog.load_table("audits.offsets").scan(row_filter="topic = 'grows'").to_arrow().to_pylist()
    assert all(row["equal"] for row in kept)
    assert sum(row["next_offset"] - row["from_offset"] for row in kept) == 86
    (own,) = {row["topic_id"] for row in kept}
    seen = catalog.load_table("audits.files_seen").scan(row_filter=f"topic_id = '{own}'").to_arrow()
    assert sum(row["rows"] for row in seen.to_pylist()) == 86, "each row is in a file that was seen"


@pytest.mark.thorough
@pytest.mark.parametrize(("rounds", "compared", "read_by"), [(1, 2, "spark"), (9, 4, "client")])
def test_records_that_leave_while_they_are_compared_are_no_difference(
    dev: Dev, rounds: int, compared: int, read_by: str
) -> None:
    """It is compared again with what has left by then; when more leaves each time, one consumer reads."""
    topic = f"leaving-{rounds}"
    assert dev.run("topic", "create", topic, "--partitions", "1").status == 0
    assert dev.run("produce", topic, stdin="".join(f"value {n}\n" for n in range(LEAVING))).status == 0
    words = ["table", "audit", topic, "--output", "json", "--java-home", str(java_home())]
    driver = [sys.executable, "-W", "error", "-m", "tests.unit.agent.cli.leaving_audit"]
    ran = subprocess.run(
        [*driver, dev.bootstrap, topic, str(rounds), *words, "--jars", str(ensure("iceberg")[0].parent)],
        env={**CLEAN, "FLOE_BOOTSTRAP": dev.bootstrap, "FLOE_HTTP": dev.http},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    verdict = json.loads(ran.stdout)
    assert (ran.returncode, verdict["equal"], verdict["read_by"]) == (0, True, read_by), ran.stdout
    assert f"compared {compared} times" in ran.stderr
    (count,) = verdict["topics"]
    assert (count["table"], count["history"]) == (LEAVING, LEAVING - count["consumed"])
    assert count["consumed"] < LEAVING


@pytest.mark.thorough
def test_without_spark_s_jars_for_kafka_one_consumer_reads(dev: Dev, tmp_path: Path) -> None:
    assert dev.run("topic", "create", "one-reads", "--partitions", "2").status == 0
    assert dev.run("produce", "one-reads", stdin="a\nb\n").status == 0
    jars = ensure("iceberg")[0].parent
    words = ("--jars", str(jars), "--kafka-jars", str(tmp_path), "--java-home", str(java_home()))
    ran = floe(
        "table", "audit", "one-reads", *words, "--output", "json",
        FLOE_BOOTSTRAP=dev.bootstrap, FLOE_HTTP=dev.http,
    )  # fmt: skip
    verdict = json.loads(ran.out)
    assert (ran.status, verdict["equal"], verdict["read_by"]) == (0, True, "client"), ran
    assert "python -m deploy.setup.jars sparkkafka" in " ".join(ran.err.split())
    (count,) = verdict["topics"]
    assert (count["consumed"], count["table"]) == (2, 2)


async def before_1600(dev: Dev, topic: str) -> None:
    """A record with such a time, as no client library would send it."""
    record = build([NewRecord(-12_000_000_000_000, None, b"old")])
    await produce_all(dev.bootstrap, produce_frame(topic, record, [0]), 1, 1)


def test_what_an_audit_needs_is_told(dev: Dev, tmp_path: Path) -> None:
    status, line = dev.fails("table", "audit", "absent", "--jars", str(tmp_path))
    assert (status, "no jars there" in line) == (2, True)
    jars = str(ensure("iceberg")[0].parent)
    assert dev.fails("table", "audit", "absent", "--jars", jars)[0] == 5
    ran = dev.run("table", "audit", "absent", "--jars", jars, "--output", "json", status=5)
    assert json.loads(ran.out)["equal"] is None, "no verdict: neither equal nor unequal"
