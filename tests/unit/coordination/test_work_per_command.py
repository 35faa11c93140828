"""What a command costs depends on what it names, not on how much else there is or once was."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from coordination.commands import BindSchema, DeleteTopic, ForgetSegments
from coordination.snapshot import decode, encode
from coordination.state import Done
from coordination.state.data import HANDLE_RANGE
from tests.unit.coordination.kit import A, Script, for_good, swap
from tests.unit.coordination.reflect import plain


class Walked(AssertionError):
    """Somebody went over everything."""


class Unwalked(dict[Any, Any]):
    """A dict in which things are looked up; whoever goes over it fails."""

    def _refuse(self, *_: object) -> NoReturn:
        raise Walked("this goes over everything that there is")

    __iter__ = items = keys = values = _refuse  # type: ignore[assignment]  # each of them fails


@pytest.fixture
def script() -> Script:
    made = Script()
    made.register(A)
    made.topic(A, "t", 2)
    made.topic(A, "other", 1)
    return made


def bind(script: Script, topic: str, content: bytes, role: int = 0) -> object:
    """Bind a message; the answer is the schema id."""
    result = script.one(A, BindSchema(topic=topic, message="m", descriptor_set=content, role=role))
    assert isinstance(result, Done)
    return result.value


def test_bindings_of_other_topics_cost_a_topic_nothing(script: Script) -> None:
    first = bind(script, "t", b"1")
    kept = bind(script, "other", b"1")
    script.state.schemas = Unwalked(script.state.schemas)
    key, second = bind(script, "t", b"1", BindSchema.KEY), bind(script, "t", b"2")
    versions = {number: script.state.schemas[number].version for number in (first, key, second)}
    assert versions == {first: 1, key: 1, second: 2}
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    assert dict.keys(script.state.schemas) == {kept}


def test_the_bindings_of_a_topic_are_known_after_a_snapshot(script: Script) -> None:
    bind(script, "t", b"1")
    bind(script, "other", b"1")
    bind(script, "t", b"2")
    script.through_snapshot()
    assert script.state.topics["t"].schema_ids == [1, 3]


def test_live_partitions_are_counted_by_ranges_of_handles(script: Script) -> None:
    """Handles are never given again, so that going over all of them costs what there ever was."""
    script.topic(A, "many", 2 * HANDLE_RANGE)
    script.topic(A, "last", 1)
    script.one(A, DeleteTopic(name="many"))
    assert script.state.live_in_range == [3, 0, 1]
    assert decode(encode(script.state)).live_in_range == [3, 0, 1]


def test_whether_a_partition_was_let_go_of_as_a_whole_is_looked_up(script: Script) -> None:
    """The collector asks for every segment that it finds."""
    for number in range(2):
        script.commit(A, (0, 1))
        assert script.one(A, swap(script.state, 0, number + 1, number + 1)) == Done()
    assert script.state.whole_garbage == {}, "the first manifest was replaced, its segments stay"
    for_good(script)
    script.one(A, DeleteTopic(name="t"))
    assert script.state.whole_garbage == {0: 1}
    assert plain(decode(encode(script.state))) == plain(script.state)
    for name in list(script.state.manifest_garbage):
        names = {"manifest_incarnation": [name[0]], "manifest_partition": [0], "manifest_number": [name[2]]}
        assert script.one(A, ForgetSegments(**names)) == Done(1)
    assert script.state.whole_garbage == {}


def test_chunks_are_known_by_name_as_long_as_they_are_referenced(script: Script) -> None:
    script.commit(A, (0, 1), (2, 1))
    script.commit(A, (0, 1))
    table = script.state.chunks
    assert table.serials == {chunk.id: serial for serial, chunk in table.by_serial.items()}
    for_good(script)
    script.one(A, DeleteTopic(name="t"))
    assert [chunk.number for chunk in table.serials] == [1], "the other topic has rows in it"
    assert decode(encode(script.state)).chunks.serials == table.serials
