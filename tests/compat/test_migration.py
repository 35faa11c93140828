"""docs/migration.md, as it stands: from Apache Kafka to Floe by MirrorMaker 2 under load, and back."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from deploy.services import Etcd, Minio
from deploy.services.kafka import Kafka
from deploy.services.ports import free_port
from tests.compat.clients import Placed, Rec
from tests.compat.cluster import Cluster
from tests.compat.mirroring import (
    CUSTOMERS,
    ORDERS,
    PARTITIONS,
    PAYMENTS,
    Ledger,
    Load,
    MirrorWorker,
    Part,
    differences,
    member_reads,
    positions,
    rest,
    standing,
    until,
)
from tests.equipment.pages import Shell, blocks

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
ANYBODY = "User:ANONYMOUS"
KAFKA_SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=5",
    "transaction.state.log.num.partitions=5",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    f"super.users={ANYBODY}",
    "log.cleaner.backoff.ms=200",
)
CONFIGS = {
    ORDERS: {
        "retention.ms": "864000000",
        "max.message.bytes": "2000000",
        "message.timestamp.type": "CreateTime",
    },
    CUSTOMERS: {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"},
    PAYMENTS: {"compression.type": "zstd", "min.insync.replicas": "1"},
}
LONGER = {"retention.ms": "1728000000"}
WAIT_S_MAX = 60

pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """Apache Kafka with ACLs, which cleans compacted topics at once."""
    with Kafka(settings=KAFKA_SETTINGS) as running:
        yield running


@pytest.fixture
def floe(etcd: Etcd, minio: Minio) -> Iterator[Cluster]:
    """Two agents with ACLs."""
    authorizer: dict[str, object] = {"mode": "enforce", "super_users": ANYBODY}
    with Cluster(etcd, minio, more={"authorizer": authorizer}) as running:
        yield running


class Follower:
    """A user of the page, who does what its sections say; each once, the rest is in `sections`."""

    def __init__(self, home: Path, kafka: str, floe: str) -> None:
        home.mkdir()
        self.ports = {"8083": free_port(), "8084": free_port()}
        instead = {"127.0.0.1:9092": floe, "127.0.0.1:19092": kafka}
        instead |= {theirs: str(ours) for theirs, ours in self.ports.items()}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.shell = Shell(home, instead, {"HOME": str(home), "PATH": path}, home)
        self.workers: list[MirrorWorker] = []
        _, *parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
        self.sections = dict(zip(parts[::2], parts[1::2], strict=True))
        assert "```" not in self.sections.pop("What goes over, and what does not")

    def follow(self, section: str) -> None:
        """Do what it says."""
        page = self.shell.home / "section.md"
        page.write_text(self.sections.pop(section))
        for block in blocks(page):
            if block.name == "running":
                self.start(block.text.removeprefix("connect-distributed.sh ").strip())
            elif block.language == "sh":
                self.shell.run(block.text)
            elif block.name:
                (self.shell.folder / block.name).write_text(self.shell.of_here(block.text))
            else:
                assert block.language == "text", block
                for line in block.text.splitlines():
                    assert any(line in each for each in self.shell.said), (line, self.shell.said)

    def start(self, properties: str) -> None:
        """The worker that the page has running."""
        file = self.shell.folder / properties
        port = int(re.findall(r"^listeners=.*:(\d+)$", file.read_text(), re.MULTILINE)[0])
        self.workers.append(
            MirrorWorker(self.shell.home / properties.removesuffix(".properties"), file, port)
        )
        self.workers[-1].start()


def set_up(bootstrap: str) -> None:
    """Topics, and ACLs of one of them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, count, 1, config=CONFIGS[topic]) for topic, count in PARTITIONS.items()]
    for made in admin.create_topics(topics).values():
        made.result(WAIT_S_MAX)
    for made in admin.create_acls([acl(AclOperation.READ), acl(AclOperation.WRITE)]).values():
        made.result(WAIT_S_MAX)


def acl(operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        ORDERS,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def keep_longer(bootstrap: str, topic: str) -> None:
    """Change a config."""
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in LONGER.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S_MAX)


def configs(bootstrap: str) -> dict[str, dict[str, str]]:
    """What the topics are configured to, beside the defaults, of the names that were set."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in PARTITIONS])
    answers = {resource.name: answer.result(WAIT_S_MAX) for resource, answer in asked.items()}
    return {topic: {name: answers[topic][name].value for name in CONFIGS[topic]} for topic in PARTITIONS}


def allowed(bootstrap: str) -> set[tuple[str, str, AclOperation]]:
    """Who may do what, of topics."""
    every = AclBindingFilter(
        ResourceType.TOPIC,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_acls(every).result(WAIT_S_MAX)
    return {(each.principal, each.name, each.operation) for each in found}


def of_topics(ledger: Ledger, *topics: str) -> int:
    """How many records."""
    return sum(len(placed) for (topic, _), placed in ledger.items() if topic in topics)


@pytest.mark.thorough
def test_there_and_back_under_load(tmp_path: Path, kafka: Kafka, floe: Cluster) -> None:
    """The worker is killed in its midst. At each switch every acknowledged record of the loads is there once,
    in order, as it was; each group has still to read what it had to before, be it all, a part or nothing."""
    set_up(kafka.bootstrap)
    user = Follower(tmp_path / "home", kafka.bootstrap, floe.bootstrap)
    there = moved_in(user, kafka.bootstrap, floe.bootstrap)
    moved_back(user, kafka.bootstrap, floe.bootstrap, there)
    assert not user.sections, "all of the page was followed"


def moved_in(user: Follower, old: str, new: str) -> Ledger:
    """From Kafka to Floe; gives what had been acknowledged."""
    with Load(old, "there") as load:
        load.reach(200)
        commit(old, "audit", ORDERS, 0)
        commit(old, "stock", ORDERS, 10)
        user.follow("Mirror")
        until(lambda: of_topics(standing(new), PAYMENTS) > 0, "payments are mirrored")
        load.reach(50)
        user.workers[0].kill()
        load.reach(50)
        user.workers[0].start()
        keep_longer(old, ORDERS)
        until(lambda: configs(new) == configs(old), "the changed config is mirrored")
    drained = standing(old)
    member_reads(old, "billing", [*PARTITIONS], sum(map(len, drained.values())))
    user.follow("The switch")
    user.workers[0].stop()
    mirrored = standing(new)
    assert differences([load.ledger], mirrored) == []
    assert configs(new) == configs(old) == {**CONFIGS, ORDERS: {**CONFIGS[ORDERS], **LONGER}}
    assert allowed(new) == {("User:alice", ORDERS, AclOperation.READ)}
    for group in ("audit", "stock"):
        wanted = rest(positions(old, group), load.ledger)
        assert rest(positions(new, group), mirrored) == wanted
        assert sum(map(len, wanted.values())) > 100
    assert not any(rest(positions(new, "billing"), mirrored).values())
    return load.ledger


def moved_back(user: Follower, old: str, new: str, there: Ledger) -> None:
    """Producers and a group go on at Floe, and come back to Kafka."""
    stood = rest(positions(old, "stock"), there)  # before the way back carries Floe's position there
    with Load(new, "back") as load:
        user.follow("The way back")
        load.reach(200)
    more = standing(new)
    behind = sum(map(len, rest(positions(new, "stock"), more).values()))
    went_on = member_reads(new, "stock", [ORDERS], behind)
    wanted = [rec for records in stood.values() for rec in records]
    wanted += [each.rec for (topic, _), found in load.ledger.items() if topic == ORDERS for each in found]
    assert Counter(each.rec for each in went_on) == Counter(wanted), "it goes on where it was"
    user.follow("The switch back")
    user.workers[1].stop()
    returned = standing(old)
    assert differences([there, load.ledger], returned) == []
    for group in ("audit", "billing", "stock"):
        assert rest_but_states(old, group, returned) == rest_but_states(new, group, more)


def rest_but_states(bootstrap: str, group: str, of: Ledger) -> dict[Part, list[Rec]]:
    """What a group has to read beside the compacted topic, which each side cleans at its own time."""
    found = rest(positions(bootstrap, group), of)
    return {part: records for part, records in found.items() if part[0] != CUSTOMERS}


YOUNG = KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR
"""What a broker answers that has just begun; librdkafka leaves it to the application to ask again."""


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """The group stands there in each partition, without members."""
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(topic, index, offset) for index in range(PARTITIONS[topic])]

    def taken() -> bool:
        try:
            member.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in YOUNG:
                raise
            return False
        return True

    until(taken, f"{group}'s position is taken")
    member.close()


RECORDS = [Placed(n, Rec(1000 + n, b"k%d" % (n % 3), b"v%d" % n, (("h", b"%d" % n),))) for n in range(9)]


@pytest.mark.parametrize(
    ("topic", "found", "right"),
    [
        (ORDERS, RECORDS, True),
        (ORDERS, RECORDS[:-1], False),
        (ORDERS, [*RECORDS[:4], RECORDS[3], *RECORDS[4:]], False),
        (ORDERS, [RECORDS[1], RECORDS[0], *RECORDS[2:]], False),
        (ORDERS, [*RECORDS[:-1], Placed(8, RECORDS[-1].rec._replace(timestamp=1))], False),
        (ORDERS, [*RECORDS[:-1], Placed(8, RECORDS[-1].rec._replace(headers=()))], False),
        (CUSTOMERS, RECORDS, True),
        (CUSTOMERS, RECORDS[4:], True),
        (CUSTOMERS, [*RECORDS[:2], *RECORDS[6:]], True),
        (CUSTOMERS, RECORDS[:-1], False),
        (CUSTOMERS, [*RECORDS[:4], RECORDS[3], *RECORDS[4:]], False),
        (CUSTOMERS, [RECORDS[1], RECORDS[0], *RECORDS[2:]], False),
    ],
)
def test_the_judge_sees_what_is_missing_doubled_moved_or_changed(
    topic: str, found: list[Placed], right: bool
) -> None:
    assert (differences([{(topic, 0): RECORDS}], {(topic, 0): found}) == []) == right
