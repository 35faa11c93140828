"""The main job's Spark side says how far it is while a stage takes long."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from deploy.run.analyse import Tasks, stage

TASKS = 12
EACH_MS = 300


def test_a_long_stage_tells_how_many_tasks_are_done(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = spark.range(0, TASKS, 1, TASKS).selectExpr(f"reflect('java.lang.Thread', 'sleep', {EACH_MS}L)")
    with stage("audit", spark, every_s=0.05):
        slow.collect()
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [each["event"] for each in (events[0], events[-1])] == ["stage", "stage done"]
    told = [each for each in events if each["event"] == "working"]
    assert {each["name"] for each in told} == {"audit"}
    done = [each["done"] for each in told]
    assert done == sorted(done), "it only goes on"
    assert Tasks(spark).count() == (0, 0), "what was done before is not counted"
    tasks = Tasks(spark)
    spark.range(0, 3, 1, 3).selectExpr("count(1)").collect()
    assert tasks.count()[0] >= 3, "and what ended between two looks is"
    assert any(0 < each["done"] < TASKS and each["open"] == TASKS - each["done"] for each in told), told
