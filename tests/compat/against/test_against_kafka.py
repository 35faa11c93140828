"""Floe answers as Apache Kafka does, but for what docs/deviations.md lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from agent.kafka.handlers import HANDLERS
from agent.net.wire.api import APIS
from agent.net.wire.generated import create_topics as ct
from deploy.services.kafka import VERSION, Kafka
from objectstore.batch import NewRecord, build, records
from tests.compat import raw
from tests.compat.against import recorded
from tests.compat.against.agreement import ABSENT, PAGE, Row, blanks, differences, rows, unexplained
from tests.compat.against.questions_admin import QUESTIONS as ADMIN
from tests.compat.against.questions_bad import QUESTIONS as BAD
from tests.compat.against.questions_bad_admin import QUESTIONS as BAD_ADMIN
from tests.compat.against.questions_cluster import QUESTIONS as CLUSTER
from tests.compat.against.questions_consumer import QUESTIONS as CONSUMERS
from tests.compat.against.questions_data import QUESTIONS as DATA
from tests.compat.against.questions_groups import QUESTIONS as GROUPS
from tests.compat.against.questions_logins import QUESTIONS as LOGINS
from tests.compat.against.questions_named import QUESTIONS as NAMED
from tests.compat.against.questions_order import QUESTIONS as ORDER
from tests.compat.against.questions_order_topics import CLUSTER as CLUSTER_ORDER
from tests.compat.against.questions_order_topics import IN_ORDER
from tests.compat.against.questions_positions import QUESTIONS as POSITIONS
from tests.compat.against.questions_quotas import QUESTIONS as QUOTAS
from tests.compat.against.questions_retention import QUESTIONS as RETENTION
from tests.compat.against.questions_transactions import QUESTIONS as TRANSACTIONS
from tests.compat.against.questions_transactions_bad import QUESTIONS as BAD_TRANSACTIONS
from tests.compat.against.secured import Secured, floe_with_logins, kafka_with_logins
from tests.compat.against.side import NOW, Answers, Side
from tests.compat.cluster import Cluster
from tests.equipment.forms import note, nullable_fields, watched

# What cannot be blank.
ALWAYS_FULL = {
    "CreateAcls.results.error_message",
    "DeleteAcls.filter_results.error_message",
    "DeleteAcls.filter_results.matching_acls.error_message",
    "DescribeAcls.error_message",
    "DescribeTopicPartitions.topics.name",
    "DescribeUserScramCredentials.results.error_message",
    "ElectLeaders.replica_election_results.partition_result.error_message",
    "Fetch.node_endpoints.rack",
    "Produce.node_endpoints.rack",
    "Produce.responses.partition_responses.record_errors.batch_index_error_message",
    "UpdateFeatures.results.error_message",
}

# By address: who asks, and what the topic of this run has been sent.
_keepsakes: dict[str, tuple[Side, list[bytes]]] = {}
QUESTIONS = (
    ADMIN
    | BAD
    | BAD_ADMIN
    | BAD_TRANSACTIONS
    | CLUSTER
    | CONSUMERS
    | DATA
    | GROUPS
    | NAMED
    | ORDER
    | POSITIONS
    | QUOTAS
    | RETENTION
    | TRANSACTIONS
)
ASKED = QUESTIONS.keys() | LOGINS.keys()


@pytest.fixture(scope="session")
def asked(request: pytest.FixtureRequest) -> str:
    """The address of whom this run asks: Floe, or with `--broker kafka` Apache Kafka itself."""
    if request.config.getoption("broker") == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        return kafka.bootstrap
    cluster: Cluster = request.getfixturevalue("cluster")
    return cluster.agents[0].bootstrap


@pytest.fixture
async def unharmed(request: pytest.FixtureRequest, asked: str) -> AsyncIterator[None]:
    """Whatever was asked, every agent of Floe is the same process and the records from before are there."""
    side, before = _keepsakes.setdefault(asked, (Side(asked, "keepsake-"), []))
    topic = await side.topic("kept", retention_ms="-1")
    value = b"%d" % len(before)
    before.append(value)
    sent = await raw.produce(asked, topic, build([NewRecord(NOW, None, value)]))
    assert (sent.error_code, sent.base_offset) == (0, len(before) - 1)
    of_kafka = request.config.getoption("broker") == "kafka"
    agents = [] if of_kafka else request.getfixturevalue("cluster").agents
    yield
    assert all(agent.running for agent in agents), "an agent died of it"
    for agent in agents:
        batches = await raw.fetch_batches(agent.bootstrap, topic, 0)
        assert [record.value for each in batches for record in records(each)] == before


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Likewise, with a listener where clients log in."""
    of_kafka = request.config.getoption("broker") == "kafka"
    with (kafka_with_logins if of_kafka else floe_with_logins)(tmp_path_factory.mktemp("secured")) as side:
        yield side


LONG = {"Transactions.widest": 1200}  # seconds; of Kafka, that makes and serves ten thousand partitions


@pytest.mark.services
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.timeout(LONG.get(name, 300))) for name in QUESTIONS]
)
async def test_floe_answers_as_kafka_does(
    name: str, asked: str, unharmed: None, pytestconfig: pytest.Config
) -> None:
    with watched() as forms:
        answers = await QUESTIONS[name](Side(asked, f"{name}-"))
    _compare(name, answers | blanks(forms), pytestconfig)


@pytest.mark.services
@pytest.mark.parametrize("name", LOGINS)
async def test_floe_lets_in_as_kafka_does(name: str, secured: Secured, pytestconfig: pytest.Config) -> None:
    with watched() as forms:
        answers = await LOGINS[name](secured)
    _compare(name, answers | blanks(forms), pytestconfig)


def _compare(name: str, answers: Answers, pytestconfig: pytest.Config) -> None:
    assert answers, "a question that asks nothing"
    of_kafka = pytestconfig.getoption("broker") == "kafka"
    if of_kafka and pytestconfig.getoption("keep_results"):
        recorded.keep(name, answers, ASKED)
        return
    theirs = recorded.answers()[name]
    if of_kafka:
        assert answers == theirs, f"Apache Kafka answers otherwise than recorded: {recorded.REFRESH}"
    problems = unexplained(name, differences(theirs, answers), rows(PAGE.read_text()))
    assert of_kafka or not problems, "fix Floe, or say why in docs/deviations.md:\n" + "\n".join(problems)


@pytest.mark.services
async def test_floe_keeps_an_order_that_kafka_does_not(cluster: Cluster) -> None:
    """A change of topics, then what shows it, both sent at once on one connection."""
    assert await CLUSTER_ORDER(Side(cluster.agents[0].bootstrap, "Order.cluster-")) == IN_ORDER


def test_every_question_was_asked_of_the_kafka_that_is_pinned() -> None:
    assert recorded.version() == VERSION == "4.3.1"
    assert recorded.answers().keys() == ASKED, recorded.REFRESH


def test_every_deviation_belongs_to_a_question() -> None:
    agreed = rows(PAGE.read_text())
    assert agreed
    of_the_suite = {
        row.question for row in agreed if "::" in row.question
    }  # its tests have names as in pytest
    assert {row.question for row in agreed} - of_the_suite <= ASKED
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


def test_every_nullable_field_of_every_answer_is_compared() -> None:
    """But for those that no answer of Kafka's to these questions left null or empty."""
    compared = {field for answers in recorded.answers().values() for field in answers}
    nullable = [path for key in HANDLERS for path in nullable_fields(APIS[key])]
    assert {path for path in nullable if f"blank {path}" not in compared} == ALWAYS_FULL


def test_a_field_that_is_null_in_one_answer_and_empty_in_another_is_seen() -> None:
    with watched() as forms:
        note(
            "CreateTopics", ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult("a", error_message=None)])
        )
        note("CreateTopics", ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult("b")]))
    note("CreateTopics", ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult("c", configs=None)]))
    assert blanks(forms) == {
        "blank CreateTopics.topics.error_message": "empty and null",
        "blank CreateTopics.topics.configs": "empty",
    }
