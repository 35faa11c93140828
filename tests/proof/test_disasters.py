"""What is kept of a disaster: judges find what is lost or doubled in it, and pass what was told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.checker.judge import judge
from tests.proof.disasters import Kept, told
from tests.torture.restore_load import Load

FIRST, SECOND = ("x5-0-0", "x5-0-1"), ("x5-1-0", "x5-1-1")


def found(read: Sequence[str], *, aborted: Sequence[str] = (), before: int = 2) -> set[str]:
    """Anomalies, where these values are read, of two records and two transactions that were acknowledged."""
    kept, load = Kept("t"), Load("nobody")
    for value in ("i0-0", "i0-1"):
        kept.note("i0", "send", "ok", 1, [(0, value)])
    kept.note("p4", "send", "ok", 1, [(0, "p4-0")])
    for values in (FIRST, SECOND):
        kept.note("x5", "txn", "ok", 1, [(0, value) for value in values])
        load.transactions.append(values)
    kept.over(load, [list(enumerate(read))], {"aborted": list(aborted)}, before)
    return {each.anomaly for each in judge(kept.history).findings if each.weight == "fail"}


ALL = ["i0-0", "i0-1", *FIRST, *SECOND]


def test_all_there_is_well_and_plain_ones_may_be_twice() -> None:
    assert found(ALL) == set()
    assert found(["p4-0", *ALL, "p4-0"]) == set()


def test_a_transaction_that_was_told_of_as_aborted_may_be_away() -> None:
    assert found(["i0-0", "i0-1", *FIRST], aborted=["x5"]) == set()


@pytest.mark.parametrize(
    ("read", "more", "anomalies"),
    [
        (["i0-1", *FIRST, *SECOND], {}, {"unseen"}),
        (["i0-1", "i0-0", *FIRST, *SECOND], {}, {"nonmonotonic-send"}),
        ([*ALL, "i0-0"], {}, {"duplicate"}),
        (["i0-0", "i0-1", *FIRST], {}, {"unseen"}),
        (["i0-0", "i0-1", *FIRST], {"aborted": ["x6"]}, {"unseen"}),
        (["i0-0", "i0-1", *FIRST], {"aborted": ["x5"], "before": 1}, {"unseen"}),
        (["i0-0", "i0-1", FIRST[0], *SECOND], {"aborted": ["x5"]}, {"unseen"}),
    ],
    ids=["lost", "out of order", "doubled", "not told", "another told", "of the restored log", "torn"],
)
def test_what_must_not_be_is_found(read: list[str], more: dict[str, object], anomalies: set[str]) -> None:
    assert anomalies <= found(read, **more)  # type: ignore[arg-type]  # a table of keywords


def test_a_missed_damage_is_a_finding_and_so_is_a_run_that_ends() -> None:
    sound = "20 damages, all found: {'mended': 20}\n"
    assert told("d", 0, f"{sound}at a real S3 server: {sound}", "").wrong == {}
    assert told("d", 0, f"{sound}at a real S3 server: {sound}", "").figures["in memory"] == sound.strip()
    assert told("d", 1, f"{sound}MISSED: damage 3 of the cluster of seed 19: not told", "").wrong == {
        "damage-missed": 1
    }
    assert told("d", 1, "", "Traceback").wrong == {"run-ended": 1}
