"""Java's consumer in groups, in both protocols."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from typing import Any

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import JAVA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, failed, numbered, owned

pytestmark = pytest.mark.client(JAVA)

ASSIGNORS = "org.apache.kafka.clients.consumer"
CLASSIC: dict[str, object] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
CONSUMER: dict[str, object] = {"group_protocol": "consumer"}
PROTOCOLS: dict[str, dict[str, object]] = {
    "classic range": {**CLASSIC, "partition_assignment_strategy": f"{ASSIGNORS}.RangeAssignor"},
    "classic round robin": {**CLASSIC, "partition_assignment_strategy": f"{ASSIGNORS}.RoundRobinAssignor"},
    "classic sticky": {**CLASSIC, "partition_assignment_strategy": f"{ASSIGNORS}.StickyAssignor"},
    "classic cooperative": {
        **CLASSIC,
        "partition_assignment_strategy": f"{ASSIGNORS}.CooperativeStickyAssignor",
    },
    "consumer uniform": {**CONSUMER, "group_remote_assignor": "uniform"},
    "consumer range": {**CONSUMER, "group_remote_assignor": "range"},
}
BOTH = {"classic": CLASSIC, "consumer": CONSUMER}
both_protocols = pytest.mark.parametrize("protocol", BOTH)


class Members(ExitStack):
    """Members of one group, all closed at the end."""

    def __init__(self, java: Java, group: str, **settings: object) -> None:
        super().__init__()
        self._java = java
        self._settings = {"group_id": group, **settings}

    def join(self, *topics: str, **settings: object) -> Any:
        """One more, subscribed to the topics."""
        member = self.enter_context(self._java.consumer(**self._settings, **settings))
        member.subscribe(list(topics))
        return member


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_come_and_go(protocol: str, broker: Broker, java: Java) -> None:
    """Members share the partitions; what a leaving one had goes to the others."""
    topic = broker.topic(partitions=6)
    java.produce(topic, numbered(60, 6))
    with Members(java, broker.fresh("group"), **PROTOCOLS[protocol]) as members:
        first = members.join(topic)
        found = java.until([first], lambda found: len(found) == 60, "the first reads all")
        assert sorted(map(int, found)) == list(range(60))
        three = [first, members.join(topic), members.join(topic)]

        def shared(_: object) -> bool:
            parts = [owned(each) for each in three]
            return sorted(chain(*parts)) == list(range(6)) and {len(part) for part in parts} == {2}

        java.until(three, shared, "each has two")
        first.close()
        rest = three[1:]
        java.until(rest, lambda _: sorted(chain(*map(owned, rest))) == list(range(6)), "two share all")


@both_protocols
def test_a_group_goes_on_where_it_was(protocol: str, broker: Broker, java: Java) -> None:
    """Committed positions outlive the members: nothing is read twice and nothing left out."""
    topic, group = broker.topic(partitions=3), broker.fresh("group")
    java.produce(topic, numbered(90, 3))
    seen: list[int] = []
    for wanted in (30, 60, 90):
        with Members(java, group, max_poll_records=10, **BOTH[protocol]) as members:
            member = members.join(topic)
            while len(seen) < wanted:
                seen += map(int, java.poll(member))
                member.commitSync()
    assert sorted(seen) == list(range(90))


@both_protocols
def test_positions_are_committed(protocol: str, broker: Broker, java: Java, saw: Saw) -> None:
    """A member commits forwards, backwards, with metadata and asynchronously, and reads it back."""
    topic = broker.topic(partitions=2)
    zero, one = java.part(topic), java.part(topic, 1)
    position = java.jvm.kafka.clients.consumer.OffsetAndMetadata
    java.produce(topic, numbered(20, 2))
    with Members(java, broker.fresh("group"), **BOTH[protocol]) as members:
        member = members.join(topic)
        java.until([member], lambda found: len(found) == 20, "all")
        for offset, note in ((7, "half way"), (3, "überall"), (10, "")):
            member.commitSync({zero: position(offset, note)})
            found = member.committed({zero, one})
            assert (found[zero].offset(), found[zero].metadata(), found[one]) == (offset, note, None)
        member.commitAsync()
        java.until([member], lambda _: member.committed({one})[one] is not None, "committed meanwhile")
        assert member.committed({one})[one].offset() == 10
        saw("too much metadata", failed(lambda: member.commitSync({zero: position(1, "x" * 5000)})))
        soon = java.jvm.java.time.Duration.ofSeconds(3)
        told = failed(lambda: member.commitSync({java.part(topic, 9): position(1)}, soon))
        saw("no such partition", told.partition(":")[0])


@both_protocols
def test_static_members(protocol: str, broker: Broker, java: Java) -> None:
    """A static member that restarts gets its partitions back and the other keeps its own."""
    topic = broker.topic(partitions=4)
    with Members(java, broker.fresh("group"), **BOTH[protocol]) as members:
        one, two = (members.join(topic, group_instance_id=name) for name in ("one", "two"))
        java.until((one, two), lambda _: len(owned(one)) == len(owned(two)) == 2, "two each")
        mine, others = owned(two), owned(one)
        two.close()
        again = members.join(topic, group_instance_id="two")
        java.until((one, again), lambda _: owned(again) == mine, "the same partitions again")
        assert owned(one) == others


def test_patterns(broker: Broker, java: Java, saw: Saw) -> None:
    """A pattern, judged by the client or by the broker (RE2J), takes topics that match, later ones too."""
    stem = broker.fresh("p")
    first = broker.topic("p-a")
    broker.topic("other")
    group = broker.fresh("group")
    refresh = {"metadata_max_age_ms": 1000, "auto_offset_reset": "earliest"}
    with Members(java, group, **CONSUMER, **refresh) as members:
        bad, by_broker, by_client = members.join(), members.join(), members.join()
        pattern = java.jvm.kafka.clients.consumer.SubscriptionPattern
        saw("bad pattern", failed(lambda: _subscribed(java, bad, pattern("(ab"))).partition(":")[0])
        by_broker.subscribe(pattern(f"{stem}-.*"))
        by_client.subscribe(java.jvm.java.util.regex.Pattern.compile(f"{stem}-.*"))

        def topics() -> list[str]:
            both = (by_broker, by_client)
            return sorted({part.topic() for each in both for part in each.assignment()})

        java.until((by_broker, by_client), lambda _: topics() == [first], "the first topic")
        second = broker.topic("p-b")
        java.until((by_broker, by_client), lambda _: topics() == [first, second], "the later topic")


def _subscribed(java: Java, member: Any, pattern: Any) -> None:
    member.subscribe(pattern)
    java.until([member], lambda _: bool(member.assignment()), "a refusal")


def _remove_all(admin: Any, group: str, options: Any) -> None:
    admin.removeMembersFromConsumerGroup(group, options).all().get()


@both_protocols
def test_errors_of_members(protocol: str, broker: Broker, java: Java, saw: Saw) -> None:
    """A second member of the same instance, and one that is removed by the administrator, are told so."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    with Members(java, group, **BOTH[protocol]) as members, java.admin() as admin:
        first = members.join(topic, group_instance_id="same")
        java.until([first], lambda _: len(owned(first)) == 2, "all")
        second = members.join(topic, group_instance_id="same")

        def both() -> None:
            java.until([second, first], lambda _: False, "one is refused")

        saw("second instance", failed(both).partition(":")[0])
        options = java.jvm.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions()
        saw("removed", failed(lambda: _remove_all(admin, group, options)))
        first.close()
        second.close()
        dynamic = members.join(topic)
        java.until([dynamic], lambda _: len(owned(dynamic)) == 2, "all, without the others")
        saw("removed without instance", failed(lambda: _remove_all(admin, group, options)))
        absent = broker.fresh("absent")
        gone = failed(lambda: _remove_all(admin, absent, options))
        saw("of no group", gone.partition(":")[0])


def test_a_group_goes_to_the_new_protocol_online(broker: Broker, java: Java) -> None:
    """Members of both protocols are in one group while it is moved from one to the other, both ways."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    ranges: dict[str, object] = {**CLASSIC, "partition_assignment_strategy": f"{ASSIGNORS}.RangeAssignor"}
    java.produce(topic, numbered(40, 4))
    with Members(java, group) as members:
        old = members.join(topic, **ranges)
        java.until([old], lambda found: len(found) == 40, "all records")
        old.commitSync()
        new = members.join(topic, **CONSUMER)
        java.until((old, new), lambda _: len(owned(old)) == len(owned(new)) == 2, "two each")
        old.close()
        java.until([new], lambda _: len(owned(new)) == 4, "all are with the new")
        back = members.join(topic, **ranges)
        java.until((new, back), lambda _: len(owned(new)) == len(owned(back)) == 2, "two each again")
        new.close()
        java.until([back], lambda _: len(owned(back)) == 4, "all are with the classic")
        committed = back.committed({java.part(topic, index) for index in range(4)})
        assert [each.offset() for each in committed.values()] == [10] * 4
