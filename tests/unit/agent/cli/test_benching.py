"""`floe bench`: its sums, and a load against a real agent."""

from __future__ import annotations

import json
from array import array

from agent.cli.benching import Load, Times, percentiles, verdict
from tests.unit.agent.cli.conftest import Dev, fails


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
