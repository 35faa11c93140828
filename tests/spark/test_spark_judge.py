"""Spark and the pure checker judge alike: histories of every anomaly, and some hundred made at random."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from tests.checker.judge import judge
from tests.checker.made import made
from tests.checker.operations import load
from tests.checker.progress import Patience
from tests.checker.spark_judge import judge_all
from tests.checker.tables import write
from tests.checker.test_checker import BAD, GOOD

MADE = int(os.environ.get("MADE", "300"))  # histories at random; `make proof` takes 1,000
PATIENCE = Patience(group_ns=15_000_000_000)


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
