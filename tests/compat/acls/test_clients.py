"""Real clients under ACLs: kafka-acls.sh, librdkafka, aiokafka; shadow mode and `floe acl review`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from deploy.services.kafka import tool
from tests.compat.acls.secured import ALICE, PASSWORDS, ROOT, secured_agent
from tests.compat.conftest import Embedded, stop

WAIT_S = 30.0


ANY_OF_ALICE = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{ALICE}", None, AclOperation.ANY,
    AclPermissionType.ANY,
)  # fmt: skip


class There:
    """An agent that asks ACLs, and clients of it."""

    def __init__(self, agent: Embedded, bootstrap: str, folder: Path) -> None:
        self.agent, self.bootstrap, self.folder = agent, bootstrap, folder

    def settings(self, user: str) -> dict[str, Any]:
        """For librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def tool(self, *arguments: str) -> str:
        """kafka-acls.sh by the administrator; what it prints."""
        config = self.folder / "admin.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{ROOT}" password="{PASSWORDS[ROOT]}";\n'
        )
        where = ("--bootstrap-server", self.bootstrap, "--command-config", str(config))
        done = tool("acls", *where, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def topic(self, name: str) -> None:
        """By the administrator."""
        admin = AdminClient(self.settings(ROOT))  # kept, or it ends before it has asked
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    folder = tmp_path_factory.mktemp("acls")
    agent, bootstrap = secured_agent(folder)
    yield There(agent, bootstrap, folder)
    assert stop(agent) == 0


def sent(producer: Producer, topic: str) -> KafkaError | None:
    """What became of one record."""
    outcome: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"v", on_delivery=lambda error, _record: outcome.append(error))
    except KafkaException as error:  # it knows the topic as one that it may not write to
        return error.args[0]  # type: ignore[no-any-return]  # its arguments have no types
    producer.flush(WAIT_S)
    return outcome[0]


@pytest.mark.timeout(300)
def test_librdkafka_subscribes_by_pattern_to_what_it_may_describe(there: There) -> None:
    """KIP-848: what the agent tells of a pattern, one that becomes visible included, and nothing else."""
    for name in ("pat.first", "pat.hidden", "pat.later"):
        there.topic(name)
    admin, root = AdminClient(there.settings(ROOT)), Producer(there.settings(ROOT))
    allowed = (acl(ResourceType.TOPIC, "pat.first", AclOperation.READ),)
    for future in admin.create_acls([*allowed, acl(ResourceType.GROUP, "pg", AclOperation.READ)]).values():
        future.result(WAIT_S)
    given = {"group.id": "pg", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(there.settings(ALICE) | given)
    consumer.subscribe(["^pat\\..*"])
    for name in ("pat.first", "pat.hidden", "pat.later"):
        assert sent(root, name) is None
    assert polled(consumer, 1) == ["pat.first"]
    assert {each.topic for each in consumer.assignment()} == {"pat.first"}
    for future in admin.create_acls([acl(ResourceType.TOPIC, "pat.later", AclOperation.READ)]).values():
        future.result(WAIT_S)
    assert polled(consumer, 1) == ["pat.later"]
    assert {each.topic for each in consumer.assignment()} == {"pat.first", "pat.later"}
    consumer.close()
    admin.delete_acls([ANY_OF_ALICE])[ANY_OF_ALICE].result(WAIT_S)


def polled(consumer: Consumer, count: int) -> list[str]:
    """The topics of the next records. An error fails the test."""
    found = []
    for record in consumer.consume(count, WAIT_S):
        assert record.error() is None, record.error()
        found.append(record.topic() or "")
    return found


@pytest.mark.timeout(300)
def test_kafka_acls_adds_lists_and_removes(there: There) -> None:
    """kafka-acls.sh adds ACLs for producers and consumers, lists them by every filter, and removes them."""
    there.tool("--add", "--allow-principal", "User:bob", "--producer", "--topic", "kt")
    there.tool("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "kt", "--group", "kg")
    there.tool(
        "--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.0/8", "--operation", "Read",
        "--topic", "k", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    listed = there.tool("--list", "--topic", "kt", "--resource-pattern-type", "match")
    for line in (
        "(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW)",
        "(principal=User:bob, host=*, operation=CREATE, permissionType=ALLOW)",
        "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)",
        "(principal=User:eve, host=10.0.0.0/8, operation=READ, permissionType=DENY)",
    ):
        assert line in listed, listed
    assert "GROUP, name=kg" in there.tool("--list", "--principal", "User:bob")
    there.tool("--remove", "--force", "--topic", "kt")
    assert "operation=WRITE" not in there.tool("--list", "--topic", "kt")
    there.tool("--remove", "--force", "--group", "kg")
    there.tool("--remove", "--force", "--topic", "k", "--resource-pattern-type", "prefixed")
    assert "principal=User" not in there.tool("--list")


@pytest.mark.timeout(300)
def test_librdkafka_writes_and_reads_while_it_may(there: There) -> None:
    """Refused, allowed, and on the connection that was allowed refused once the ACL is gone."""
    there.topic("rt")
    admin = AdminClient(there.settings(ROOT))
    error = sent(Producer(there.settings(ALICE)), "rt")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rows = [
        acl(ResourceType.TOPIC, "rt", AclOperation.WRITE),
        acl(ResourceType.TOPIC, "rt", AclOperation.READ),
    ]
    rows.append(acl(ResourceType.GROUP, "rg", AclOperation.READ))
    for future in admin.create_acls(rows).values():
        future.result(WAIT_S)
    producer = Producer(there.settings(ALICE))
    assert sent(producer, "rt") is None
    consumer = Consumer(there.settings(ALICE) | {"group.id": "rg", "auto.offset.reset": "earliest"})
    consumer.subscribe(["rt"])
    record = consumer.poll(WAIT_S)
    assert record is not None
    assert record.value() == b"v"
    consumer.close()
    stranger = Consumer(there.settings(ALICE) | {"group.id": "another"})
    stranger.subscribe(["rt"])
    refused = stranger.poll(WAIT_S)
    assert refused is not None
    assert refused.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    stranger.close()
    assert len(admin.describe_acls(ANY_OF_ALICE).result(WAIT_S)) == 3
    assert len(admin.delete_acls([ANY_OF_ALICE])[ANY_OF_ALICE].result(WAIT_S)) == 3
    error = sent(producer, "rt")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    mine = AdminClient(there.settings(ALICE))
    with pytest.raises(KafkaException):
        mine.create_acls(rows[:1])[rows[0]].result(WAIT_S)


def acl(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """One of Alice's."""
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, f"User:{ALICE}", "*", operation, allow)


@pytest.mark.timeout(300)
async def test_aiokafka_is_told(there: There) -> None:
    there.topic("at")
    login = {
        "bootstrap_servers": there.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": ALICE,
        "sasl_plain_password": PASSWORDS[ALICE],
    }
    async with aiokafka.AIOKafkaProducer(**login) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("at", b"v")


def floe(*arguments: str) -> str:
    """What a command of the command line prints."""
    command = [sys.executable, "-m", "agent", *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout


@pytest.mark.timeout(300)
def test_what_shadow_mode_saw_becomes_acls_that_are_enough(tmp_path: Path) -> None:
    """Alice works in shadow mode; what the review prints is added; enforced, she works on."""
    agent, bootstrap = secured_agent(tmp_path, mode="shadow")
    there = There(agent, bootstrap, tmp_path)
    there.topic("st")

    def work() -> None:
        assert sent(Producer(there.settings(ALICE)), "st") is None
        consumer = Consumer(there.settings(ALICE) | {"group.id": "sg", "auto.offset.reset": "earliest"})
        consumer.subscribe(["st"])
        record = consumer.poll(WAIT_S)
        assert record is not None
        assert record.error() is None
        consumer.commit(record, asynchronous=False)
        consumer.close()

    work()
    lines = floe("acl", "review", "--http", agent.http).splitlines()
    told = json.loads(floe("acl", "review", "--http", agent.http, "--output", "json"))
    assert told["commands"] == lines
    assert len(lines) == 2, lines  # Read and Write on the topic, Read on the group
    for line in lines:
        there.tool(*line.replace("'", "").split()[5:])
    assert stop(agent) == 0
    agent, there.bootstrap = secured_agent(tmp_path)
    try:
        work()
    finally:
        assert stop(agent) == 0
