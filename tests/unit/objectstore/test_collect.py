"""Garbage collection never deletes what could still be referenced (rule 9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.collect import LOOKED_AGAIN_MS, LOOKS_PER_STEP, Collector, Standing, Verdict, judge
from objectstore.faulty import Fault, FaultyStore
from objectstore.grace import Grace
from objectstore.naming import ChunkId, chunk_key, incarnation_prefix
from objectstore.store import ObjectMeta, Retryable

GRACE = 1_000
NOW = 10_000
OLD, NEW = NOW - GRACE, NOW - GRACE + 1


class View:
    """A state in which everything can be arranged. `on_catch_up` plays what happens meanwhile."""

    def __init__(self) -> None:
        self.standings: dict[int, Standing] = {}
        self.referenced: set[ChunkId] = set()
        self.garbage: dict[ChunkId, int] = {}
        self.on_catch_up = lambda: None

    async def catch_up(self) -> None:
        self.on_catch_up()

    def standing(self, incarnation: int) -> Standing:
        return self.standings.get(incarnation, Standing.UNKNOWN)

    def is_referenced(self, chunk: ChunkId) -> bool:
        return chunk in self.referenced

    def released(self) -> Mapping[ChunkId, int]:
        return self.garbage


@pytest.mark.parametrize("standing", list(Standing))
@pytest.mark.parametrize(
    ("referenced", "released_ms", "modified_ms", "expected"),
    [
        (True, None, OLD, dict.fromkeys(Standing, Verdict.REFERENCED)),
        (False, NEW, OLD, dict.fromkeys(Standing, Verdict.RELEASED_LATELY)),
        (False, OLD, NEW, dict.fromkeys(Standing, Verdict.RELEASED)),
        (
            False,
            None,
            OLD,
            {
                Standing.LIVE: Verdict.AUTHOR_LIVE,
                Standing.FENCED: Verdict.UNCOMMITTED,
                Standing.UNKNOWN: Verdict.AUTHOR_UNKNOWN,
            },
        ),
        (
            False,
            None,
            NEW,
            {
                Standing.LIVE: Verdict.AUTHOR_LIVE,
                Standing.FENCED: Verdict.UNCOMMITTED_LATELY,
                Standing.UNKNOWN: Verdict.AUTHOR_UNKNOWN,
            },
        ),
    ],
)
def test_the_table(
    standing: Standing,
    referenced: bool,
    released_ms: int | None,
    modified_ms: int,
    expected: dict[Standing, Verdict],
) -> None:
    chunk, view = ChunkId(5, 1), View()
    view.standings[5] = standing
    if referenced:
        view.referenced.add(chunk)
    if released_ms is not None:
        view.garbage[chunk] = released_ms
    meta = ObjectMeta(chunk_key(chunk), 10, "e", modified_ms)
    assert judge(meta, view, NOW, GRACE) is expected[standing]


def test_what_is_not_a_chunk_is_left_alone() -> None:
    assert judge(ObjectMeta("chunks/readme.txt", 1, "e", 0), View(), NOW, GRACE) is Verdict.STRANGER
    assert [verdict for verdict in Verdict if verdict.garbage] == [Verdict.RELEASED, Verdict.UNCOMMITTED]


LIVE, DEAD, LOST = 1, 2, 3


class Stage:
    """A bucket with chunks of a live and a dead author."""

    def __init__(self) -> None:
        self.now = OLD
        self.store = MemoryStore(lambda: self.now)
        self.view = View()
        self.view.standings = {LIVE: Standing.LIVE, DEAD: Standing.FENCED}
        self.forgotten: list[ChunkId] = []
        self.watch_s = 0.0
        self.collector = Collector(
            self.store, self.view, self.forget, Grace(GRACE, lambda: NOW, lambda: self.watch_s)
        )

    async def forget(self, chunks: Sequence[ChunkId]) -> None:
        self.forgotten += chunks
        for chunk in chunks:
            del self.view.garbage[chunk]

    async def put(self, incarnation: int, *numbers: int) -> list[ChunkId]:
        chunks = [ChunkId(incarnation, number) for number in numbers]
        for chunk in chunks:
            await self.store.put(chunk_key(chunk), [b"12345"])
        return chunks

    async def keys(self) -> list[str]:
        return [meta.key async for page in self.store.list("") for meta in page]


async def test_a_pass_deletes_garbage_and_nothing_else() -> None:
    stage = Stage()
    kept = [*await stage.put(LIVE, 1, 2), *await stage.put(DEAD, 1)]
    stage.view.referenced = {ChunkId(LIVE, 1), ChunkId(DEAD, 1)}
    released = await stage.put(LIVE, 3)
    stage.view.garbage = {released[0]: OLD}
    uncommitted = await stage.put(DEAD, 2, 3)
    await stage.store.put("cluster.json", [b"{}"])
    report = await stage.collector.run()
    assert await stage.keys() == sorted([chunk_key(chunk) for chunk in kept] + ["cluster.json"])
    assert [each.key for each in report.deleted] == [chunk_key(chunk) for chunk in released + uncommitted]
    assert report.deleted_bytes == 10
    assert stage.forgotten == released
    assert report.warnings == []


async def test_what_was_released_by_a_clock_that_was_years_ahead_goes_after_the_grace() -> None:
    stage = Stage()
    (released,) = await stage.put(LIVE, 3)
    stage.view.garbage = {released: NOW + 1000 * GRACE}
    assert (await stage.collector.run()).deleted == []
    stage.watch_s += GRACE / 1000
    report = await stage.collector.run()
    assert [each.key for each in report.deleted] == [chunk_key(released)]
    assert stage.forgotten == [released]


async def test_a_dry_run_tells_the_same_and_touches_nothing() -> None:
    stage = Stage()
    await stage.put(DEAD, 1, 2)
    await stage.put(LIVE, 9)
    stage.view.garbage = {ChunkId(LIVE, 9): OLD}
    before = await stage.keys()
    dry = await stage.collector.run(dry_run=True)
    assert await stage.keys() == before
    assert stage.forgotten == []
    wet = await stage.collector.run()
    assert [each.key for each in dry.deleted] == [each.key for each in wet.deleted]
    assert await stage.keys() == []


async def test_the_grace_protects_readers() -> None:
    stage = Stage()
    await stage.put(LIVE, 1)
    stage.view.garbage = {ChunkId(LIVE, 1): NEW}
    report = await stage.collector.run()
    assert (len(await stage.keys()), report.deleted, stage.forgotten) == (1, [], [])


async def test_a_commit_between_listing_and_decision_is_seen() -> None:
    """The author commits and is then fenced while the collector lists: the newer state decides."""
    stage = Stage()
    await stage.put(LIVE, 1, 2)
    calls = 0

    def meanwhile() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # after the folders were listed
            stage.view.standings[LIVE] = Standing.FENCED
        if calls == 3:  # after the page was listed: the state catches up with the commit before the fence
            stage.view.referenced.add(ChunkId(LIVE, 1))

    stage.view.on_catch_up = meanwhile
    await stage.collector.run()
    assert await stage.keys() == [chunk_key(ChunkId(LIVE, 1))]


async def test_an_author_registered_while_listing_is_not_unknown() -> None:
    stage = Stage()
    await stage.put(LOST, 1)
    stage.view.on_catch_up = lambda: stage.view.standings.setdefault(LOST, Standing.LIVE)
    report = await stage.collector.run()
    assert report.unknown_authors == {}
    assert len(await stage.keys()) == 1


async def test_an_author_that_the_log_never_met_stops_the_deleting() -> None:
    """An etcd restored from an older backup has forgotten agents and what they committed."""
    stage = Stage()
    await stage.put(DEAD, 1, 2)
    await stage.put(LOST, 1, 2)
    report = await stage.collector.run()
    assert len(await stage.keys()) == 4
    assert report.unknown_authors == {LOST: 2}
    assert report.deleted == []
    [warning] = report.warnings
    assert "0000000000000003 has 2 chunks" in warning
    assert "older backup" in warning


async def test_an_old_author_whose_chunks_are_all_referenced_is_no_evidence() -> None:
    """The state forgets fenced authors after a while; their chunks live on."""
    stage = Stage()
    stage.view.referenced = set(await stage.put(LOST, 1, 2))
    await stage.put(DEAD, 1)
    report = await stage.collector.run()
    assert report.warnings == []
    assert len(await stage.keys()) == 2


async def test_strangers_are_named_and_stay() -> None:
    stage = Stage()
    await stage.store.put("chunks/notes/readme.txt", [b"hi"])
    await stage.put(DEAD, 1)
    report = await stage.collector.run()
    assert report.warnings == ["chunks/notes/readme.txt is not Floe's and stays"]
    assert await stage.keys() == ["chunks/notes/readme.txt"]


async def test_a_crash_between_delete_and_forget_is_made_good_by_the_next_run() -> None:
    stage = Stage()
    await stage.put(LIVE, 1)
    stage.view.garbage = {ChunkId(LIVE, 1): OLD}

    async def crash(chunks: Sequence[ChunkId]) -> None:
        raise Retryable("the process dies here")

    with pytest.raises(Retryable):
        await Collector(stage.store, stage.view, crash, Grace(GRACE, lambda: NOW, lambda: 0.0)).run()
    assert (await stage.keys(), stage.forgotten) == ([], [])
    await stage.collector.run()
    assert stage.forgotten == [ChunkId(LIVE, 1)]


async def test_a_stale_listing_deletes_nothing_that_lives() -> None:
    stage = Stage()
    await stage.put(DEAD, 1, 2)
    stage.view.referenced = {ChunkId(DEAD, 1)}
    faulty = FaultyStore(stage.store)
    collector = Collector(faulty, stage.view, stage.forget, Grace(GRACE, lambda: NOW, lambda: 0.0))
    await faulty.delete([chunk_key(ChunkId(DEAD, 2))])
    faulty.order("list", Fault.STALE)
    await collector.run()
    assert await stage.keys() == [chunk_key(ChunkId(DEAD, 1))]


async def test_a_chunk_that_the_store_keeps_keeps_no_other_one() -> None:
    """Under a hold, say: its mention stays with it, and the passes go on to what is uncommitted."""
    stage = Stage()
    released = await stage.put(LIVE, *range(1_500))
    stage.view.garbage = dict.fromkeys(released, OLD)
    await stage.put(DEAD, *range(5))
    faulty = FaultyStore(stage.store)
    faulty.held = {chunk_key(released[3]), chunk_key(ChunkId(DEAD, 2))}
    collector = Collector(faulty, stage.view, stage.forget, Grace(GRACE, lambda: NOW, lambda: 0.0))
    for count in (1_503, 0):
        report = await collector.run()
        assert await stage.keys() == sorted(faulty.held)
        assert list(stage.view.garbage) == [released[3]]
        assert len(report.deleted) == count
        assert len(report.warnings) == 2
        assert all("under a hold" in each and "stays for now" in each for each in report.warnings)
    faulty.held.clear()
    await collector.run()
    assert (await stage.keys(), stage.view.garbage) == ([], {})


class Listed(MemoryStore):
    """Counts what is listed."""

    def __init__(self) -> None:
        super().__init__(lambda: OLD)
        self.lists: list[str] = []

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        self.lists.append(prefix)
        return super().list(prefix, start_after)


async def test_a_folder_with_nothing_to_find_is_listed_once_a_day() -> None:
    stage, now = Stage(), [NOW]
    stage.store = store = Listed()
    await stage.put(DEAD, 1)
    await stage.put(LOST, 1, 2)
    stage.view.referenced = {ChunkId(DEAD, 1), ChunkId(LOST, 1)}
    collector = Collector(store, stage.view, stage.forget, Grace(GRACE, lambda: now[0], lambda: 0.0))
    for _ in range(3):
        assert (await collector.run()).unknown_authors == {LOST: 1}, "what is told goes on being told"
    dead, lost = incarnation_prefix(DEAD), incarnation_prefix(LOST)
    assert (store.lists.count(dead), store.lists.count(lost)) == (1, 3)
    await stage.put(DEAD, 2)  # of its dead author, on its way until now
    await collector.run()
    assert store.lists.count(dead) == 1
    now[0] += LOOKED_AGAIN_MS
    stage.view.referenced.add(ChunkId(LOST, 2))
    assert [each.key for each in (await collector.run()).deleted] == [chunk_key(ChunkId(DEAD, 2))]


async def test_many_chunks_go_in_bounded_requests() -> None:
    stage = Stage()
    await stage.put(DEAD, *range(2_500))
    faulty = FaultyStore(stage.store)
    report = await Collector(faulty, stage.view, stage.forget, Grace(GRACE, lambda: NOW, lambda: 0.0)).run()
    assert (len(report.deleted), faulty.calls["delete"]) == (2_500, 3)
    assert await stage.keys() == []


async def test_what_was_released_is_looked_at_in_steps_and_may_go_meanwhile() -> None:
    """An hour of much traffic has some 100,000: others get their turn, and one of them may collect too."""
    stage = Stage()
    stage.view.garbage = {ChunkId(DEAD, number): OLD for number in range(3 * LOOKS_PER_STEP)}
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        stage.view.garbage.pop(ChunkId(DEAD, 3 * LOOKS_PER_STEP - turns))
        if turns < 2:
            asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    report = await stage.collector.run(dry_run=True)
    assert turns == 2
    assert len(report.deleted) == 3 * LOOKS_PER_STEP - 2


async def test_the_survey_lists_everything_with_its_reason() -> None:
    stage = Stage()
    await stage.put(LIVE, 1, 2)
    await stage.put(DEAD, 1)
    stage.view.referenced = {ChunkId(LIVE, 1)}
    found = [(each.key[-9:-6], each.verdict) async for each in stage.collector.survey()]
    assert [verdict for _, verdict in found] == [Verdict.REFERENCED, Verdict.AUTHOR_LIVE, Verdict.UNCOMMITTED]


class SlowView(View):
    """Knows references as of the last catch-up, and standings as of now."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: set[ChunkId] = set()

    async def catch_up(self) -> None:
        self.referenced = set(self.committed)


async def test_a_state_that_moves_while_somebody_reads_the_survey_changes_no_verdict() -> None:
    stage = Stage()
    view = SlowView()
    view.standings[LIVE] = Standing.LIVE
    await stage.put(LIVE, 1, 2)
    collector = Collector(stage.store, view, stage.forget, Grace(GRACE, lambda: NOW, lambda: 0.0))
    verdicts = []
    async for each in collector.survey():
        verdicts.append(each.verdict)
        view.committed.add(ChunkId(LIVE, 2))  # the author commits and is fenced
        view.standings[LIVE] = Standing.FENCED
    assert verdicts == [Verdict.AUTHOR_LIVE, Verdict.AUTHOR_LIVE]


async def test_what_a_restore_would_need_stays_and_the_rest_goes() -> None:
    stage = Stage()
    released, _ = await stage.put(DEAD, 1, 2)
    stage.view.garbage[released] = OLD

    async def behind() -> str:
        return "the archive ends at 5"

    grace = Grace(GRACE, lambda: NOW, lambda: 0.0)
    collector = Collector(stage.store, stage.view, stage.forget, grace, backed=behind)
    report = await collector.run()
    assert [each.key for each in report.deleted] == [chunk_key(ChunkId(DEAD, 2))], (
        "nobody ever referred to it"
    )
    assert report.failed == ["1 chunks that the log let go of: the archive ends at 5"]
    assert stage.forgotten == []
    assert (await collector.run(dry_run=True)).deleted, "a dry run says what its grace is over of"


async def test_what_is_taken_up_again_meanwhile_stays() -> None:
    stage = Stage()
    back, gone = await stage.put(DEAD, 1, 2)
    stage.view.garbage = {back: OLD, gone: OLD}

    async def meanwhile() -> str:
        del stage.view.garbage[back]
        stage.view.referenced = {back}
        return ""

    grace = Grace(GRACE, lambda: NOW, lambda: 0.0)
    await Collector(stage.store, stage.view, stage.forget, grace, backed=meanwhile).run()
    assert await stage.keys() == [chunk_key(back)]
