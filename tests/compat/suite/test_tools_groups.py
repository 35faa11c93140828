"""kafka-consumer-groups and kafka-groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, numbered, owned
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(TOOLS)

BOTH: dict[str, dict[str, object]] = {
    "classic": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500},
    "consumer": {"group_protocol": "consumer"},
}


@contextmanager
def member(java: Java, group: str, topic: str, count: int, protocol: str) -> Iterator[Any]:
    """A member that has read and committed `count` records of both partitions."""
    with java.consumer(group_id=group, client_id="the-client", **BOTH[protocol]) as joined:
        joined.subscribe([topic])
        java.until([joined], lambda found: len(found) == count and owned(joined) == [0, 1], "all")
        joined.commitSync()
        yield joined


def columns(said: str, *names: str) -> list[tuple[str, ...]]:
    """The named columns of a table that a tool prints, in the order of its rows' text."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    start = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
    at = [lines[start].index(name) for name in names]
    return sorted(tuple(words[index] for index in at) for words in lines[start + 1 :])


POSITIONS = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")


@pytest.mark.parametrize("protocol", BOTH)
def test_a_group_is_described(protocol: str, broker: Broker, tools: Tools, java: Java, saw: Saw) -> None:
    """kafka-consumer-groups describes offsets and lag, members and state; kafka-groups lists the group."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    java.produce(topic, numbered(10, 2))
    of = ("--describe", "--group", group)
    with member(java, group, topic, 10, protocol):
        java.produce(topic, numbered(4, 2))
        saw("offsets", columns(tools.ok("consumer-groups", *of), *POSITIONS, "HOST", "CLIENT-ID"))
        saw("members", columns(tools.ok("consumer-groups", *of, "--members"), "HOST", "#PARTITIONS"))
        state = tools.ok("consumer-groups", *of, "--state")
        saw("state", columns(state, "STATE", "#MEMBERS"))
        assert group in tools.ok("consumer-groups", "--list").split()
        saw("listed by type", group in tools.ok("consumer-groups", "--list", "--type", protocol))
        saw("listed as empty", group in tools.ok("consumer-groups", "--list", "--state", "empty"))
        rows = tools.ok("groups", "--list").splitlines()
        saw("kafka-groups", [row.split()[1:] for row in rows if row.startswith(f"{group} ")])
        saw("delete", tools.run("consumer-groups", "--delete", "--group", group).out.strip())
    saw("empty", columns(tools.ok("consumer-groups", *of), *POSITIONS, "CONSUMER-ID"))
    saw("state when empty", columns(tools.ok("consumer-groups", *of, "--state"), "STATE", "#MEMBERS"))


RESETS = {
    "--to-earliest": (),
    "--to-latest": (),
    "--to-offset": ("3",),
    "--shift-by": ("-2",),
    "--by-duration": ("PT1S",),
    "--to-datetime": (f"{datetime.fromtimestamp(BASE_TIME / 1000, UTC):%Y-%m-%dT%H:%M:%S}.006Z",),
    "--to-current": (),
}


def test_offsets_are_reset_and_deleted(broker: Broker, tools: Tools, java: Java, saw: Saw) -> None:
    """kafka-consumer-groups resets offsets in every way (tried first), deletes offsets and groups."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    java.produce(topic, numbered(10, 2))
    with member(java, group, topic, 10, "classic"):
        of = ("--reset-offsets", "--group", group, "--topic", topic)
        said = tools.run("consumer-groups", *of, "--to-earliest", "--execute").out.strip()
        saw("under a member", said.splitlines()[0])
    tried = tools.ok("consumer-groups", *of, "--to-earliest", "--dry-run")
    saw("tried", columns(tried, "PARTITION", "NEW-OFFSET"))
    described = ("--describe", "--group", group)
    saw("unchanged", columns(tools.ok("consumer-groups", *described), *POSITIONS))
    for how, value in RESETS.items():
        said = tools.ok("consumer-groups", *of, how, *value, "--execute")
        saw(how, columns(said, "PARTITION", "NEW-OFFSET"))
    only = ("--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    said = tools.ok("consumer-groups", *only)
    saw("offsets deleted", [line.split()[-1] for line in said.splitlines() if line.startswith(topic)])
    saw("left", columns(tools.ok("consumer-groups", *described), *POSITIONS))
    saw("deleted", tools.ok("consumer-groups", "--delete", "--group", group).strip())
    assert group not in tools.ok("consumer-groups", "--list").split()


def test_no_such_group(broker: Broker, tools: Tools, saw: Saw) -> None:
    """What kafka-consumer-groups says of groups that are not there."""
    absent = broker.fresh("absent")
    for name, words in {
        "describe": ("--describe",),
        "state": ("--describe", "--state"),
        "members": ("--describe", "--members"),
        "delete": ("--delete",),
        "delete offsets": ("--delete-offsets", "--topic", broker.topic()),
    }.items():
        done = tools.run("consumer-groups", *words, "--group", absent)
        said = [line.strip() for line in (done.out + done.err).splitlines() if line.strip()]
        saw(name, (done.status, said[0] if said else ""))
