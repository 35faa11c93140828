"""`floe restore topic --with-table`: what DeleteRecords took from the log comes from the topic's table."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_restore_topic_embedded import (
    FIRST_MS,
    KILLED,
    PARTITIONS,
    Seen,
    end_of,
    floe,
    read,
    restored,
    transactional,
    write,
)
from tests.unit.agent.cli.conftest import CLEAN, ROOT

CAUGHT_UP_S_MAX = 120.0
LAYOUTS = {
    "in order": (),
    "sorted by another column": ("floe.table.sort=kafka.timestamp desc",),
    "in files that lie across each other": ("floe.table.partition=bucket(4, kafka.offset)",),
}
_numbers = itertools.count(1)


class Story(NamedTuple):
    """A topic of which partition 0 begins inside a batch, and partition 1 at its end."""

    topic: str
    whole: list[Seen]
    starts: dict[int, int]
    ends: dict[int, int]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One that commits tables quickly."""
    folder = tmp_path_factory.mktemp("rows") / "data"
    found = start(folder, "tables.enabled=true", "tables.interval_ms=100", "http.barrier_timeout_ms=60000")
    yield found
    stop(found)


def caught_up(agent: Embedded, topic: str) -> None:
    """Wait until the topic's table has all of it."""
    until = time.monotonic() + CAUGHT_UP_S_MAX
    while time.monotonic() < until:
        tables = agent.status()["tables"]
        assert isinstance(tables, list)
        if [each["records_behind"] for each in tables if each["topic"] == topic] == [0]:
            return
        time.sleep(0.1)
    raise AssertionError(f"the table of {topic} does not catch up")


def told_story(agent: Embedded, *configs: str) -> Story:
    topic = f"rows-{next(_numbers)}"
    words = [word for each in ("retention.ms=-1", *configs) for word in ("--config", each)]
    floe(agent, "topic", "create", topic, "--partitions", str(PARTITIONS), *words)
    plain = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 50})
    write(plain, topic, range(20))
    done, gone = transactional(agent, f"{topic}-a"), transactional(agent, f"{topic}-b")
    write(done, topic, range(20, 30))
    write(gone, topic, range(30, 40))
    gone.abort_transaction(60)
    done.commit_transaction(60)
    write(plain, topic, range(40, 60))
    whole, ends = read(agent, topic), end_of(agent, topic)
    caught_up(agent, topic)
    starts = {0: 13, 1: ends[1]}
    take(agent, topic, starts)
    return Story(topic, whole, starts, ends)


def take(agent: Embedded, topic: str, starts: dict[int, int]) -> None:
    """Delete the records below these offsets."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    places = [TopicPartition(topic, partition, offset) for partition, offset in starts.items()]
    for future in admin.delete_records(places).values():
        future.result(60)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_left_the_log_comes_from_the_table_whatever_its_files_order(
    agent: Embedded, layout: str
) -> None:
    story = told_story(agent, *LAYOUTS[layout])
    new = f"{story.topic}-whole"
    told = restored(agent, story.topic, new, "--with-table")
    assert read(agent, new) == story.whole
    assert (told["equal"], told["whole"]) == (True, True)
    for row in told["partitions"]:
        partition = row["partition"]
        older = row["from_table"]
        assert (row["start"], row["cut"]) == (0, story.ends[partition])
        assert (older["from"], older["below"], older["never_in_table"]) == (
            0,
            story.starts[partition],
            None,
        )
        assert older["rows"] + older["offsets_without_row"] == story.starts[partition]
        assert older["unreadable_batches_left_out"] == 0
    alone = restored(agent, story.topic, f"{story.topic}-log")
    first = [each for each in story.whole if each[0] == 0]
    assert read(agent, f"{story.topic}-log") == first[story.starts[0] :], "control: without it, the log alone"
    assert [row["from_table"] for row in alone["partitions"]] == [None, None]


def test_a_point_below_the_log_start_and_a_deleted_topic(agent: Embedded) -> None:
    story = told_story(agent)
    timed = f"{story.topic}-timed"
    floe(agent, "topic", "delete", story.topic)
    restored(agent, story.topic, timed, "--with-table", "--at", str(FIRST_MS + 11))
    assert read(agent, timed) == [each for each in story.whole if each[4] <= FIRST_MS + 11]
    cut = restored(agent, story.topic, f"{story.topic}-cut", "--with-table", "--at", "0:5,1:0")
    assert read(agent, f"{story.topic}-cut") == [each for each in story.whole if each[0] == 0][:5]
    assert [row["from_table"]["rows"] for row in cut["partitions"]] == [5, 0]
    said = floe(agent, "restore", "topic", story.topic, "--as", "none", "--with-table", "--dry-run")
    assert "are rows of table floe.rows" in said
    assert "in neither" not in said
    told = floe(agent, "restore", "topic", story.topic, "--as", "none", "--dry-run")
    assert "--with-table takes them" in told
    refused = floe(agent, "restore", "topic", story.topic, "--as", "none", "--at", "0:5,1:0", status=5)
    assert "has the offsets 13 to" in refused, "control: they are not in the log"


def test_a_damaged_file_ends_it_before_anything_of_it_is_written(agent: Embedded) -> None:
    story = told_story(agent)
    new = f"{story.topic}-damaged"
    for file in files_of(agent, story.topic):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    said = floe(agent, "restore", "topic", story.topic, "--as", new, "--with-table", status=1)
    assert "do not have the checksum in its name" in said
    assert "floe.restoring" in floe(agent, "topic", "describe", new)
    assert read(agent, new) == []


def test_a_run_that_dies_among_rows_is_gone_on_with_unless_more_left_the_log(agent: Embedded) -> None:
    story = told_story(agent)
    new = f"{story.topic}-killed"
    words = ["restore", "topic", story.topic, "--as", new, "--with-table", "--bootstrap", agent.bootstrap]
    command = [sys.executable, "-c", KILLED, *words, "--http", agent.http]
    died = subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, check=False, timeout=240)
    assert died.returncode == -signal.SIGKILL, died.stderr
    before = read(agent, new)
    assert 0 < len(before) < story.starts[0] + story.starts[1], "it died among rows of the table"
    assert "floe.restoring" in floe(agent, "topic", "describe", new)
    alone = floe(agent, "restore", "topic", story.topic, "--as", new, status=5)
    assert "was begun from another topic" in alone, "control: with and without rows is not the same"
    told = restored(agent, story.topic, new, "--with-table")
    assert told["equal"]
    assert read(agent, new) == story.whole, "each record once"
    again = f"{story.topic}-again"
    command[command.index(new)] = again
    subprocess.run(command, cwd=ROOT, env=CLEAN, capture_output=True, check=False, timeout=240)
    take(agent, story.topic, {0: story.starts[0] + 1})
    moved = floe(agent, "restore", "topic", story.topic, "--as", again, "--with-table", status=5)
    assert "records left the source since" in moved


def files_of(agent: Embedded, topic: str) -> list[Path]:
    """The data files of the topic's table."""
    name = topic.replace("-", "_")
    found = [each for each in agent.data.rglob("*.parquet") if name in str(each)]
    assert found, sorted(agent.data.rglob("*"))[:30]
    return found


def test_rows_without_their_bytes_and_topics_without_a_table_are_refused(agent: Embedded) -> None:
    topic = f"rows-{next(_numbers)}"
    floe(agent, "topic", "create", topic, "--config", "floe.table.enabled=false")
    said = floe(agent, "restore", "topic", topic, "--as", "none", "--with-table", status=5)
    assert "has no table" in said
