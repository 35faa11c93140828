"""The commands that `floe acl review` prints: few, enough, nothing more, and safe to paste."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from agent.cli.acls import Wanted, commands, quoted, wanted
from coordination.state.acl_types import Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


def row(operation: Operation, resource: ResourceType, name: str, who: str = "User:alice") -> dict[str, Any]:
    return {
        "principal": who,
        "operation": int(operation),
        "resource": int(resource),
        "name": name,
        "count": 1,
    }


def test_what_was_seen_is_allowed_by_as_few_as_are_needed() -> None:
    rows = [
        row(Operation.DESCRIBE, TOPIC, "a"),
        row(Operation.READ, TOPIC, "a"),
        row(Operation.READ, TOPIC, "b"),
        row(Operation.WRITE, TOPIC, "c"),
        row(Operation.READ, TOPIC, "c"),
        row(Operation.DESCRIBE, TOPIC, "d"),
        row(Operation.DESCRIBE_CONFIGS, TOPIC, "e"),
        row(Operation.ALTER_CONFIGS, TOPIC, "e"),
        row(Operation.READ, GROUP, "g"),
        row(Operation.READ, TOPIC, "a"),  # from another agent
        row(Operation.READ, TOPIC, "a", "User:bob"),
    ]
    alice = "User:alice"
    assert wanted(rows) == [
        Wanted(alice, TOPIC, (Operation.READ,), ("a", "b")),
        Wanted(alice, TOPIC, (Operation.READ, Operation.WRITE), ("c",)),
        Wanted(alice, TOPIC, (Operation.DESCRIBE,), ("d",)),
        Wanted(alice, TOPIC, (Operation.ALTER_CONFIGS,), ("e",)),
        Wanted(alice, GROUP, (Operation.READ,), ("g",)),
        Wanted("User:bob", TOPIC, (Operation.READ,), ("a",)),
    ]


def test_lines_are_of_kafkas_tool() -> None:
    found = [
        Wanted("User:alice", TOPIC, (Operation.READ, Operation.DESCRIBE_CONFIGS), ("a", "b c")),
        Wanted("User:CN=x,O=y", CLUSTER, (Operation.IDEMPOTENT_WRITE,), ("kafka-cluster",)),
        Wanted("User:alice", TOPIC, (Operation.WRITE,), ("*",)),
    ]
    start = "kafka-acls.sh --bootstrap-server $BOOTSTRAP --command-config $ADMIN --add --allow-principal "
    assert list(commands(found)) == [
        start + "User:alice --operation Read --operation DescribeConfigs --topic a --topic 'b c'",
        start + "User:CN=x,O=y --operation IdempotentWrite --cluster",
        start + "User:alice --operation Write --topic '*'",
    ]


def test_names_that_begin_alike_become_a_prefix_where_nothing_else_seen_has_it() -> None:
    read = [row(Operation.READ, TOPIC, name) for name in ("pay.in", "pay.out", "pay.eu.x", "a-1", "a-2", "*")]
    one = Wanted("User:alice", TOPIC, (Operation.READ,), ("*", "a-1", "a-2", "pay.eu.x", "pay.in", "pay.out"))
    assert wanted(read) == wanted(read, 4) == [one]
    assert wanted(read, 3) == [
        one._replace(names=("pay.",), prefixed=True),
        one._replace(names=("a-1", "a-2", "*")),
    ]
    assert wanted(read, 2)[0].names == ("a-", "pay.")
    bob = Wanted("User:bob", TOPIC, (Operation.READ,), ("pay.secret",))
    others = [*read, row(Operation.READ, TOPIC, "pay.secret", "User:bob")]
    assert wanted(others, 3) == [one, bob], "alice would have been given bob's"
    group = [*read, row(Operation.READ, GROUP, "pay.secret", "User:bob")]
    assert wanted(group, 3)[0].names == ("pay.",), "names of groups are others than those of topics"


def test_a_prefix_is_told_to_kafkas_tool() -> None:
    (line,) = commands([Wanted("User:alice", TOPIC, (Operation.READ,), ("pay.",), prefixed=True)])
    assert line.endswith("--operation Read --resource-pattern-type prefixed --topic pay.")


@pytest.mark.parametrize("text", ["a'; rm -rf /; '", "$(reboot)", "`x`", "-x y", "a\\b", "User:O=a\\, b"])
def test_a_shell_takes_names_as_they_are(text: str) -> None:
    assert shlex.split(quoted(text)) == [text]


def test_a_terminal_obeys_nothing() -> None:
    said = quoted("a\x1b[31m\n'b\\\u202ec")
    assert said.isprintable()
    assert said == "$'a\\x1b[31m\\x0a\\x27b\\x5c\\xe2\\x80\\xaec'"
