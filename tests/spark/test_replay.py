"""Quarantines brought back by Spark: each record once, whoever is killed; by turns with the command line."""

from __future__ import annotations

import json
import pickle
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deploy.run.stages import Embedded
from iceberg.spark import replay_quarantine as replay
from iceberg.spark import values_by
from iceberg.spark.replay import _OfFile, main
from iceberg.spark.watermark import JobError, UnknownTable
from tests.spark import quarantined
from tests.spark.conftest import NO_CATALOG
from tests.spark.embedded import command, rows
from tests.spark.quarantined import TIME, below, positions, read, workers

PARTITIONS, COUNT, BATCH = 2, 6_000, 20
PLACE = Path(quarantined.__file__)
WAIT_S_MAX = 120
PATIENCE = ("--each", f"{PLACE}:mended", "--batch", str(BATCH))

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]


@pytest.fixture
def topic(floe: Embedded, tmp_path: Path) -> str:
    """A topic whose quarantine's table has COUNT flights."""
    quarantined.make(floe, "q", PARTITIONS, tmp_path)
    quarantined.fill(floe, "q", PARTITIONS, range(COUNT))
    until = time.monotonic() + WAIT_S_MAX
    while len(rows(floe, "floe.q_quarantine")) < COUNT:
        assert time.monotonic() < until, "the table does not get on"
        time.sleep(0.5)
    return "q"


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Status, output, errors."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def moved(floe: Embedded, process: subprocess.Popen[str], before: list[int]) -> list[int]:
    """Positions as soon as they are not what they were."""
    until = time.monotonic() + WAIT_S_MAX
    while (now := positions(floe, "q", PARTITIONS)) == before:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "no transaction is committed"
        time.sleep(0.02)
    return now


@pytest.mark.thorough
def test_each_record_comes_back_once_whoever_is_killed(floe: Embedded, topic: str) -> None:
    """A worker with its task, then driver, JVM and all; the command line in between, and a run to the end."""
    one = quarantined.begun(floe, topic, *PATIENCE)
    at = moved(floe, one, [0, 0])
    quarantined.kill(workers(below(one.pid)))
    status, _, error = ended(one)
    assert (status, "replay:" in error) == (1, True), error
    command(floe, "quarantine", "replay", topic, "--with", f"{PLACE}:mended_record", "--max", "100")
    at = positions(floe, topic, PARTITIONS)
    another = quarantined.begun(floe, topic, *PATIENCE)
    at = moved(floe, another, at)
    quarantined.kill([another.pid, *below(another.pid)])
    assert ended(another)[0] == -9
    assert sum(positions(floe, topic, PARTITIONS)) < COUNT, "it was killed in the middle"
    status, out, error = ended(quarantined.begun(floe, topic, *PATIENCE))
    assert status == 0, error
    assert 0 < json.loads(out)["written"] < COUNT, "those killed did some of it"
    assert_exact(floe, topic)
    status, out, _ = ended(quarantined.begun(floe, topic))
    assert (status, json.loads(out)["written"]) == (0, 0)


def assert_exact(floe: Embedded, topic: str) -> None:
    found = read(floe, topic, PARTITIONS)
    due = Counter(number for number in range(COUNT) if number % 10 != 9)
    assert Counter(int(each.key()) for each in found) == due
    origins = set()
    for each in found:
        number, headers = int(each.key()), dict(each.headers())
        assert each.partition() == number % PARTITIONS
        assert each.timestamp()[1] == TIME + number
        assert headers["n"] == b"%d" % number
        origins.add(headers["floe.replayed-from"])
        assert quarantined.FLIGHT.FromString(each.value()).distance == 1
    assert len(origins) == len(found)


@pytest.fixture
def here(jvm: SparkSession, floe: Embedded) -> SparkSession:
    """A session over the agent's catalog."""
    own = jvm.newSession()
    own.conf.set("spark.sql.catalog.lake.uri", f"{floe.http[0]}/iceberg")
    return own


def test_repairs_and_refusals(here: SparkSession, floe: Embedded, topic: str) -> None:
    """What a repair may give, and that what ends a replay leaves all as it was before that transaction."""
    spark, bootstrap = here, floe.bootstrap
    with pytest.raises(UnknownTable):
        replay(spark, bootstrap, "nobody")
    with pytest.raises(JobError, match=r"is that of topic 'q\.quarantine', not of 't\.quarantine'"):
        replay(spark, bootstrap, "t", table="lake.floe.q_quarantine")
    with pytest.raises(JobError, match="batch=0"):
        replay(spark, bootstrap, topic, batch=0)
    with pytest.raises(Exception, match="comes twice: a repair gives each row once"):
        replay(spark, bootstrap, topic, lambda rows: rows.union(rows))
    assert positions(floe, topic, PARTITIONS) == [0, 0]
    command(floe, "topic", "config", topic, "--set", "floe.value.rules=reject")
    with pytest.raises(Exception, match="what was committed before stays"):
        replay(spark, bootstrap, topic)
    assert positions(floe, topic, PARTITIONS) == [0, 0]
    none = replay(
        spark,
        bootstrap,
        topic,
        lambda rows: rows.where("false"),
        offsets_max=10,
    )
    assert (none.written, none.watermark.offsets, positions(floe, topic, PARTITIONS)) == (
        0,
        (10, 10),
        [10, 10],
    )
    by_column = replay(
        spark, bootstrap, topic,
        lambda rows: rows.withColumn("value", F.concat("value", F.lit(bytearray(quarantined.DISTANCE)))),
        offsets_max=5,
    )  # fmt: skip
    assert by_column.written == 2 * 5
    command(floe, "topic", "config", topic, "--set", "floe.value.rules=observe")  # as a newer schema would do
    assert replay(spark, bootstrap, topic).written == COUNT - 2 * 15
    assert len(read(floe, topic, PARTITIONS)) == COUNT - 2 * 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--with", f"{PLACE}:mended", "--each", f"{PLACE}:mended"), "--with and --each: give one of them"),
        (("--each", f"{PLACE}:nothing"), "has no function 'nothing'"),
        (("--with", "nowhere.py:f"), "--with nowhere.py:f: FileNotFoundError"),
        (("--with", "f"), "--with f: write FILE.py:FUNCTION"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said_before_spark_begins(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([NO_CATALOG, "127.0.0.1:1", "q", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_function_goes_to_the_executors_as_its_source(tmp_path: Path) -> None:
    file = tmp_path / "fix.py"
    file.write_text("import sys\nheld = sys.stdin\ndef f(value):\n    return held and value + b'!'\n")
    sent = pickle.loads(pickle.dumps(_OfFile(str(file), file.read_text(), "f")))
    assert sent(b"a") == b"a!"


def test_a_function_of_values_is_asked_once_for_each(spark: SparkSession) -> None:
    given = spark.createDataFrame([(b"a",), (None,), (b"b",)], "value binary").coalesce(1)
    asked = spark.sparkContext.accumulator(0)

    def function(value: bytes | None) -> bytes | None:
        asked.add(1)
        return value + b"!" if value == b"a" else None

    assert [bytes(row["value"]) for row in values_by(function)(given).collect()] == [b"a!"]
    assert asked.value == 3
