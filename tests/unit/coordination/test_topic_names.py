"""Names of topics that differ only by dots: metric names cannot tell them apart (KAFKA-2337)."""

from __future__ import annotations

import pytest

from coordination.commands import Begin, Commands, CreateTopic, DeleteTopic, End, Part, command
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import Done, Refused, Result
from tests.unit.coordination.kit import A, B, Script

FIRST, SECOND = b"1" * 16, b"2" * 16  # requests


def new(name: str, request: bytes = b"") -> CreateTopic:
    return CreateTopic(name=name, topic_id=name.encode().ljust(16)[:16], partitions=1, request=request)


def taken(results: tuple[Result, ...]) -> list[bool]:
    """Which were created; the others collide."""
    refused = [result.code for result in results if isinstance(result, Refused)]
    assert set(refused) <= {Code.INVALID_TOPIC_EXCEPTION}
    return [isinstance(result, Done) for result in results]


def test_names_of_one_request_may_differ_by_dots_only(script: Script) -> None:
    family = [new("a.b.c", FIRST), new("a_b.c", FIRST), new("a.b_c", FIRST)]
    assert taken(script.apply(A, *family).results) == [True, True, True]
    assert list(script.state.topics) == ["a.b.c", "a_b.c", "a.b_c"]


def test_so_they_may_in_a_change_of_several_parts(script: Script) -> None:
    inner = Commands(commands=[command(new(name, FIRST)) for name in ("a.b", "a_b")])
    content = inner.SerializeToString()
    results = script.apply(A, Begin(id=1), Part(id=1, index=0, content=content), End(id=1, parts=1)).results
    assert isinstance(results[2], Done)
    assert taken(results[2].value) == [True, True]


def test_each_is_compared_with_topics_from_before_the_request(script: Script) -> None:
    script.apply(A, new("a.b"))
    refused = script.apply(A, new("a_b", FIRST), new("a.c", FIRST), new("a_c", FIRST)).results
    assert taken(refused) == [False, True, True]
    assert isinstance(refused[0], Refused)
    assert refused[0].message == "Topic 'a_b' collides with existing topic: a.b"


def test_another_request_of_the_same_entry_came_later(script: Script) -> None:
    entry = (new("a.b", FIRST), new("a_b", SECOND), new("x.y"), new("x_y"))
    assert taken(script.apply(A, *entry).results) == [True, False, True, False]


def test_the_same_mark_in_a_later_entry_means_nothing(script: Script) -> None:
    script.apply(A, new("a.b", FIRST))
    assert taken(script.apply(B, new("a_b", FIRST)).results) == [False]


@pytest.mark.parametrize("through_snapshot", [False, True])
def test_a_name_is_free_once_the_last_of_its_family_is_gone(script: Script, through_snapshot: bool) -> None:
    script.apply(A, *(new(name, FIRST) for name in ("a.b.c", "a_b.c", "a.b_c")))
    told = []
    for gone in ("a_b.c", "a.b.c", "a.b_c"):
        if through_snapshot:
            script.through_snapshot()
        refused = script.one(A, new("a_b_c"))
        assert isinstance(refused, Refused)
        told.append(refused.message.rpartition(" ")[2])
        script.one(A, DeleteTopic(name=gone))
    assert told == ["a.b.c", "a.b.c", "a.b_c"], "the oldest is named, the same on every agent"
    assert taken(script.apply(A, new("a_b_c")).results) == [True]
    assert canonical_digest(script.replayed()) == canonical_digest(script.state)
    assert script.replayed().names_without_dots == script.state.names_without_dots


def test_at_level_1_the_second_of_a_request_is_refused() -> None:
    script = Script()
    script.register(A, level=1)
    assert taken(script.apply(A, new("a.b", FIRST), new("a_b", FIRST)).results) == [True, False]
