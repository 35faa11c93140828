"""Tags and branches of a topic's table: what they name stays as it was, and streams read every row (0012)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from iceberg import history, maintenance, manifest_avro, manifests, rest_refs
from iceberg.committer import Committer
from iceberg.steps import Steps
from objectstore.store import NotFound
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.keeping_little import fold_early, small
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.streams import Expired, Stream
from tests.unit.iceberg.test_tables_history import PATH, commit, files, served


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A cluster of one agent whose tables keep little."""
    fold_early(monkeypatch)
    async with rigs.running(tmp_path) as found:
        found.options = small()
        yield found


async def update(rig: Rig, *updates: dict[str, Any]) -> tuple[int, Any]:
    """One commit of an engine; status and answer."""
    return await serving.ask(serving.catalog_of(rig), "POST", PATH, {"requirements": [], "updates": updates})


def ref(name: str, snapshot: int, kind: str = "tag", **fields: int) -> dict[str, Any]:
    """The update that sets it."""
    what = {"ref-name": name, "type": kind, "snapshot-id": snapshot}
    return {"action": "set-snapshot-ref", **what, **fields}


def gone(name: str) -> dict[str, Any]:
    """The update that drops a tag or a branch."""
    return {"action": "remove-snapshot-ref", "ref-name": name}


async def held(rig: Rig, snapshot: dict[str, Any]) -> list[str]:
    """The files of a snapshot; all of them are there. Raises NotFound."""
    found = []
    location = snapshot["manifest-list"]
    for manifest in manifest_avro.read_list(location, await rig.store.get(rig.warehouse.key(location))):
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        found += manifests.data_files(manifest, content)
    for each in found:
        await rig.store.head(rig.warehouse.key(each))
    return sorted(found)


async def collect(rig: Rig, committer: Committer) -> None:
    """Everything goes that the table does not lead to, without a grace period."""
    assert committer.head is not None
    now_ms = rig.parts.clock.now_ms() + 1000
    await maintenance.collect(rig.store, rig.warehouse, committer.head, now_ms, 0, Steps())


def assert_sound(metadata: dict[str, Any]) -> None:
    """What Iceberg's readers ask of metadata: names that are there, each once, logs and chain in order."""
    numbers = [each["snapshot-id"] for each in metadata["snapshots"]]
    assert len(numbers) == len(set(numbers))
    assert {each["snapshot-id"] for each in metadata["refs"].values()} <= set(numbers)
    logged = metadata["snapshot-log"]
    assert {each["snapshot-id"] for each in logged} <= set(numbers)
    assert all(a["timestamp-ms"] <= b["timestamp-ms"] for a, b in pairwise(logged))
    assert logged[-1]["snapshot-id"] == metadata["current-snapshot-id"]


@dataclass
class Story:
    """What was named, what each snapshot held when it was the table, and a stream of each turn."""

    rig: Rig
    random: Random
    committer: Committer
    named: dict[str, int] = field(default_factory=dict)
    then: dict[int, list[str]] = field(default_factory=dict)
    streams: list[Stream] = field(default_factory=list)
    deepest: int = 0

    async def commit(self) -> None:
        """One more snapshot."""
        await commit(self.rig, self.committer, 1)
        self.then[(await served(self.rig))["current-snapshot-id"]] = await files(self.rig)

    async def name_one(self) -> None:
        """A tag or a branch of any snapshot that engines see."""
        chosen = self.random.choice((await served(self.rig))["snapshots"])["snapshot-id"]
        name, kind = f"r{len(self.then)}", self.random.choice(["tag", "branch"])
        status, answer = await update(self.rig, ref(name, chosen, kind))
        if chosen == history.of((await self.rig.head()).metadata).base:
            assert status == 400
            assert "into which older ones are folded" in answer["error"]["message"]
            return
        assert status == 200, answer
        self.named[name] = chosen
        self.deepest = max(self.deepest, len(self.then) - list(self.then).index(chosen))

    async def drop_one(self) -> None:
        """Any of those names."""
        name = self.random.choice(list(self.named))
        del self.named[name]
        assert (await update(self.rig, gone(name)))[0] == 200

    async def look(self) -> None:
        """All named ones are as they were, and a new stream reads every row."""
        metadata = await served(self.rig)
        assert_sound(metadata)
        assert set(metadata["refs"]) == {"main", *self.named}
        known = {each["snapshot-id"]: each for each in metadata["snapshots"]}
        for number in self.named.values():
            assert await held(self.rig, known[number]) == self.then[number]
        self.streams.append(stream := Stream(self.rig))
        await stream.go(metadata)
        assert sorted(stream.read) == await files(self.rig)


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_named_stays_and_streams_read_every_row(rig: Rig, seed: int) -> None:
    await rig.create_topic(partitions=1)
    story = Story(rig, Random(seed), rig.committer())
    while len(story.then) < 70:
        await story.commit()
        if story.random.random() < 0.3:
            await story.name_one()
        if story.named and story.random.random() < 0.1:
            await story.drop_one()
        for _ in range(story.random.randrange(3)):
            await story.commit()
        if story.random.random() < 0.2:
            await collect(rig, story.committer)
        await story.look()
    assert story.deepest > small().retention.snapshots, "one that stood in a segment was named"
    ended, metadata = 0, await served(rig)
    for stream in story.streams:
        try:
            await stream.go(metadata)
        except Expired:
            ended += 1
        else:
            assert sorted(stream.read) == await files(rig)
    assert 10 < ended < len(story.streams) - 5, "some were folded, the newest are there"


async def test_a_tag_of_the_only_snapshot(rig: Rig) -> None:
    """It would have become the table's first, into which others are folded."""
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 1)
    number, content = (await served(rig))["current-snapshot-id"], await files(rig)
    assert (await update(rig, ref("one", number)))[0] == 200
    stream = Stream(rig)
    for _ in range(40):
        await commit(rig, committer, 1)
        metadata = await served(rig)
        assert_sound(metadata)
        known = {each["snapshot-id"]: each for each in metadata["snapshots"]}
        assert await held(rig, known[number]) == content
        stream = Stream(rig)
        await stream.go(metadata)
        assert sorted(stream.read) == await files(rig)
    assert history.of((await rig.head()).metadata).segments


async def test_what_no_name_keeps_goes(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 8)
    metadata = await served(rig)
    chosen = metadata["snapshots"][3]
    assert (await update(rig, ref("a", chosen["snapshot-id"])))[0] == 200
    await commit(rig, committer, 60)
    await collect(rig, committer)
    await held(rig, chosen)
    assert (await update(rig, gone("a")))[0] == 200
    await commit(rig, committer, 1)
    assert chosen["snapshot-id"] not in {each["snapshot-id"] for each in (await served(rig))["snapshots"]}
    await collect(rig, committer)
    with pytest.raises(NotFound):
        await held(rig, chosen)


async def test_a_tag_goes_at_its_own_age(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 3)
    number = (await served(rig))["current-snapshot-id"]
    kept, short = ref("kept", number), ref("short", number, **{"max-ref-age-ms": 1})
    assert (await update(rig, kept, short))[0] == 200
    assert set((await served(rig))["refs"]) == {"main", "kept", "short"}
    await commit(rig, committer, 2)
    assert set((await served(rig))["refs"]) == {"main", "kept"}


async def test_what_is_no_tag_or_branch_is_refused(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 3)
    number = (await served(rig))["current-snapshot-id"]
    parent = (await served(rig))["snapshots"][1]["snapshot-id"]
    before = (await rig.head()).location
    snapshot = {"snapshot-id": 5, "sequence-number": 9, "timestamp-ms": 1, "manifest-list": "x"}
    added = {"action": "add-snapshot", "snapshot": {**snapshot, "summary": {"operation": "append"}}}
    for updates, status, words in (
        ([ref("main", parent, "branch")], 403, "written by Floe alone"),
        ([gone("main")], 403, "written by Floe alone"),
        ([added, ref("b", 5, "branch")], 403, "add-snapshot refused"),
        ([{"action": "remove-snapshots", "snapshot-ids": [parent]}], 403, "max-snapshot-age-ms"),
        ([ref("a", 5)], 400, "unknown snapshot 5"),
        ([ref("", number)], 400, "ref-name has 0 characters"),
        ([ref("x" * 257, number)], 400, "ref-name has 257 characters"),
        ([ref("a", number, **{"max-ref-age-ms": 1 << 63})], 400, "max-ref-age-ms of 'a'"),
        ([ref("a", number, **{"max-ref-age-ms": 0})], 400, "max-ref-age-ms of 'a'"),
        ([ref("a", number, "branch", **{"min-snapshots-to-keep": 1 << 31})], 400, "min-snapshots-to-keep"),
        ([ref(f"a{each}", number) for each in range(rest_refs.REFS_MAX)], 403, "100 at most"),
    ):
        found, answer = await update(rig, *updates)
        assert (found, words in answer["error"]["message"]) == (status, True), answer
    assert (await rig.head()).location == before
