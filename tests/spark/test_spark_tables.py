"""The audit of tables by Spark: a small bad table for each of its anomalies, and a good one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.checker.operations import History
from tests.checker.spark_tables import audit_tables
from tests.checker.tables import Logged, write

LOG = [
    Logged("t-0", "bounds", 0, 7, stable=7),
    Logged("t-0", "records", 0, 2, 5, 0, 0, records=((0, "a"), (1, "b"))),
    Logged("t-0", "records", 2, 3, 6, 0, 0, transactional=True, records=((2, "committed"),)),
    Logged("t-0", "commit", 3, 4, 6, 0),
    Logged("t-0", "records", 4, 5, 6, 0, 1, transactional=True, records=((4, "aborted"),)),
    Logged("t-0", "abort", 5, 6, 6, 0),
    Logged("t-0", "records", 6, 7, records=((6, "c"),)),
]
GOOD = [(0, "a"), (1, "b"), (2, "committed"), (6, "c")]
CASES: dict[str, tuple[list[tuple[int, str]], str]] = {
    "as it must be": (GOOD, ""),
    "a row is missing": (GOOD[1:], "table-missing"),
    "a row twice": ([*GOOD, GOOD[0]], "table-doubled"),
    "another value": ([(0, "x"), *GOOD[1:]], "table-changed"),
    "an aborted record": ([*GOOD, (4, "aborted")], "table-extra"),
    "a committed one left out": ([each for each in GOOD if each[0] != 2], "table-missing"),
}


@pytest.mark.services
def test_each_difference_has_its_name(spark: SparkSession, tmp_path: Path) -> None:
    write({case: History() for case in CASES}, tmp_path, logs=dict.fromkeys(CASES, LOG))
    rows = [
        (case, "t-0", offset, f'"{value}"') for case, (held, _) in CASES.items() for offset, value in held
    ]
    told = audit_tables(
        spark, tmp_path, spark.createDataFrame(rows, "run string, key string, offset long, value string")
    )
    for case, (_, anomaly) in CASES.items():
        assert dict(told[case]) == ({(anomaly, "fail", "t-0"): 1} if anomaly else {}), case
