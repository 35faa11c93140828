"""Spark and the pure checker judge alike: histories of every anomaly, and some hundred made at random."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from tests.checker.judge import judge
from tests.checker.operations import History, Operation, Poll, Send, load
from tests.checker.progress import Patience
from tests.checker.spark_judge import judge_all
from tests.checker.tables import write
from tests.checker.test_checker import BAD, GOOD

MADE = 300  # histories at random
KEYS = ("x", "y")
PATIENCE = Patience(group_ns=15_000_000_000)
SECOND = 1_000_000_000
MEANINGS = ("send", "txn", "txn", "poll", "poll", "assign", "subscribe", "crash")


def made(seed: int) -> History:
    """A short history in which most goes right and much may go wrong."""
    draw = random.Random(seed)
    log: dict[str, list[int]] = {key: [] for key in KEYS}
    place: dict[tuple[int, str], int] = {}
    history, value = History(), 0
    for index in range(draw.randint(3, 25)):
        process, f = (
            draw.randrange(3),
            draw.choice(("send", "txn", "txn", "poll", "poll", "assign", "subscribe", "crash")),
        )
        micro: list[Send | Poll] = []
        for _ in range(draw.randint(1, 3) if f in ("send", "txn", "poll") else 0):
            key = draw.choice(KEYS)
            if f == "send" or (f == "txn" and draw.random() < 0.5):
                value += 1
                if draw.random() < 0.9:
                    log[key].append(value)
                offset = max(0, len(log[key]) - 1 - (draw.random() < 0.05))
                micro.append(Send(key, value, offset if draw.random() < 0.8 else None))
            else:
                start = max(0, place.get((process, key), 0) + draw.choice((0, 0, 0, 0, 0, 1, -1)))
                rows = [(o, v) for o, v in enumerate(log[key]) if o >= start][: draw.randint(0, 4)]
                if rows and draw.random() < 0.06:
                    rows[-1] = (rows[-1][0], draw.choice((value + 1000, rows[0][1])))
                if len(rows) > 2 and draw.random() < 0.06:
                    del rows[1]
                place[process, key] = rows[-1][0] + 1 if rows else start
                micro.append(Poll({key: rows}))
        named = tuple(k for k in KEYS if draw.random() < 0.8) if f in ("assign", "subscribe") else ()
        moved = frozenset(k for k in KEYS if draw.random() < 0.1)
        outcome = draw.choice(("ok", "ok", "ok", "ok", "ok", "info", "fail"))
        at = index * draw.choice((1, 2)) * SECOND
        history.operations.append(
            Operation(index, process, f, outcome, tuple(micro), named, moved, at, at + SECOND // 2)
        )
    return history


def test_spark_and_the_pure_checker_judge_alike(spark: SparkSession, tmp_path: Path) -> None:
    histories = {path.stem: load(path.read_text().splitlines()) for path in (*BAD, *GOOD)}
    histories |= {f"made-{seed}": made(seed) for seed in range(MADE)}
    write(histories, tmp_path, ["agent-0 is killed"])
    found = judge_all(spark, tmp_path, healed_ns=0, patience=PATIENCE)
    seen: Counter[str] = Counter()
    for run, history in histories.items():
        expected = Counter(
            (f.anomaly, f.weight, f.key) for f in judge(history, healed_ns=0, patience=PATIENCE).findings
        )
        assert found.get(run, Counter()) == expected, run
        seen.update({anomaly for anomaly, _, _ in expected if run.startswith("made")})
    assert len(seen) > 14, f"the random histories show most anomalies: {seen}"
