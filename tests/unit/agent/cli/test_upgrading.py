"""`floe upgrade check`: what keeps a cluster from the next version, by what its agents tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.cli.observing.upgrading import TABLE_FORMAT_MAX, Assigned, Levels, hindrances
from agent.health.ailments import Ailment, Grade
from agent.health.told import Told
from agent.version import VERSION
from iceberg.rest_commit import FORMAT_VERSION_MAX
from tests.unit.agent.cli.conftest import Dev
from tests.unit.agent.cli.test_observing import JOB, agent

HERE = Levels(1, 2)
NEXT = Levels(2, 3)


def found(*agents: Told, assigned: Sequence[Assigned] = (), levels: Levels = HERE) -> list[Ailment]:
    return hindrances(agents or (agent("a"), agent("b")), assigned, "9.9", levels)


def level(of: int, *most: int) -> tuple[Told, Told]:
    brokers = [{"name": "abc"[n], "unwell": "", "feature_max": each} for n, each in enumerate(most)]
    first, second = (agent(name, feature_level=of, brokers=brokers) for name in "ab")
    return first, second


def test_nothing_is_in_the_way_of_a_sound_cluster() -> None:
    sound = [Assigned("t", "retention.ms", "5000"), Assigned("", "num.partitions", "3")]
    assert found(*level(2, 2, 2), assigned=sound) == []


@pytest.mark.parametrize(
    ("agents", "assigned", "levels", "grade", "what"),
    [
        (level(1, 2, 2), [], NEXT, Grade.WRONG, "is at feature level 1, which this version applies no more"),
        (level(3, 3, 3), [], HERE, Grade.WRONG, "is at feature level 3, this version knows 2 at most"),
        (level(1, 2, 2), [], HERE, Grade.ODD, "is at feature level 1, though all agents know 2"),
        ((agent("a"),), [], HERE, Grade.ODD, "is the only agent"),
        ((agent("a"), agent("b", version="8")), [], HERE, Grade.ODD, "agents of several versions"),
        ((agent("a"), agent("b", ready=False, reasons=["x"])), [], HERE, Grade.WRONG, "is not ready: x"),
        ((agent("a"), Told("b", "", error="no")), [], HERE, Grade.ODD, "does not answer here (no)"),
        ((agent("a", failing_jobs=[JOB]), agent("b")), [], HERE, Grade.WRONG, "snapshots fail since noon"),
        ((), [Assigned("t", "gone.config", "1")], HERE, Grade.WRONG, "Unknown topic config name"),
        ((), [Assigned("t", "retention.ms", "soon")], HERE, Grade.WRONG, "retention.ms=soon is refused"),
        ((), [Assigned("", "gone.config", "1")], HERE, Grade.WRONG, "Unknown broker config name"),
        ((), [Assigned("t", "segment.bytes", "1048576")], HERE, Grade.ODD, "segment.bytes is set (topic t)"),
        (
            (agent("a"), agent("b", tables=[{"table": "n.t", "topic": "t", "format_version": 4}])),
            [],
            HERE,
            Grade.WRONG,
            "has Iceberg's format version 4",
        ),
    ],
)
def test_what_is_in_the_way_is_told_with_a_remedy(
    agents: Sequence[Told], assigned: Sequence[Assigned], levels: Levels, grade: Grade, what: str
) -> None:
    (one,) = found(*agents, assigned=assigned, levels=levels)
    assert (one.grade, what in one.what, bool(one.remedy)) == (grade, True, True), one


def test_a_table_that_nobody_here_commits_has_no_format_known() -> None:
    assert (
        found(agent("a", tables=[{"table": "n.t", "topic": "t", "format_version": None}]), agent("b")) == []
    )


def test_the_formats_are_those_that_the_catalog_takes() -> None:
    assert TABLE_FORMAT_MAX == FORMAT_VERSION_MAX


def test_a_running_agent_is_read_and_its_file_is_tried(dev: Dev, tmp_path: Path) -> None:
    dev.run("topic", "create", "upgraded", "--config", "segment.bytes=1048576")
    dev.run("cluster", "config", "set", "log.roll.jitter.hours=1")
    told = json.loads(dev.run("upgrade", "check", "--output", "json").out)
    dev.run("cluster", "config", "unset", "log.roll.jitter.hours")
    assert (told["versions"], told["to"], told["feature_level"]) == ([VERSION], VERSION, 2)
    assert {each["what"].split(" ")[0] for each in told["found"]} == {
        "is",
        "segment.bytes",
        "log.roll.jitter.hours",
    }
    file = tmp_path / "floe.yaml"
    file.write_text("produce: {lingerms: 4}\n")
    shown = dev.run("upgrade", "check", "--config", str(file), status=1).out
    assert "lingerms" in shown
