"""docs/kubernetes.md says what the last whole run of `make kubernetes` saw."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.kubernetes import autoscaling, page, routes, story
from tests.kubernetes.experiments import ALL, OF_ALL
from tests.kubernetes.kept import PodLogs, Steps
from tests.kubernetes.lab import CHART, RELEASE
from tests.kubernetes.load import Result, compared, percentile, slow, unread
from tests.torture.rolling import Observed


def test_the_page_of_the_real_cluster_is_what_its_results_say() -> None:
    assert page.PAGE.read_text() == page.text(json.loads(page.KEPT.read_text()))


def test_a_later_run_of_some_takes_the_place_of_their_rows() -> None:
    """But for one that was not done to its end."""

    def row(name: str, errors: int, note: str = "") -> dict[str, object]:
        return {"name": name, "errors": errors, "note": note}

    kept = {"starts_s": [9.0], "all_s": 500, "experiments": [row("a", 1), row("b", 0)]}
    later = [row("a", 0), row("b", 9, f"{page.FAILED}: why"), row("c", 2)]
    both = page.merged(kept, {"starts_s": [3.0], "all_s": 60, "experiments": later})
    assert (both["starts_s"], both["all_s"]) == ([3.0], 500)
    assert [(each["name"], each["errors"], each.get("apart", False)) for each in both["experiments"]] == [
        ("a", 0, True),
        ("b", 0, False),
        ("c", 2, True),
    ]


def test_where_the_time_went_is_told_of_every_step() -> None:
    """Of an experiment with what comes before it; what was beside has no time of its own in the sum."""
    took = {"pods": 2.0, "Kubernetes": 1.0, "clients": 0.5, "tools": 0.25}
    told = [("node ready", 9.0), ("drain: clients begin", 0.5), ("drain", 30.0), ("starts", 20.0)]
    steps = [{"step": step, "seconds": seconds, "core_seconds": took} for step, seconds in told]
    steps.append({"step": "autoscaling", "seconds": 99.0, "beside": True})
    rows = page.steps({"steps": steps, "experiments": [{"name": "drain"}, {"name": "autoscaling"}]})
    assert rows.splitlines()[-5:] == [
        "| node ready |  | 9.0 s | 3.8 | 2.0 | 1.0 | 0.5 | 0.2 |",
        "| drain | 0.5 s | 30.0 s | 7.5 | 4.0 | 2.0 | 1.0 | 0.5 |",
        "| starts |  | 20.0 s | 3.8 | 2.0 | 1.0 | 0.5 | 0.2 |",
        "| autoscaling, beside |  | 99.0 s |  |  |  |  |  |",
        "| **all** |  | 59.5 s | 15.0 | 8.0 | 4.0 | 2.0 | 1.0 |",
    ]


def test_the_core_seconds_of_a_step_are_those_since_the_last() -> None:
    """By who took them."""
    readings = iter([{"pods": 10.0}, {"pods": 12.5}, {"pods": 12.6}])
    steps = Steps(lambda: next(readings))
    steps.done("a")
    steps.beside("b", 7.0)
    steps.done("c")
    assert [each.get("core_seconds") for each in steps.told] == [{"pods": 2.5}, None, {"pods": 0.1}]


def test_the_log_of_a_pod_outlives_it(tmp_path: Path) -> None:
    """As the kubelet lays them out, and takes them away."""
    log = tmp_path / "pods" / "floe_floe-1_0123456789-abcd" / "agent" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("begun\n")
    logs = PodLogs(tmp_path / "pods", tmp_path / "kept")
    logs.look()
    with log.open("a") as more:
        more.write("stopped\n")
    shutil.rmtree(log.parent.parent)
    logs.look()
    assert (tmp_path / "kept" / "floe-1-01234567-agent-0.log").read_text() == "begun\nstopped\n"


def test_what_is_lost_doubled_or_unread_is_counted() -> None:
    """The zeros of the page say nothing else."""
    told, stored = [b"a", b"b", b"c"], Counter({b"a": 1, b"b": 2, b"z": 1})
    assert compared(told, stored) == (1, 1)
    assert compared(told, Counter(told)) == (0, 0)
    assert unread([b"a", b"b", b"b"], stored) == {b"z"}
    assert not unread([b"z", b"a", b"b"], stored)
    assert Result("x").clean
    for bad in (Result("x", lost=1), Result("x", doubled=1), Result("x", unread=1), Result("x", errors=1)):
        assert not bad.clean, bad


def test_the_99th_percentile_of_waits_is_one_of_them() -> None:
    """The smallest that 99 of a hundred do not exceed."""
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert percentile([float(n) for n in range(1, 1001)], 0.99) == 990.0
    assert percentile([1.0] * 98 + [5.0, 9.0], 0.99) == 5.0


def test_a_goal_that_was_missed_is_told() -> None:
    """Whichever kind of client missed it."""
    rows = [
        {"name": name, "waits_p99": {"idempotent": 0.5, "group": seconds}}
        for name, seconds in (("drain", 1.0), ("scale", 1.01), ("MinIO away", 9.0))
    ]
    told = page.goals(rows)
    assert "drain 1.00 of 1 s," in told
    assert "scale 1.01 of 1 s (**missed**)" in told
    assert "MinIO" not in told


def test_what_was_measured_while_an_agent_started_is_no_usual_load() -> None:
    """A look of the metrics server counts when its window began late enough, and is one."""
    since = datetime(2026, 11, 27, 0, 1, 0, 0, UTC).timestamp()
    for ended, window, wanted in (
        ("00:01:10", "10s", True),
        ("00:01:10", "10.5s", False),
        ("00:02:10", "1m2.5s", True),
        ("00:02:10", "1m12.5s", False),
        ("00:02:10", "631ms", False),
    ):
        look = {"timestamp": f"2026-11-27T{ended}Z", "window": window}
        assert autoscaling.counts(look, since) == wanted, look
    assert [autoscaling.milli(each) for each in ("12345678n", "1500u", "250m", "1")] == [
        pytest.approx(12.345678),
        1.5,
        250.0,
        1000.0,
    ]


def test_waits_that_were_long_are_written_down_as_runs() -> None:
    """Of each client: when, how many records, how long."""
    now = time.monotonic()
    waits = [(now, 0.5), (now + 0.1, 0.9), (now + 0.2, 0.1), (now + 5, 0.4), (now + 99, 9.0)]
    told = slow([Observed("group-classic", waits=waits)], now - 1, now + 10)
    assert [each.partition(": ")[2] for each in told[1:]] == [
        "2 records, 0.90 s the slowest",
        "1 records, 0.40 s the slowest",
    ]
    assert slow([Observed("idle")], now, now + 1)[1:] == []


def test_what_all_releases_share_is_touched_when_nothing_runs_beside() -> None:
    """And the routes come with the upgrade before them."""
    main = [name for name in ALL if name not in story.BESIDE]
    shared = [name for name in main if "etcd" in name or "MinIO" in name]
    assert main[main.index(OF_ALL) :] == shared
    assert main.index(routes.NAME) == main.index(routes.UPGRADE) + 1
    assert set(story.BESIDE) < set(ALL)


def test_a_release_beside_has_the_names_that_its_experiment_asks_for() -> None:
    """The chart names what it makes as the release, where its own name is in that."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())["name"]
    releases = [RELEASE, *(each.release for each in story.BESIDE.values())]
    assert len(set(releases)) == 3
    assert all(chart in each for each in releases)


def test_a_run_is_not_clean_by_a_row_or_by_what_its_end_shows() -> None:
    """A row that failed counts nothing, and is none that was clean."""
    good = Result("drain", note="three evictions").as_json()
    end = {"left": [], "before": 7, "after": 7}
    assert story.unclean({"experiments": [good], "uninstall": end}) == []
    lost, failed = good | {"lost": 1}, good | {"name": "scale", "note": f"{page.FAILED}: why"}
    assert story.unclean({"experiments": [good, lost, failed], "uninstall": end}) == ["drain", "scale"]
    for amiss in ({"left": ["job/floe-bucket-1"]}, {"after": 6}):
        assert len(story.unclean({"experiments": [good], "uninstall": end | amiss})) == 1
