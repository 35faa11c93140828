"""One table name is one topic's, and a topic's table goes with its name: decided in apply."""

from __future__ import annotations

import pytest

from coordination.commands import (
    AlterTopicConfigs,
    Claim,
    CommitTable,
    CreateTopic,
    DeleteTopic,
    DropTable,
    PutNamespace,
    config_entries,
)
from coordination.kafka_codes import Code
from coordination.snapshot import decode, encode
from coordination.state import Done, table_names
from coordination.state.types import Refused, Result
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.reflect import plain

NAME = "floe.table.name"


class Named(Script):
    """A script whose topics have tables, made by A, who holds their claims."""

    def __init__(self, level: int = 2) -> None:
        super().__init__()
        self.register(A, level=level)
        self.register(B, level=level)
        self.one(A, PutNamespace(name="floe"))
        self.claims: dict[str, int] = {}

    def create(self, name: str, table: str = "") -> Result:
        configs = config_entries({NAME: table} if table else {})
        topic_id = name.encode().ljust(16, b".")[:16]
        return self.one(A, CreateTopic(name=name, topic_id=topic_id, partitions=1, configs=configs))

    def called(self, topic: str, table: str) -> Result:
        """Give the topic a table name; empty: its own."""
        operation = AlterTopicConfigs.Change.SET if table else AlterTopicConfigs.Change.DELETE
        change = AlterTopicConfigs.Change(name=NAME, operation=operation, value=table)
        return self.one(A, AlterTopicConfigs(topic=topic, changes=[change]))

    def table(self, topic: str, name: str = "") -> Result:
        """Make the topic's table, under its topic's name."""
        claim = self.one(A, Claim(name=f"committer/{topic}"))
        assert isinstance(claim, Done)
        assert isinstance(claim.value, int)
        self.claims[topic] = claim.value
        return self.one(
            A,
            CommitTable(
                namespace="floe",
                name=name or topic,
                metadata_location=f"m-{topic}",
                claim=f"committer/{topic}",
                claim_revision=claim.value,
                topic=topic,
            ),
        )

    def rename(self, topic: str, target: str, author: int = A, **more: str) -> Result:
        """Rename the topic's table as its committer does."""
        space, name = self.state.tables_by_topic[self.state.topics[topic].topic_id]
        message = DropTable(namespace=space, name=name, rename_namespace="floe", rename_name=target)
        message.expected = more.get("expected", f"m-{topic}")
        message.claim, message.claim_revision = f"committer/{topic}", self.claims[topic]
        return self.one(author, message)

    def tables(self) -> dict[str, str]:
        """Name of every table → where its metadata is."""
        return {name: table.metadata_location for (_, name), table in self.state.tables.items()}

    def with_tables(self, *topics: str) -> Named:
        """Topics with tables."""
        for each in topics:
            assert isinstance(self.create(each), Done)
            assert isinstance(self.table(each), Done)
        return self

    def check(self) -> None:
        """A snapshot brings all of it back, the indices too."""
        assert plain(decode(encode(self.state))) == plain(self.state)


def refused(result: Result, code: Code, *texts: str) -> bool:
    return isinstance(result, Refused) and result.code is code and all(t in result.message for t in texts)


@pytest.fixture
def script() -> Named:
    return Named()


def test_a_table_goes_with_its_topics_name(script: Named) -> None:
    script.with_tables("a", "b")
    assert script.called("a", "x") == Done()
    assert script.rename("a", "x") == Done("m-a")
    assert script.tables() == {"b": "m-b", "x": "m-a"}
    topic_id = script.state.topics["a"].topic_id
    assert script.state.tables_by_topic[topic_id] == ("floe", "x")
    script.check()


def test_only_who_holds_the_claim_renames_and_to_the_name_that_is_configured(script: Named) -> None:
    script.with_tables("a")
    assert refused(script.rename("a", "x"), Code.INVALID_UPDATE_VERSION, "floe.a is not to be called floe.x")
    script.called("a", "x")
    assert refused(script.rename("a", "x", author=B), Code.NOT_COORDINATOR)
    assert refused(script.rename("a", "x", expected="older"), Code.INVALID_UPDATE_VERSION)
    assert script.tables() == {"a": "m-a"}


def test_a_topic_has_one_table(script: Named) -> None:
    """Whoever did not hear of its table, or has a create on its way from before, makes no other."""
    script.with_tables("a")
    script.called("a", "x")
    assert refused(script.table("a", "x"), Code.DUPLICATE_RESOURCE, "topic 'a' has the table floe.a")
    script.rename("a", "x")
    assert refused(script.table("a", "a"), Code.DUPLICATE_RESOURCE, "topic 'a' has the table floe.x")
    assert script.tables() == {"x": "m-a"}


def test_a_table_that_is_no_topics_does_not_become_that_of_one(script: Named) -> None:
    script.create("a")
    script.one(A, CommitTable(namespace="floe", name="a", metadata_location="theirs"))
    claim = script.one(A, Claim(name="committer/a"))
    assert isinstance(claim, Done)
    mine = CommitTable(namespace="floe", name="a", expected="theirs", metadata_location="m", topic="a")
    assert refused(script.one(A, mine), Code.INVALID_REQUEST, "is no topic's")
    script.check()


def test_names_are_swapped_at_one_point_of_the_log(script: Named) -> None:
    script.with_tables("a", "b", "c")
    for topic, name in (("a", "away"), ("b", "c1"), ("c", "a"), ("b", "c"), ("a", "b")):
        assert script.called(topic, name) == Done()
    assert script.rename("a", "b") == Done("m-a")
    assert script.tables() == {"b": "m-a", "c": "m-b", "a": "m-c"}
    for topic in "abc":
        key = table_names.table_key(topic, script.state.topics[topic].configs)
        assert script.state.tables_by_topic[script.state.topics[topic].topic_id] == key
    script.check()


def test_a_table_in_the_way_gives_way(script: Named) -> None:
    script.with_tables("a", "b")
    script.called("b", "elsewhere")
    script.called("a", "b")
    assert script.rename("a", "b") == Done("m-a")
    assert script.tables() == {"b": "m-a", "elsewhere": "m-b"}


def test_what_does_not_want_to_move_stays(script: Named) -> None:
    """A table of nobody's, one that waits behind it, one of a topic that is gone."""
    script.with_tables("a", "b", "c")
    script.called("a", "x")
    script.one(A, CommitTable(namespace="floe", name="x", metadata_location="theirs"))
    assert refused(script.rename("a", "x"), Code.DUPLICATE_RESOURCE, "floe.x exists and is no topic's")
    script.called("b", "a")
    assert refused(script.rename("b", "a"), Code.DUPLICATE_RESOURCE, "floe.x exists")
    before = script.tables()
    script.one(A, DeleteTopic(name="c"))
    script.called("b", "c")
    assert refused(script.rename("b", "c"), Code.DUPLICATE_RESOURCE, "floe.c exists and is no topic's")
    assert script.tables() == before


def test_one_name_that_two_topics_want_is_no_ring(script: Named) -> None:
    """As they may since before names were looked at: a's rename would go round behind b and c."""
    script.with_tables("a", "b", "c")
    for topic, name in (("a", "b"), ("b", "c"), ("c", "b")):
        script.state.topics[topic].configs = {NAME: name}
    assert refused(script.rename("a", "b"), Code.DUPLICATE_RESOURCE, "floe.b is wanted by two topics")
    assert set(script.tables()) == {"a", "b", "c"}
    assert script.rename("b", "c") == Done("m-b"), "a ring by themselves"


def test_a_rename_that_is_too_long_moves_nothing(script: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_names, "RENAMED_MAX", 2)
    script.with_tables("a", "b", "c")
    for topic, name in (("c", "d"), ("b", "c"), ("a", "b")):
        script.called(topic, name)
    assert refused(script.rename("a", "b"), Code.DUPLICATE_RESOURCE)
    assert set(script.tables()) == {"a", "b", "c"}


def test_a_name_that_another_topic_is_configured_for_is_refused(script: Named) -> None:
    script.create("a", "orders")
    script.create("b")
    whose = "is the table of topic 'a'"
    assert refused(script.called("b", "orders"), Code.INVALID_CONFIG, "floe.orders", whose)
    assert refused(script.create("c", "floe.orders"), Code.INVALID_CONFIG, whose)
    assert script.called("b", "other.orders") == Done(), "in another namespace"
    assert isinstance(script.create("c", "a"), Done), "a is called orders"
    assert refused(script.called("a", ""), Code.INVALID_CONFIG, "is the table of topic 'c'")
    assert script.called("a", "orders") == Done(), "as it is"
    script.one(A, DeleteTopic(name="a"))
    assert script.called("b", "orders") == Done()
    script.check()


def test_a_name_that_a_topic_leaves_is_free_though_its_table_has_it_still(script: Named) -> None:
    script.with_tables("a", "b")
    script.called("a", "x")
    assert script.called("b", "a") == Done()
    script.check()


def test_a_name_of_a_table_that_is_no_topics_is_refused(script: Named) -> None:
    script.create("a")
    script.one(A, CommitTable(namespace="floe", name="theirs", metadata_location="m"))
    assert refused(script.called("a", "theirs"), Code.INVALID_CONFIG, "which is no topic's")
    assert refused(script.create("b", "theirs"), Code.INVALID_CONFIG)
    script.one(A, DropTable(namespace="floe", name="theirs"))
    assert script.called("a", "theirs") == Done()


def test_the_name_of_a_topic_that_is_gone_is_free(script: Named) -> None:
    """Its table is set aside."""
    script.with_tables("a")
    script.one(A, DeleteTopic(name="a"))
    assert isinstance(script.create("b", "a"), Done)


def test_names_that_collide_are_no_reason_to_refuse_a_topic(script: Named) -> None:
    for name in ("a.b-c", "a-b-c"):
        assert isinstance(script.create(name), Done)
    assert script.state.topics_by_table_name["floe", "a_b_c"] == ("a-b-c", "a.b-c")
    script.check()
    script.one(A, DeleteTopic(name="a-b-c"))
    assert script.state.topics_by_table_name["floe", "a_b_c"] == ("a.b-c",)


def test_below_its_level_names_are_as_they_were() -> None:
    script = Named(level=1)
    script.create("a", "x")
    assert isinstance(script.create("b", "x"), Done)
    assert isinstance(script.table("a", "a"), Done)
    assert isinstance(script.table("a", "x"), Done), "the second table of one topic"
    rename = DropTable(namespace="floe", name="a", rename_namespace="floe", rename_name="y", claim="nobody's")
    assert isinstance(script.one(B, rename), Done)
    assert script.tables() == {"x": "m-a", "y": "m-a"}
    script.check()
