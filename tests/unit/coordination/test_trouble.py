"""What fails again and again is remembered with since when, until it works; and no more than that."""

from __future__ import annotations

import pytest

from coordination.clock import ManualClock
from coordination.trouble import FORGOTTEN_MS, NAMES_MAX, Trouble, Troubles


def test_a_job_that_fails_is_told_with_since_when_how_often_and_why() -> None:
    clock = ManualClock(start_ms=1_000)
    troubles = Troubles(clock.now_ms)
    troubles.failed("snapshot", ValueError("too large"))
    clock.advance(60)
    troubles.failed("snapshot", OSError("disk"))
    troubles.failed("retention", "x" * 9_999)
    first, second = troubles.now()
    assert first == Trouble("snapshot", 1_000, 61_000, 2, "OSError: disk")
    assert (second.name, second.since_ms, len(second.error)) == ("retention", 61_000, 500)
    troubles.worked("snapshot")
    troubles.worked("never heard of")
    assert [each.name for each in troubles.now()] == ["retention"]
    clock.advance(FORGOTTEN_MS / 1000 + 1)
    assert troubles.now() == [], "its topic is gone, or another agent has the claim"


def test_what_others_know_of_is_told_too() -> None:
    clock = ManualClock()
    troubles = Troubles(clock.now_ms)
    troubles.failed("snapshot", "x")
    older = Trouble("merging: t/0", clock.now_ms() - 5, clock.now_ms(), 9, "Corrupt: y")
    troubles.more.append(lambda: [older])
    assert [each.name for each in troubles.now()] == ["merging: t/0", "snapshot"]


def test_as_many_names_as_there_is_room_for() -> None:
    troubles = Troubles(ManualClock().now_ms)
    for number in range(NAMES_MAX + 5):
        troubles.failed(f"{number}", "x")
    assert len(troubles.now()) == NAMES_MAX
    assert "4" not in {each.name for each in troubles.now()}


def test_of_what_fails_for_minutes_a_few_lines_are_written_and_one_when_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    troubles = Troubles(clock.now_ms)
    with caplog.at_level("INFO"):
        for _ in range(178):
            troubles.failed("table of t", OSError("disk"))
            clock.advance(1)
        troubles.worked("table of t")
        troubles.worked("table of t")
        troubles.failed("table of u", OSError("disk"))
        troubles.passed_on("table of u")
    assert [
        (line.message, line.fields.get("times"), line.fields.get("lasted_s")) for line in caplog.records
    ] == [
        ("a job fails", None, None),
        ("a job fails", 61, None),
        ("a job fails", 121, None),
        ("a job works again", 178, 178.0),
        ("a job fails", None, None),
        ("a job that failed is not this agent's any more", 1, 0.0),
    ]
