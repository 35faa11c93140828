"""CommitTables: pointers of several tables move at one point of the log, or none of them does."""

from __future__ import annotations

import pytest

from coordination.commands import Claim, CommitTable, CommitTables, CreateTopic, PutNamespace
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest
from coordination.state import Done, Refused, Result
from coordination.state import tables as state_tables
from coordination.state.tables import MOVES_MAX, NAME_LENGTH_MAX
from tests.unit.coordination.kit import A, B, Script

Move = tuple[str, str, str]
"""A table of namespace `s`, where it is expected, and where it goes."""


@pytest.fixture(name="tables")
def with_tables(script: Script) -> Script:
    """Tables a and b at a1 and b1."""
    script.one(A, PutNamespace(name="s"))
    assert isinstance(together(script, ("a", "", "a1"), ("b", "", "b1")), Done)
    return script


def together(script: Script, *moves: Move, author: int = A, namespace: str = "s") -> Result:
    """Propose the moves as one command."""
    message = CommitTables()
    for name, expected, location in moves:
        message.moves.add(namespace=namespace, name=name, expected=expected, metadata_location=location)
    return script.one(author, message)


def places(script: Script) -> dict[str, str]:
    return {name: each.metadata_location for (_, name), each in script.state.tables.items()}


def test_all_move_at_one_revision(tables: Script) -> None:
    done = together(tables, ("b", "b1", "b2"), ("new", "", "n1"), ("a", "a1", "a2"))
    assert done == Done(tables.state.revision)
    assert places(tables) == {"a": "a2", "b": "b2", "new": "n1"}
    assert {each.revision for each in tables.state.tables.values()} == {tables.state.revision}
    assert canonical_digest(tables.replayed()) == canonical_digest(tables.state)
    tables.through_snapshot()
    assert isinstance(together(tables, ("a", "a2", "a3"), ("new", "n1", "n2"), author=B), Done)


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (("b", "b0", "b2"), Code.INVALID_UPDATE_VERSION, "table s.b is at b1, not at b0"),
        (("b", "", "b2"), Code.DUPLICATE_RESOURCE, "table s.b exists at b1"),
        (("c", "c1", "c2"), Code.RESOURCE_NOT_FOUND, "table s.c does not exist"),
        (("a", "a1", "a3"), Code.INVALID_REQUEST, "table s.a is named twice"),
        (("b", "b1", ""), Code.INVALID_REQUEST, "name and location have 1 to"),
        (("b", "b1", "x" * (NAME_LENGTH_MAX + 1)), Code.INVALID_REQUEST, "name and location have 1 to"),
        (("", "", "x"), Code.INVALID_REQUEST, "name and location have 1 to"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_that_is_refused_leaves_all_as_they_were(
    tables: Script, bad: Move, code: Code, words: str, *, first: bool
) -> None:
    moves = [("a", "a1", "a2"), ("new", "", "n1")]
    result = together(tables, *([bad, *moves] if first else [*moves, bad]))
    assert isinstance(result, Refused)
    assert result.code is code
    assert words in result.message
    assert places(tables) == {"a": "a1", "b": "b1"}


def test_how_many_there_may_be(tables: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [(f"t{number}", "", "m") for number in range(MOVES_MAX + 1)]
    for moves in ([], many):
        result = together(tables, *moves)
        assert isinstance(result, Refused)
        assert f"{len(moves)} tables: name 1 to {MOVES_MAX}" in result.message
    monkeypatch.setattr(state_tables, "TABLES_MAX", 2 + MOVES_MAX - 1)
    full = together(tables, *many[:-1])
    assert isinstance(full, Refused)
    assert full.code is Code.POLICY_VIOLATION
    assert len(tables.state.tables) == 2
    assert isinstance(together(tables, *many[:-2], ("a", "a1", "a2")), Done), "one that is there is not new"
    assert isinstance(together(tables, ("z", "", "z1"), namespace="nowhere"), Refused)


def test_what_a_committer_recorded_of_a_topic_s_table_stays(tables: Script) -> None:
    tables.one(A, CreateTopic(name="t", topic_id=b"i" * 16, partitions=1))
    claim = tables.one(A, Claim(name="committer/t"))
    assert isinstance(claim, Done)

    def committed(expected: str, location: str, offset: int) -> Result:
        message = CommitTable(
            namespace="s",
            name="t",
            expected=expected,
            metadata_location=location,
            claim="committer/t",
            claim_revision=int(str(claim.value)),
            topic="t",
            next_offsets=[offset],
        )
        return tables.one(A, message)

    assert isinstance(committed("", "t1", 5), Done)
    before = tables.state.tables["s", "t"]
    assert isinstance(together(tables, ("t", "t1", "t2"), ("a", "a1", "a2")), Done)
    after = tables.state.tables["s", "t"]
    assert (after.topic, after.topic_id, after.next_offsets) == ("t", before.topic_id, (5,))
    stale = committed("t1", "t2-mine", 6)
    assert isinstance(stale, Refused)
    assert stale.code is Code.INVALID_UPDATE_VERSION
    assert isinstance(committed("t2", "t3", 6), Done)


def test_below_its_level_it_changes_nothing() -> None:
    script = Script()
    script.register(A, level=1)
    script.one(A, PutNamespace(name="s"))
    result = together(script, ("a", "", "a1"))
    assert isinstance(result, Refused)
    assert result.code is Code.UNSUPPORTED_VERSION
    assert places(script) == {}
