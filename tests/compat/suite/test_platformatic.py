"""@platformatic/kafka: groups of both protocols, and fetches on connections of their own."""

from __future__ import annotations

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import PLATFORMATIC
from tests.compat.suite.conftest import Saw
from tests.compat.suite.node import digest, drive, messages

pytestmark = pytest.mark.client(PLATFORMATIC)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("acks", "idempotent", "compression"),
    [
        pytest.param(-1, True, "none", id="idempotent"),
        *(
            pytest.param(acks, False, codec, marks=pytest.mark.compat_only, id=f"acks={acks} {codec}")
            for acks, codec in ((-1, "gzip"), (1, "snappy"), (1, "lz4"), (0, "zstd"))
        ),
    ],
)
def test_records_and_their_group(
    acks: int, idempotent: bool, compression: str, protocol: str, broker: Broker, saw: Saw
) -> None:
    """Produces with every acks and codec; a group of either protocol reads on where it stood."""
    topic, group = broker.topic(partitions=3), broker.fresh("group")
    sent = messages(120, 3)
    where = {"topic": topic, "group": group, "protocol": protocol}
    producing = {"topic": topic, "acks": acks, "idempotent": idempotent, "compression": compression}
    answers = drive("platformatic", "produce", broker.bootstrap, messages=sent[:100], **producing)
    saw("answers", sorted(answers, key=lambda each: each["partition"]))
    first = drive("platformatic", "consume", broker.bootstrap, count=100, **where)
    drive("platformatic", "produce", broker.bootstrap, messages=sent[100:], **producing)
    rest = drive("platformatic", "consume", broker.bootstrap, count=20, **where)
    assert {each["key"] for each in first} == {each["key"] for each in sent[:100]}
    assert {each["key"] for each in rest} == {each["key"] for each in sent[100:]}
    assert {each["timestamp"] for each in first + rest} == {int(each["timestamp"]) for each in sent}
    saw("read", digest(first + rest))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_comes_and_goes(protocol: str, broker: Broker, saw: Saw) -> None:
    """A second member takes its share and gives it back; every record is read by one of them."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    sent = messages(100, 4)
    where = {"topic": topic, "group": group, "protocol": protocol}
    drive("platformatic", "produce", broker.bootstrap, messages=sent, topic=topic, acks=-1)
    found = drive("platformatic", "rebalance", broker.bootstrap, partitions=4, count=100, **where)
    alone, both, again = found["owned"]
    assert alone == again == [[0, 1, 2, 3]]
    assert sorted(part for owned in both for part in owned) == [0, 1, 2, 3]
    assert [len(owned) for owned in both] == [2, 2]
    everything = found["reads"][0] + found["reads"][1]
    assert {each["key"] for each in everything} == {each["key"] for each in sent}
    saw("group", found["group"])
    nothing_new = drive("platformatic", "consume", broker.bootstrap, count=0, **where)
    assert nothing_new == [], "what was read is committed"


def test_the_admin_client(broker: Broker, saw: Saw) -> None:
    """Topics, partitions, configs, offsets of topics and groups, DeleteRecords, sizes, quotas, ACLs."""
    found = drive(
        "platformatic", "admin", broker.bootstrap, topic=broker.fresh(), group=broker.fresh("group")
    )
    for name in ("listed", "cluster", "gone"):
        assert found[name] is True, name
    assert len(found["partitions"]) == 3
    for name, value in found.items():
        saw(name, value)
