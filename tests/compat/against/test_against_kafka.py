"""Floe answers as Apache Kafka does, but for what docs/deviations.md lists."""

from __future__ import annotations

import asyncio

import pytest

from deploy.services.kafka import Kafka
from tests.compat.against.agreement import ABSENT, PAGE, Row, differences, rows, unexplained
from tests.compat.against.questions_admin import QUESTIONS as ADMIN
from tests.compat.against.questions_cluster import QUESTIONS as CLUSTER
from tests.compat.against.questions_consumer import QUESTIONS as CONSUMERS
from tests.compat.against.questions_data import QUESTIONS as DATA
from tests.compat.against.questions_groups import QUESTIONS as GROUPS
from tests.compat.against.questions_retention import QUESTIONS as RETENTION
from tests.compat.against.side import Side
from tests.compat.cluster import Cluster

QUESTIONS = ADMIN | CLUSTER | CONSUMERS | DATA | GROUPS | RETENTION


@pytest.mark.services
@pytest.mark.parametrize("name", QUESTIONS)
async def test_floe_answers_as_kafka_does(name: str, cluster: Cluster, kafka: Kafka) -> None:
    sides = [Side(server, f"{name}-") for server in (kafka.bootstrap, cluster.agents[0].bootstrap)]
    theirs, ours = await asyncio.gather(*(QUESTIONS[name](side) for side in sides))
    assert theirs, "a question that asks nothing"
    problems = unexplained(name, differences(theirs, ours), rows(PAGE.read_text()))
    assert not problems, "fix Floe, or say why in docs/deviations.md:\n" + "\n".join(problems)


def test_every_deviation_belongs_to_a_question() -> None:
    agreed = rows(PAGE.read_text())
    assert agreed
    assert {row.question for row in agreed} <= QUESTIONS.keys()
    named = [(row.question, name) for row in agreed for name in row.fields]
    assert len(named) == len(set(named)), "one row for each difference"


def test_a_difference_without_a_row_and_a_row_without_a_difference_are_found() -> None:
    row = Row("Q", ("a", "b"), "1", "any", "a reason")
    assert differences({"a": "1", "x": "0"}, {"a": "2", "x": "0", "b": "3"}) == {
        "a": ("1", "2"),
        "b": (ABSENT, "3"),
    }
    assert unexplained("Q", {"a": ("1", "2"), "b": ("1", "9")}, [row]) == []
    assert unexplained("Q", {"a": ("1", "2")}, [row]) == ["Q: b no longer differs"]
    assert len(unexplained("Q", {"a": ("5", "2"), "b": ("1", "2")}, [row])) == 1
    assert len(unexplained("other", {"a": ("1", "2")}, [row])) == 1
    with pytest.raises(ValueError, match="needs 5 filled columns"):
        rows("| Q | a | 1 | 2 |")
