"""KafkaJS: old request versions, fetch connections that never asked for ApiVersions."""

from __future__ import annotations

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import KAFKAJS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.node import digest, drive, messages

pytestmark = pytest.mark.client(KAFKAJS)


@pytest.mark.parametrize(
    ("acks", "idempotent", "gzip"),
    [(-1, False, False), (-1, True, True), (1, False, True), (0, False, False)],
    ids=["acks=all", "idempotent gzip", "acks=1 gzip", "acks=0"],
)
def test_records_and_their_group(acks: int, idempotent: bool, gzip: bool, broker: Broker, saw: Saw) -> None:
    """Produces with every acks, idempotently and compressed; a group reads on where it stood."""
    topic, group = broker.topic(partitions=3), broker.fresh("group")
    sent = messages(120, 3)
    where = {"topic": topic, "group": group}
    producing = {"topic": topic, "acks": acks, "idempotent": idempotent, "gzip": gzip}
    answers = drive("kafkajs", "produce", broker.bootstrap, messages=sent[:100], **producing)
    saw("answers", sorted(answers, key=lambda each: each["partition"]))
    first = drive("kafkajs", "consume", broker.bootstrap, count=100, **where)
    drive("kafkajs", "produce", broker.bootstrap, messages=sent[100:], **producing)
    rest = drive("kafkajs", "consume", broker.bootstrap, count=20, **where)
    assert {each["key"] for each in first} == {each["key"] for each in sent[:100]}
    assert {each["key"] for each in rest} == {each["key"] for each in sent[100:]}
    assert {each["timestamp"] for each in first + rest} == {int(each["timestamp"]) for each in sent}
    saw("read", digest(first + rest))


def test_a_member_comes_and_goes(broker: Broker, saw: Saw) -> None:
    """A second member takes its share and gives it back; every record is read by one of them."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    sent = messages(100, 4)
    where = {"topic": topic, "group": group}
    drive("kafkajs", "produce", broker.bootstrap, messages=sent, topic=topic, acks=-1)
    found = drive("kafkajs", "rebalance", broker.bootstrap, partitions=4, count=100, **where)
    alone, both, again = found["owned"]
    assert alone == again == [[0, 1, 2, 3]]
    assert sorted(part for owned in both for part in owned) == [0, 1, 2, 3]
    assert [len(owned) for owned in both] == [2, 2]
    everything = found["reads"][0] + found["reads"][1]
    assert {each["key"] for each in everything} == {each["key"] for each in sent}
    group_seen = found["group"]
    assert group_seen.pop("groupId") == group
    saw("group", group_seen)
    nothing_new = drive("kafkajs", "consume", broker.bootstrap, count=0, **where)
    assert nothing_new == [], "what was read is committed"


def test_the_admin_client(broker: Broker, saw: Saw) -> None:
    """Topics, partitions, configs, offsets of topics and groups, DeleteRecords, ACLs asked in vain."""
    found = drive("kafkajs", "admin", broker.bootstrap, topic=broker.fresh(), group=broker.fresh("group"))
    for name in ("validated", "absent", "created", "listed", "gone"):
        assert found[name] is True, name
    assert found["again"] is False
    assert [part[0] for part in found["partitions"]] == [0, 1, 2]
    for name, value in found.items():
        saw(name, value)
