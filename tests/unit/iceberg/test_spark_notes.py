"""What runs and audits noted in a table's snapshots: the newest is asked for, whatever clocks said."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from iceberg.audited import FINDINGS, TOPIC_ID
from iceberg.spark.jobs import PROPERTY, newest_first
from iceberg.spark.procedures import unasked_ms
from tests.unit.iceberg.test_rest_stamps import NOW_MS, Table, appended, commit, points, snapshot

AHEAD_MS = 30_000
LATE_MS = NOW_MS + 900_000_000
ID = "a" * 32


def noted(number: int, parent: int | None, at_ms: int, **summary: str) -> tuple[Table, Table]:
    """A snapshot with more in its summary, and main at it."""
    told = snapshot(number, number, parent, at_ms)
    told["summary"] |= summary
    return {"action": "add-snapshot", "snapshot": told}, points(number)


def run(base: Table, number: int, now_ms: int, ahead_ms: int = 0) -> Table:
    """A run's branch from main with its one snapshot, which main is moved to by a commit of its own."""
    parent, mark = base["refs"]["main"]["snapshot-id"], f"clicks={ID}:{number}"
    made, _ = noted(number, parent, now_ms + ahead_ms, **{PROPERTY + ID: mark})
    branch = commit(base, made, points(number, f"floe_run_{number}"), at_ms=now_ms)
    return commit(branch, points(number), at_ms=now_ms + 1_000)


def runs(*ahead_ms: int) -> Table:
    """A table that runs wrote 6 s apart, each on a machine whose clock is so far ahead."""
    table = appended(1)
    for at, ahead in enumerate(ahead_ms):
        table = run(table, 2 + at, NOW_MS + 6_000 * (at + 1), ahead)
    return table


def rows(table: Table) -> list[dict[str, Any]]:
    """The table's snapshots, as Spark's SQL tells them."""
    return [
        {
            "snapshot_id": each["snapshot-id"],
            "parent_id": each.get("parent-snapshot-id"),
            "ms": each["timestamp-ms"],
            "noted": {name: text for name, text in each["summary"].items() if name != "operation"},
        }
        for each in table["snapshots"]
    ]


def marks(table: Table) -> list[int]:
    """The runs whose notes count, the newest first."""
    found: Sequence[Mapping[str, str]] = newest_first(table["refs"]["main"]["snapshot-id"], rows(table))
    return [int(each[PROPERTY + ID].rpartition(":")[2]) for each in found]


@pytest.mark.parametrize("ahead", [(0, 0, 0, 0), (AHEAD_MS, 0, 0, 0), (0, 0, AHEAD_MS, 0)])
def test_a_run_goes_on_where_the_one_before_it_ended(ahead: tuple[int, ...]) -> None:
    """Moves of main behind a stamp that is ahead all get that stamp in the catalog's log."""
    table = runs(*ahead)
    stamps = [each["timestamp-ms"] for each in table["snapshot-log"]]
    assert (len(set(stamps)) < len(stamps)) == any(ahead)
    assert marks(table) == [5, 4, 3, 2]


def test_runs_that_were_rolled_back_or_never_published_note_nothing() -> None:
    table = commit(runs(0, AHEAD_MS, 0), points(3), at_ms=NOW_MS + 60_000)
    made, _ = noted(9, 3, NOW_MS + 90_000, **{PROPERTY + ID: f"clicks={ID}:9"})
    table = commit(table, made, points(9, "floe_run_9"), at_ms=NOW_MS + 90_000)
    assert marks(table) == [3, 2]
    assert unasked_ms(3, rows(table), LATE_MS) == NOW_MS + 12_000 + AHEAD_MS
    assert newest_first(None, []) == []


def stays(table: Table, before_ms: int) -> set[int]:
    """What Iceberg's RemoveSnapshots leaves of main: the newest, and back to the first that is too old."""
    kept = {each["snapshot_id"]: each for each in rows(table)}
    at = kept[table["refs"]["main"]["snapshot-id"]]
    found = {at["snapshot_id"]}
    while at["parent_id"] is not None and kept[at["parent_id"]]["ms"] >= before_ms:
        at = kept[at["parent_id"]]
        found.add(at["snapshot_id"])
    return found


@pytest.mark.parametrize("ahead", list(itertools.product([0, AHEAD_MS], repeat=3)))
def test_the_newest_note_is_no_old_snapshot_whatever_clocks_said(ahead: tuple[int, ...]) -> None:
    """Behind the runs somebody else commits, by a clock that is right."""
    table = runs(*ahead)
    for number in (5, 6):
        at_ms = NOW_MS + 6_000 * number
        table = commit(table, *noted(number, number - 1, at_ms), at_ms=at_ms)
    before_ms = unasked_ms(6, rows(table), LATE_MS)
    assert 4 in stays(table, before_ms)
    assert unasked_ms(6, rows(table), NOW_MS - 5) == NOW_MS - 5


def test_audits_are_asked_of_snapshots_that_a_gap_parts_from_main() -> None:
    """A table of audits was tidied: an agent tells what it has of any topic."""
    table = appended(1)
    for number, topic, findings in ((2, "00", "0"), (3, "01", "0"), (4, "01", "1"), (5, "01", "0")):
        told = {TOPIC_ID: topic, FINDINGS: findings}
        at_ms = NOW_MS + 6_000 * number
        table = commit(table, *noted(number, number - 1, at_ms, **told), at_ms=at_ms)
    left = [each for each in rows(table) if each["snapshot_id"] != 3]
    assert unasked_ms(5, left, LATE_MS) == NOW_MS + 6_000 * 2
    assert unasked_ms(5, left[2:], LATE_MS) == NOW_MS + 6_000 * 5
