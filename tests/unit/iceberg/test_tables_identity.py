"""A table says by which columns a row is known; one that was made before that says so from then on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema

from iceberg import metadata
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig

NAMES = {"kafka.partition", "kafka.offset"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def names(rig: Rig) -> set[str]:
    """The identifier fields of the current schema, as pyiceberg reads and checks them."""
    return Schema.model_validate(
        metadata.current_schema((await rig.head()).metadata)
    ).identifier_field_names()


async def test_a_new_table_says_by_which_columns_a_row_is_known(rig: Rig) -> None:
    await rig.create_topic()
    await rig.drain(rig.committer())
    assert await names(rig) == NAMES


async def test_an_older_table_says_it_with_its_next_commit_and_nothing_is_rewritten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(metadata, "IDENTIFIER_IDS", ())
        await rig.create_topic()
        await rig.produce([b"a", b"b"])
        await rig.drain(rig.committer())
        assert await names(rig) == set()
    before = await rig.head()
    rows = await rig.rows()
    committer = rig.committer()
    assert await rig.drain(committer) == 0
    after = await rig.head()
    assert await names(rig) == NAMES
    assert after.metadata["current-snapshot-id"] == before.metadata["current-snapshot-id"]
    assert (await rig.rows(), after.manifests) == (rows, before.manifests)
    assert [each["schema-id"] for each in after.metadata["schemas"]] == [0, 1]
    assert await committer.run_once() is None, "it says it once"
    await rig.produce([b"c"])
    await rig.drain(committer)
    await rig.assert_table_is_topic({0: [b"a", b"b", b"c"]})
    assert len((await rig.head()).metadata["schemas"]) == 2
