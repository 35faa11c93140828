"""What a new version is compared with is taken from the state step by step, and is of one moment."""

from __future__ import annotations

import asyncio

import pytest

from agent.http.registry import judging
from agent.http.registry.judging import Law, earlier_of, imports_of_each
from coordination.state.subject_types import Reference, RegisteredSchema, SubjectTable, SubjectVersion

ALL = Law("BACKWARD_TRANSITIVE", "")


@pytest.fixture
def table() -> SubjectTable:
    """Subject `s` of four versions: two import a, one b, one nothing."""
    found = SubjectTable()
    for number, name in enumerate(("a", "b"), 1):
        put(found, number, name)
    for version, imported in enumerate(("a", "b", "a", ""), 1):
        put(found, 10 + version, "s", version, imported)
    return found


def put(table: SubjectTable, schema_id: int, subject: str, version: int = 1, imported: str = "") -> None:
    references = (Reference(f"{imported}.proto", imported, 1),) if imported else ()
    depth = 1 + len(references)
    schema = RegisteredSchema(schema_id, "PROTOBUF", "", b"%d" % schema_id, references, "", "", depth)
    table.add_schema(schema)
    table.put_version(subject, SubjectVersion(version, schema_id, False, 1))


def of(table: SubjectTable) -> list[RegisteredSchema]:
    return [table.schemas[one.schema_id] for one in table.subjects["s"].live]


async def test_others_run_between_what_versions_import(table: SubjectTable) -> None:
    """Equal references are followed once."""
    steps: list[None] = []
    work = imports_of_each(table, of(table))
    while True:
        try:
            steps.append(next(work))
        except StopIteration as done:
            made = done.value
            break
    assert made == [{"a.proto": b"1"}, {"b.proto": b"2"}, {"a.proto": b"1"}, {}]
    assert len(steps) == 3


async def test_a_version_that_is_gone_meanwhile_is_not_looked_at(table: SubjectTable) -> None:
    """What it alone referred to may be gone as well, or be another by now."""
    looking = asyncio.create_task(earlier_of(table, table.subjects["s"].live, ALL))
    await asyncio.sleep(0)  # the first is looked at
    table.drop_version("s", 2, 5)
    table.drop_version("b", 1, 5)
    put(table, 30, "b")
    put(table, 31, "s", 5, "b")
    found = await looking
    assert [(each.version, each.imports) for each in found] == [
        (1, {"a.proto": b"1"}),
        (3, {"a.proto": b"1"}),
        (4, {}),
    ]


@pytest.mark.parametrize("group", ["", "major"])
async def test_where_nothing_is_compared_nothing_is_followed(
    table: SubjectTable, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    monkeypatch.setattr(judging, "imports_of", None)
    assert await earlier_of(table, table.subjects["s"].live, Law("NONE", group)) == []


async def test_a_level_looks_at_the_last_one_or_at_all_of_a_group(table: SubjectTable) -> None:
    for law, versions in ((ALL, [1, 2, 3, 4]), (Law("FULL", ""), [4]), (Law("FULL", "major"), [1, 2, 3, 4])):
        found = await earlier_of(table, table.subjects["s"].live, law)
        assert [each.version for each in found] == versions
