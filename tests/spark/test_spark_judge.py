"""Spark and the pure checker judge alike: histories of every anomaly, and some hundred made at random."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.checker.judge import judge
from tests.checker.made import made
from tests.checker.operations import load
from tests.checker.progress import Patience
from tests.checker.spark_cycles import cycles, named
from tests.checker.spark_judge import judge_all
from tests.checker.tables import write
from tests.checker.test_checker import BAD, GOOD

MADE = int(os.environ.get("MADE", "300"))  # histories at random; `make proof` takes 1,000
OPERATIONS = 8
"""Of a run whose edges are drawn."""
PATIENCE = Patience(group_ns=15_000_000_000)


@pytest.mark.thorough
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


def test_cycles_of_neighbours_and_of_the_far_are_found(spark: SparkSession) -> None:
    """Edges at random, so cycles are of operations next to each other, and nest and touch: regions must have
    what the whole graph has (`a > b + 1` in spark_cycles.py would lose neighbours).
    """
    rows, expected = [], list[tuple[str, str, str]]()
    for number in range(200):
        dice, run = random.Random(number), f"run-{number}"
        edges = {
            (a, b, dice.choice(("ww", "wr")))
            for a, b in (dice.sample(range(OPERATIONS), 2) for _ in range(dice.randint(2, 6)))
        }
        edges |= {(0, 1, "ww"), (1, 0, "ww")} if number == 0 else set()
        rows += [(run, *edge) for edge in sorted(edges)]
        both = {(a, b): why for a, b, why in sorted(edges, key=lambda each: each[2])}
        for graph in ("ww", "wr", "both"):
            of = [(a, b, why) for a, b, why in edges if why == graph]
            of = [(a, b, why) for (a, b), why in both.items()] if graph == "both" else of
            expected += [(run, anomaly, weight) for anomaly, weight in map(str.split, named(graph, of))]
    found = cycles(spark.createDataFrame(rows, "run string, a bigint, b bigint, why string"))
    assert Counter(found) == Counter(expected)
    assert ("run-0", "G0", "reported") in found
