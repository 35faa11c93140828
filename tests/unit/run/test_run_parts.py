"""The parts of `make run` that need no server."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.run import damage as damage_module
from deploy.run import source
from deploy.run.broken import broken_records, confluent
from deploy.run.checks import pipeline_agrees, refusals_told_why, with_findings
from deploy.run.children import Child, ChildFailed
from deploy.run.damage import WAYS
from deploy.run.display import increment_lines, last_line
from deploy.run.source import TOPICS, SourceChanged, Topic
from deploy.run.timeline import freshness, rates
from deploy.run.watch import TablesBehind, TableWatch, share
from deploy.services.patience import Patience
from iceberg.spark.verdict import KINDS, Finding, TopicCount, Verdict
from schema import framing

EQUAL = Verdict(
    dict.fromkeys(KINDS, 0),
    [],
    [TopicCount("airlines", 18, 16, 2, 16, 16), TopicCount("flights", 336_778, 336_776, 2, 336_776, 336_776)],
)


def test_the_data_files_are_the_ones_the_job_was_written_for() -> None:
    source.check_files()


def test_another_data_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(source.SHA256, "planes.csv", "0" * 64)
    with pytest.raises(SourceChanged, match=r"planes\.csv .* has sha256 77896"):
        source.check_files()


@pytest.mark.parametrize(
    "topic", [topic for topic in TOPICS if topic.name != "flights"], ids=lambda t: t.name
)
def test_every_row_of_the_small_files_is_a_record(topic: Topic) -> None:
    encode = source.encoder(topic)
    assert sum(1 for row in source.rows(topic) if encode(row).value) == topic.rows


def test_a_flight_keeps_what_the_file_says() -> None:
    flights = TOPICS[-1]
    row = next(islice(source.rows(flights), 1))
    message = source.encoder(flights)(row)
    flight = source.message_class(flights, flights.message).FromString(message.value)
    assert message.key == b"N14228"
    assert (flight.carrier, flight.origin, flight.destination) == ("UA", "EWR", "IAH")
    assert (flight.departure.delay_minutes, flight.arrival.delay_minutes) == (2, 11)
    assert flight.scheduled_hour.ToJsonString() == "2013-01-01T10:00:00Z"


def test_a_cancelled_flight_has_no_delay_and_an_unknown_plane_no_key() -> None:
    flights = TOPICS[-1]
    row = {**next(source.rows(flights)), "dep_time": "NA", "dep_delay": "NA", "tailnum": "NA"}
    message = source.encoder(flights)(row)
    flight = source.message_class(flights, flights.message).FromString(message.value)
    assert message.key is None
    assert not flight.departure.HasField("delay_minutes")
    assert flight.departure.scheduled_time == 515


@pytest.mark.parametrize("indexes", [(0,), (1,), (2, 0)])
def test_frames_are_what_the_schema_room_reads(indexes: tuple[int, ...]) -> None:
    framed = confluent(77, b"payload", indexes)
    parsed = framing.parse(framed)
    assert (parsed.schema_id, parsed.indexes, framed[parsed.start :]) == (77, indexes, b"payload")


def test_broken_records_are_of_many_kinds() -> None:
    ids = {topic.name: number for number, topic in enumerate(TOPICS, start=1)}
    records = broken_records(ids, {"planes": 9})
    assert len({record.what for record in records}) == len(records) == 14
    assert all(record.named for record in records)


TABLE = pa.table(
    {
        "kafka": [{"partition": 0, "offset": offset} for offset in range(500)],
        "value": [{"__raw__": os.urandom(20) + b"%d" % offset} for offset in range(500)],
    }
)


def written(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()


@pytest.mark.parametrize("how", sorted(WAYS))
def test_damage_keeps_the_length_and_touches_one_row(how: str) -> None:
    original = written(TABLE)
    damaged = damage_module._same_length(WAYS[how](TABLE, 250), len(original))
    assert len(damaged) == len(original)
    before, after = TABLE.to_pylist(), pq.read_table(io.BytesIO(damaged)).to_pylist()
    if how == "drop":
        assert after == before[:250] + before[251:]
    elif how == "double":
        assert after == [*before[:251], *before[250:]]
    else:
        assert [index for index, row in enumerate(after) if row != before[index]] == [250]
        assert after[250]["kafka"] == before[250]["kafka"]


def test_padding_leaves_the_footer_at_the_end() -> None:
    original = written(TABLE)
    padded = damage_module._padded(original, len(original) + 1000)
    (length,) = struct.unpack_from("<I", padded, len(padded) - 8)
    assert padded[-8 - length :] == original[-8 - length :]
    assert pq.read_table(io.BytesIO(padded)).equals(TABLE)


def test_freshness_is_the_age_of_the_first_row_that_is_missing() -> None:
    acknowledged = [(10.0, 100), (11.0, 200), (12.0, 300)]
    table = [(10.5, 0), (12.5, 150), (13.0, 300)]
    assert freshness(acknowledged, table) == [(10.5, 0.5), (12.5, 1.5), (13.0, 0.0)]


def test_rates_are_per_second_over_windows() -> None:
    assert rates([(0.0, 0), (0.5, 10), (2.0, 40), (3.0, 50)]) == [(2.0, 20.0), (3.0, 10.0)]


def test_the_last_line_is_the_issues() -> None:
    assert last_line(EQUAL, 4, ["flights", "airlines"]) == (
        "verdict: equal · rows 336,776 flights + 16 airlines · "
        "missing 0 · doubled 0 · changed 0 · rejected 4 of 4"
    )
    unequal = replace(EQUAL, counts={**EQUAL.counts, "missing": 1, "gap": 1})
    assert last_line(unequal, 5, ["flights"]) == (
        "verdict: unequal · rows 336,776 flights · "
        "missing 1 · doubled 0 · changed 0 · gap 1 · rejected 4 of 5"
    )


AIRLINE = {"carrier": "UA", "flights": 3, "cancelled": 1, "mean_departure_delay": 5.33}
SOURCE = {"UA": {"flights": 3, "cancelled": 1, "departure_delay": 11}}


def test_a_pipeline_that_agrees_with_the_source_raises_no_finding() -> None:
    assert pipeline_agrees([{**AIRLINE, "mean_departure_delay": 5.5}], SOURCE) == []


@pytest.mark.parametrize(
    ("airlines", "said"),
    [
        ([AIRLINE], "mean departure delay 5.33"),
        ([{**AIRLINE, "flights": 2}], "2 flights"),
        ([{**AIRLINE, "mean_departure_delay": None}], "mean departure delay None"),
        ([], "only in the source"),
    ],
)
def test_a_pipeline_that_disagrees_is_found(airlines: list[dict[str, object]], said: str) -> None:
    (finding,) = pipeline_agrees(airlines, SOURCE)
    assert said in finding.detail
    assert not with_findings(EQUAL, [finding]).equal


def test_a_refusal_without_its_reason_is_found() -> None:
    told = {"topic": "flights", "what": "JSON", "reason": "no", "as_expected": False}
    (finding,) = refusals_told_why([told], 1)
    assert str(finding) == "account: topic flights: JSON was answered 'no'"
    assert len(refusals_told_why([{**told, "as_expected": True}], 2)) == 1


def test_findings_name_topic_partition_and_offset() -> None:
    assert str(Finding("missing", "flights", 3, 17, "gone")) == (
        "missing: topic flights partition 3 offset 17: gone"
    )


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `story` that a Child can run."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    return tmp_path / "story.py"


def test_a_child_takes_a_plan_and_tells_events(module: Path, tmp_path: Path) -> None:
    module.write_text("from deploy.run.children import tell, told\ntell('got', plan=told(), then=told())\n")
    events: list[object] = []
    with Child("story", {"a": 1}, tmp_path / "log", events.append) as child:
        child.say("go")
        child.wait(30)
    assert events == [{"event": "got", "plan": {"a": 1}, "then": "go"}]


def test_a_child_that_fails_is_told_by_its_last_line(module: Path, tmp_path: Path) -> None:
    module.write_text("from deploy.run.children import run\nrun(lambda: 1 / 0)\n")
    with (
        pytest.raises(ChildFailed, match="status 1: ZeroDivisionError: division by zero"),
        Child("story", {}, tmp_path / "log", print) as child,
    ):
        child.wait(30)


def test_what_a_child_tells_of_is_waited_for(module: Path, tmp_path: Path) -> None:
    module.write_text(
        "from deploy.run.children import run, tell, told\n"
        "tell('got', plan=told())\ntold()\nrun(lambda: 1 / 0)\n"
    )
    got, never = threading.Event(), threading.Event()
    with Child("story", {}, tmp_path / "log", lambda event: got.set()) as child:
        child.wait_for(got, 30)
        child.say("go")
        with pytest.raises(ChildFailed, match="ZeroDivisionError"):
            child.wait_for(never, 30)


class Looks:
    """Patience by the number of looks: over when three in a row saw the same. Remembers what was seen."""

    seen: ClassVar[list[object]] = []

    def __init__(self, _seconds: float) -> None:
        self.seen.clear()

    def over(self, seen: object) -> bool:
        """As Patience.over."""
        self.seen.append(seen)
        return self.seen[-3:] == [5] * 3


def test_a_child_is_waited_for_while_it_tells_something_new(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same told again at another time is nothing new."""
    module.write_text(
        "import time\nfrom deploy.run.children import tell\n"
        "for n in range(5):\n    tell('at work', rows=n, at=time.time())\n"
        "while True:\n    time.sleep(0.01)\n    now = time.time()\n"
        "    tell('at work', rows=4, at=now, seconds=now)\n"
    )
    monkeypatch.setattr("deploy.run.children.Patience", Looks)
    monkeypatch.setattr("deploy.run.children.LOOK_SECONDS", 0.1)
    with (
        pytest.raises(TimeoutError, match="story did not get on for 30 s"),
        Child("story", {}, tmp_path / "log", lambda event: None) as child,
    ):
        child.wait(30)
    assert set(Looks.seen) <= set(range(6))


def test_patience_begins_anew_with_each_step() -> None:
    times = iter([0.0, 5.0, 15.0, 15.1])
    patience = Patience(10, lambda: next(times))
    assert [patience.over(seen) for seen in (1, 1)] == [False, False], "5 s is when the first step was seen"
    assert patience.over(1)


def test_the_first_increment_has_its_share_of_each_partition() -> None:
    end = f"{'ab' * 16}:10,0,7"
    assert str(share(end, 0.5)) == f"{'ab' * 16}:5,0,3"
    assert str(share(end, 1.0)) == end


def test_an_increment_tells_what_it_read_and_wrote() -> None:
    stages = [
        {"name": "silver", "read": {"flights": 1_200}, "added": 1_100, "removed": 0, "days": 0},
        {"name": "gold", "read": {"flights": 1_200, "planes": 0}, "added": 60, "removed": 40, "days": 3},
    ]
    event = {"since": [0, 5], "until": [1_000, 205], "files": 3, "files_all": 9, "stages": stages}
    assert list(increment_lines(event)) == [
        "flights, offsets by partition: 0 to 1,000, 5 to 205; in 3 of the table's 9 files",
        "silver      read 1,200 flights; wrote 1,100 rows",
        "gold        read 1,200 flights; wrote 60 rows for 40 older ones, 3 days",
    ]


def test_tables_that_do_not_grow_are_told() -> None:
    """No catalog answers here, so no table grows."""
    watch = TableWatch(["http://127.0.0.1:1"], {"flights": "floe.flights"})
    with watch, pytest.raises(TablesBehind, match="not grown for 1 s"):
        watch.wait({"flights": 3}, 1, lambda: None)


def test_a_child_ends_with_all_that_it_started(module: Path, tmp_path: Path) -> None:
    module.write_text(
        "import subprocess, sys\nfrom deploy.run.children import tell, told\n"
        "grand = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "tell('started', pid=grand.pid)\ntold()\ntold()\n"
    )
    pids: list[int] = []
    with Child("story", {}, tmp_path / "log", lambda event: pids.append(event["pid"])):
        assert _eventually(lambda: bool(pids))
    assert _eventually(lambda: not _alive(pids[0]))


def test_children_do_not_outlive_a_killed_parent(module: Path, tmp_path: Path) -> None:
    module.write_text("import time\nfrom deploy.run.children import tell\ntell('up')\ntime.sleep(600)\n")
    parent = (
        "import os, signal, sys, pathlib\nfrom deploy.run.children import Child\n"
        f"child = Child('story', {{}}, pathlib.Path({str(tmp_path / 'log')!r}), lambda event: None)\n"
        "child.__enter__()\nprint(child._process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, text=True, check=False, timeout=30
    )
    pid = int(ran.stdout)
    assert _eventually(lambda: not _alive(pid))


def _eventually(holds: Callable[[], bool]) -> bool:
    """Whether it comes true within a bound that only a broken helper needs."""
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def _alive(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
