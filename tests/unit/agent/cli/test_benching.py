"""`floe bench`: its sums, and a load against a real agent."""

from __future__ import annotations

import json
import signal
import threading
from array import array
from pathlib import Path

import pytest

from agent.cli import benching
from agent.cli import session as cli_session
from agent.cli.benching import NUMBER_BITS, STAMP, Load, Times, arrived, percentiles, verdict
from tests.unit.agent.cli.conftest import Dev, fails, start_dev


def test_percentiles_leave_the_warm_beginning_out() -> None:
    found = percentiles([1_000.0] * 10 + [float(each) for each in range(90)])
    assert found == {"p50": 45.0, "p95": 85.0, "p99": 89.0, "p99.9": 89.0, "max": 89.0}
    assert percentiles([]) == {}


def test_what_was_acknowledged_and_did_not_arrive_is_lost() -> None:
    times = Times(
        array("d", [5.0]), array("d", [6.0]), array("d", [0.1]), {"KafkaError": 2}, 6, 4, {1, 2, 3}, 1
    )
    found = verdict(Load(10, 1 << 20, 1, 2.0, 0, True), times)
    assert (found["lost"], found["doubled"], found["failed"], found["mib_per_s"]) == (1, 1, 2, 2.0)
    assert found["unanswered"] == 14, "20 were due"


def test_records_of_somebody_else_in_a_given_topic_say_nothing() -> None:
    times = Times(run=7)
    for run, number in ((7, 0), (8, 1), (7, 0), (7, 2)):
        arrived(times, STAMP.pack(1.0, run << NUMBER_BITS | number) + b"x", 3.0)
    for value in (None, b"", b"another's, and longer than a stamp is"):
        arrived(times, value, 3.0)
    assert (times.seen, times.doubled, list(times.arrived)) == (
        {7 << NUMBER_BITS, 7 << NUMBER_BITS | 2},
        1,
        [2_000.0, 2_000.0],
    )


def test_agents_that_do_not_answer_end_it_and_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is printed, and what was not answered; nothing waits for ever."""
    dev = start_dev(tmp_path / "data")
    stand = threading.Event()

    def first(times: Times, value: bytes | None, now: float) -> None:
        arrived(times, value, now)
        if not stand.is_set():
            dev.process.send_signal(signal.SIGSTOP)
            stand.set()

    monkeypatch.setattr(benching, "arrived", first)
    for module, name in ((benching, "SETTLE_S_MAX"), (benching, "STOP_S_MAX"), (cli_session, "ANSWER_S_MAX")):
        monkeypatch.setattr(module, name, 1.0)
    asked = ("bench", "--rate", "10", "--seconds", "3", "--size", "16", "--output", "json")
    ran = dev.run(*asked, status=1)
    dev.process.send_signal(signal.SIGCONT)
    assert dev.stop() == 0
    found = json.loads(ran.out)
    assert found["unanswered"] > 0
    assert found["unanswered"] + found["failed"] + found["acknowledged"] == 30
    assert "topic floe-bench-" in ran.err
    assert "stays: no agent is reached" in ran.err


def test_a_load_is_measured_and_its_topic_removed(dev: Dev) -> None:
    asked = (
        "bench",
        "--rate",
        "200",
        "--seconds",
        "1.5",
        "--producers",
        "2",
        "--size",
        "100",
        "--partitions",
        "2",
    )
    found = json.loads(dev.run(*asked, "--output", "json").out)
    assert (found["sent"], found["acknowledged"], found["lost"], found["doubled"]) == (300, 300, 0, 0)
    assert 0 < found["acknowledged_ms"]["p50"] <= found["acknowledged_ms"]["max"]
    assert found["end_to_end_ms"]["p50"] > 0
    assert "floe-bench-" not in dev.run("topic", "list").out


def test_a_topic_that_is_given_stays(dev: Dev) -> None:
    dev.run("topic", "create", "benched", "--partitions", "1")
    dev.run("produce", "benched", "--value", "other")
    ran = dev.run("bench", "--topic", "benched", "--rate", "20", "--seconds", "1", "--plain")
    assert ran.out.startswith("20 records sent, 20 acknowledged")
    assert "benched" in dev.run("topic", "list").out


def test_what_cannot_be_is_told_in_one_line(dev: Dev) -> None:
    assert dev.fails("bench", "--rate", "1e9")[0] == 2
    assert dev.fails("bench", "--topic", "nowhere")[0] == 5
    assert fails("bench", "--bootstrap", "127.0.0.1:1")[0] == 4
