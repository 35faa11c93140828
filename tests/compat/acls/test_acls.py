"""Floe refuses and allows as Apache Kafka with StandardAuthorizer does, but for what is listed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.services.kafka import VERSION
from tests.compat.acls.questions import QUESTIONS, Answers
from tests.compat.acls.secured import SecuredKafka, secured_agent
from tests.compat.conftest import stop

FILE = Path(__file__).with_name("recorded.json")
REFRESH = "python -m pytest tests/compat/acls --broker kafka --keep-results"
BAD = "acls that are none"
BROKEN = "UNKNOWN_SERVER_ERROR"
DEVIATIONS: dict[tuple[str, str], tuple[str, str]] = {
    # Kafka's code throws where it did not mean to, and every ACL of the request is refused.
    (BAD, "resource type any"): (BROKEN, "INVALID_REQUEST: Invalid resourceType ANY"),
    (BAD, "pattern any"): (BROKEN, "INVALID_REQUEST: Invalid patternType ANY"),
    (BAD, "pattern match"): (BROKEN, "INVALID_REQUEST: Invalid patternType MATCH"),
    (BAD, "operation any"): (BROKEN, "INVALID_REQUEST: Invalid operation ANY"),
    (BAD, "permission any"): (BROKEN, "INVALID_REQUEST: Invalid permissionType ANY"),
    # Kafka never answers a request of this version that names no transaction.
    ("25 AddPartitionsToTxn", "allowed 1"): ("closed", "none"),
    # Kafka cannot refuse who asks for all users, and ends the connection.
    ("48 DescribeUserScramCredentials", "allowed 0"): ("closed", "CLUSTER_AUTHORIZATION_FAILED"),
}
"""By question and field: what Kafka answers and what Floe answers, each with its reason."""


def recorded() -> dict[str, Answers]:
    """What Apache Kafka answered, by question."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {"version": VERSION, "answers": {}}
    assert found["version"] == VERSION, REFRESH
    answers: dict[str, Answers] = found["answers"]
    return answers


@pytest.fixture(scope="module")
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Whom this run asks: Floe, or with `--broker kafka` Apache Kafka itself."""
    if request.config.getoption("broker") == "kafka":
        with SecuredKafka() as kafka:
            yield kafka.bootstrap
        return
    agent, bootstrap = secured_agent(tmp_path_factory.mktemp("acls"))
    yield bootstrap
    assert stop(agent) == 0


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUESTIONS)
async def test_floe_answers_as_kafka_does(name: str, asked: str, pytestconfig: pytest.Config) -> None:
    answers = await QUESTIONS[name](asked)
    assert answers, "a question that asks nothing"
    of_kafka = pytestconfig.getoption("broker") == "kafka"
    if of_kafka and pytestconfig.getoption("keep_results"):
        kept = {each: found for each, found in recorded().items() if each in QUESTIONS} | {name: answers}
        told = {"version": VERSION, "answers": kept}
        FILE.write_text(json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return
    theirs = recorded()[name]
    assert answers.keys() == theirs.keys(), REFRESH
    differing = {
        (name, field): (theirs[field], answer) for field, answer in answers.items() if answer != theirs[field]
    }
    wanted = {} if of_kafka else {key: each for key, each in DEVIATIONS.items() if key[0] == name}
    assert differing == wanted, "fix Floe, or say why in DEVIATIONS and docs/deviations.md"


def test_every_question_was_asked_of_kafka() -> None:
    assert recorded().keys() == QUESTIONS.keys(), REFRESH
