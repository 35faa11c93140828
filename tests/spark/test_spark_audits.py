"""The audits over broker_log find each kind of damage by its name, and nothing in logs that only look bad."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.checker.operations import History, Operation, Outcome, Send
from tests.checker.spark_audits import audit_all
from tests.checker.tables import Logged, write

Run = tuple[History, list[Logged]]
P1, P2 = 1, 2  # producers


def batch(
    key: str, base: int, values: str, sequence: int, producer: int = P1, *, txn: bool = False
) -> Logged:
    """Records whose values are single letters."""
    records = tuple((base + at, value) for at, value in enumerate(values))
    return Logged(key, "records", base, base + len(values), producer, 0, sequence, txn, records=records)


def end(key: str, base: int, kind: str, stamp_ms: int, producer: int = P1) -> Logged:
    """A marker."""
    assert kind in ("commit", "abort")
    made = Logged(key, "commit", base, base + 1, producer, 0, stamp_ms=stamp_ms)
    return made if kind == "commit" else replace(made, kind="abort")


def bounds(key: str, high: int, start: int = 0, **others: Any) -> Logged:
    """A partition of which everything is stable, where nothing else is said."""
    return replace(Logged(key, "bounds", start, high, stable=high), **others)


def told(*operations: tuple[str, Outcome, list[Send]]) -> History:
    """What clients were told: (f, outcome, sends)."""
    return History(
        [Operation(at, 1, f, outcome, tuple(sends)) for at, (f, outcome, sends) in enumerate(operations)]
    )


def written(*batches: Logged, high: int, sends: list[Send] | None = None, **others: int) -> Run:
    """One partition `x`, and what was acknowledged there."""
    return told(("send", "ok", sends or [])), [bounds("x", high, **others), *batches]


def transacted(outcome: Outcome, ends: tuple[str, str], stamps: tuple[int, int] = (7, 7)) -> Run:
    """One transaction on two partitions, and how each of them ends it."""
    sends = [Send("x", "a", 0), Send("y", "b", 0)]
    log = [
        row
        for key, value, how, stamp in zip("xy", "ab", ends, stamps, strict=True)
        for row in (bounds(key, 2), batch(key, 0, value, 0, txn=True), end(key, 1, how, stamp))
    ]
    return told(("txn", outcome, sends)), log


A, B = batch("x", 0, "ab", 0), batch("x", 2, "cd", 2)
ABORTED_GAP = (batch("x", 0, "a", 0), batch("x", 3, "b", 1), end("x", 4, "abort", 1, P2))

BAD: dict[str, tuple[Run, set[str]]] = {
    "overlap": (written(A, replace(B, base_offset=1), high=4), {"tiling"}),
    "gap in the tail": (written(A, replace(B, base_offset=3, next_offset=5), high=5), {"tiling"}),
    "gap that nothing explains": (
        written(A, batch("x", 4, "c", 2), high=5, merged_to=5, stable=5),
        {"tiling"},
    ),
    "gap whose abort is of a producer that wrote behind it": (
        written(
            batch("x", 0, "a", 0), batch("x", 3, "b", 0, P2, txn=True), end("x", 4, "abort", 1, P2),
            high=5, merged_to=5,
        ),
        {"tiling"},
    ),
    "ends too early": (written(A, high=4), {"tiling"}),
    "empty and not at its end": (written(high=3), {"tiling"}),
    "begins too late": (written(B, high=4), {"tiling"}),
    "sequence skipped": (written(A, replace(B, sequence=3), high=4), {"sequence"}),
    "sequence twice": (written(A, replace(B, sequence=0), high=4), {"sequence"}),
    "another record at the offset": (written(A, high=2, sends=[Send("x", "z", 1)]), {"not-in-log"}),
    "at another offset": (written(A, high=2, sends=[Send("x", "a", 1)]), {"not-in-log"}),
    "acknowledged without offset, nowhere": (written(A, high=2, sends=[Send("x", "z")]), {"not-in-log"}),
    "refused and written": (
        (told(("send", "fail", [Send("x", "a")])), [bounds("x", 2), A]),
        {"failed-in-log"},
    ),
    "ok and aborted": (transacted("ok", ("abort", "abort")), {"wrong-end"}),
    "failed and committed": (transacted("fail", ("commit", "commit")), {"wrong-end"}),
    "half of it committed": (transacted("info", ("commit", "abort")), {"torn-end"}),
    "ended twice": (transacted("ok", ("commit", "commit"), (7, 8)), {"torn-end"}),
    "never ended": (written(batch("x", 0, "a", 0, txn=True), high=1), {"no-end"}),
    "not stable at the end": (written(A, B, high=4, stable=2), {"no-end"}),
}  # fmt: skip
GOOD: dict[str, Run] = {
    "plain": written(A, B, high=4, sends=[Send("x", "a", 0), Send("x", "d", 3), Send("x", "c")]),
    "empty": written(high=0),
    "first batch begins before the log start": written(A, B, high=4, start=1, sends=[Send("x", "a", 0)]),
    "all gone": written(high=4, start=4),
    "compacted": written(
        A, replace(B, base_offset=5, next_offset=7), high=7, merged_to=7, compacted_to=7,
        sends=[Send("x", "z", 4)],
    ),
    "gap of an aborted transaction": written(*ABORTED_GAP, high=5, merged_to=5),
    "gap of an aborted transaction whose rest is in the tail": written(
        batch("x", 0, "a", 0), batch("x", 3, "b", 1, P2, txn=True), end("x", 4, "abort", 1, P2),
        high=5, merged_to=3,
    ),
    "another epoch begins anew": written(A, replace(B, sequence=0, epoch=1), high=4),
    "sequences wrap": written(
        replace(A, sequence=(1 << 31) - 1), replace(B, sequence=1), high=4,
    ),
    "committed": transacted("ok", ("commit", "commit")),
    "aborted": transacted("fail", ("abort", "abort")),
    "unknown and aborted": transacted("info", ("abort", "abort")),
    "without a log": (told(("send", "ok", [Send("x", "a", 0)])), []),
}  # fmt: skip


def test_each_damage_is_called_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    runs = {name: run for name, (run, _) in BAD.items()} | GOOD
    write({name: run[0] for name, run in runs.items()}, tmp_path, logs={n: run[1] for n, run in runs.items()})
    found = audit_all(spark, tmp_path)
    named = {name: {anomaly for anomaly, _, _ in found.get(name, Counter())} for name in runs}
    assert named == {name: expected for name, (_, expected) in BAD.items()} | {name: set() for name in GOOD}
