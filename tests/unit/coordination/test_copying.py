"""A cluster copied bucket to bucket: whatever stops it, the copy can be promoted to a point of the past."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from coordination import steps
from coordination.clock import SystemClock
from coordination.copying import frontier
from coordination.copying.frontier import Frontier
from coordination.copying.run import LOOKS_MAX, CannotCopy, Copying, CopyingOptions, Round, follow
from coordination.restore.source import CannotRestore, ChangedMeanwhile, source_of
from coordination.state import State
from objectstore import copied, fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.copied import COPY_KEY, NotOurCopy
from objectstore.copying import Copier, CopyOptions, DamagedCopy, Vanished
from objectstore.fingerprint import Fingerprint, ForeignBucket
from objectstore.naming import LOG, chunk_key, parse_chunk_key
from objectstore.store import PLAIN, Buffer, NotFound, ObjectMeta, PutMode, Retryable
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import CLUSTER_ID, LOST, Lost, Sent

URL = "s3://source/prefix"
NOTHING_KEPT = CopyingOptions(keep_deleted_s=0.0)


class Died(Exception):
    """The process ends here."""


class Mortal(MemoryStore):
    """A destination that dies with its nth put, before it or behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.behind = False

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        if self.left is not None and not self.behind:
            self._count()
        etag = await super().put(key, parts, mode)
        if self.left is not None and self.behind:
            self._count()
        return etag

    def _count(self) -> None:
        assert self.left is not None
        self.left -= 1
        if self.left < 0:
            raise Died


@pytest.fixture
async def source(script: Script) -> Lost:
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    return made


def copying(source: Lost, target: MemoryStore, options: CopyingOptions | None = None) -> Copying:
    return Copying(source.store, target, URL, SystemClock(), options)


async def ends(store: MemoryStore) -> tuple[list[int], State]:
    """What a promotion begins with: ends of the topic's partitions; every chunk of the state is there."""
    state = (await source_of(store, LOST)).state
    for chunk in state.chunks.serials:
        await store.head(chunk_key(chunk))
    return [each.high_watermark for each in state.topics["t"].partitions], state


async def fill(source: Lost) -> None:
    await source.commit(A, Sent(0, ["a", "b"], (5, 0, 0)))
    await source.snapshot()
    await source.archive()
    await source.commit(B, Sent(0, ["c"]), Sent(1, ["x"]))
    await source.store.put("tables/floe/t/metadata/1.json", [b"{}"])
    await source.archive()


async def contents(store: MemoryStore, *without: str) -> dict[str, bytes]:
    return {
        meta.key: await store.get(meta.key)
        async for page in store.list("")
        for meta in page
        if meta.key not in without
    }


async def test_a_round_brings_everything_and_the_next_one_what_is_new(source: Lost) -> None:
    target = MemoryStore()
    await fill(source)
    under_way = copying(source, target)
    first = await under_way.round()
    assert (first.looks, first.missing_count, first.revision) == (1, 0, source.script.state.revision)
    assert [tuple(each) for each in first.partitions] == [("t", 0, 0, 3), ("t", 1, 0, 1)]
    marks = (COPY_KEY, "cluster.json")
    assert await contents(target, *marks) == await contents(source.store, *marks)
    await source.commit(A, Sent(0, ["d"], (5, 0, 2)))
    await source.archive()
    second = await under_way.round()
    assert (second.counts.objects, second.revision > first.revision) == (2, True)
    found, state = await ends(target)
    assert found == [4, 1]
    assert state.topics["t"].partitions[0].producers[5].last_sequence == 2
    mark = await copied.marked(target)
    assert mark is not None
    assert (mark.revision, mark.rounds, mark.source) == (second.revision, 2, URL)


async def test_no_agent_starts_on_a_copy(source: Lost) -> None:
    target = MemoryStore()
    await fill(source)
    await copying(source, target).round()
    with pytest.raises(ForeignBucket, match="floe restore cluster"):
        await fingerprint.claim(target, Fingerprint("main", CLUSTER_ID, LOST))


@pytest.mark.parametrize("behind", [False, True])
async def test_it_is_killed_at_every_object_and_goes_on(source: Lost, behind: bool) -> None:
    await fill(source)
    for number in itertools.count():
        target = Mortal()
        target.left, target.behind = number, behind
        try:
            await copying(source, target).round()
        except Died:
            target.left = None
        else:
            break
        try:
            found, _ = await ends(target)
        except (CannotRestore, KeyError):
            found = []
        assert found in ([], [3, 1], [2, 0]), f"at object {number}"
        again = await copying(source, target).round()
        assert (again.missing_count, (await ends(target))[0]) == (0, [3, 1]), f"at object {number}"
    assert number > 7


@pytest.mark.parametrize("step", steps.COPY_STEPS)
async def test_it_is_killed_before_each_step_while_the_source_goes_on(
    source: Lost, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryStore()
    await fill(source)
    await copying(source, target, NOTHING_KEPT).round()
    gone = chunk_key(await source.chunk(A, Sent(0, ["never committed"])))
    await copying(source, target, NOTHING_KEPT).round()
    await source.store.delete([gone])
    await source.commit(B, Sent(0, ["d"]))
    await source.archive()

    def die(reached: str) -> None:
        if reached == step:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(steps, "_hooks", [die])
        with pytest.raises(Died):
            await copying(source, target, NOTHING_KEPT).round()
    assert (await ends(target))[0] in ([3, 1], [4, 1])
    await copying(source, target, NOTHING_KEPT).round()
    assert (await ends(target))[0] == [4, 1]
    with pytest.raises(NotFound):
        await target.head(gone)


async def test_what_was_deleted_stays_for_the_time_given_and_what_the_state_names_for_good(
    source: Lost,
) -> None:
    target = MemoryStore()
    await fill(source)
    kept, none = copying(source, target), copying(source, target, NOTHING_KEPT)
    stray = chunk_key(await source.chunk(B, Sent(0, ["never committed"])))
    await kept.round()
    named = next(iter(source.script.state.chunks.serials))
    await source.store.delete([stray, chunk_key(named)])
    made = await kept.round()
    assert (made.counts.deleted, made.missing_count) == (0, 0)
    await target.head(stray)
    made = await none.round()
    assert made.counts.deleted == 1
    await target.head(chunk_key(named))  # the copy is the only one that has it


async def test_what_the_source_lacks_is_told_and_the_rest_copied(source: Lost) -> None:
    target = MemoryStore()
    await fill(source)
    named = chunk_key(next(iter(source.script.state.chunks.serials)))
    await source.store.delete([named])
    made = await copying(source, target).round()
    assert (made.missing, made.missing_count, made.looks) == ([named], 1, LOOKS_MAX)
    assert made.revision == source.script.state.revision


async def test_nothing_is_published_without_what_it_refers_to(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source collects a chunk between the look and its copy: the next look knows what replaced it."""
    target = MemoryStore()
    await fill(source)
    ours = source.store.get
    first = chunk_key(next(iter(source.script.state.chunks.serials)))
    tries = itertools.count()

    async def get(key: str) -> bytes:
        if key == first and next(tries) == 0:
            raise NotFound(key)
        return await ours(key)

    monkeypatch.setattr(source.store, "get", get)
    made = await copying(source, target).round()
    assert (made.looks, made.missing_count) == (2, 0)
    await ends(target)


async def test_a_destination_that_is_something_else_is_refused(source: Lost) -> None:
    await fill(source)
    other = MemoryStore()
    await other.put("mine", [b"x"])
    with pytest.raises(NotOurCopy, match="empty prefix"):
        await copying(source, other).round()
    assert list(await contents(other)) == ["mine"]
    target = MemoryStore()
    await copying(source, target).round()
    _, etag = await fingerprint.stored(source.store)
    await fingerprint.replace(source.store, Fingerprint("another", bytes(16), LOST), etag)
    with pytest.raises(NotOurCopy, match="cluster 'another'"):
        await copying(source, target).round()


async def test_a_promoted_destination_is_left_alone(source: Lost) -> None:
    target = MemoryStore()
    await fill(source)
    await copying(source, target).round()
    _, etag = await fingerprint.stored(target)
    await fingerprint.replace(target, Fingerprint("main", CLUSTER_ID, "etcd:new"), etag)
    before = await contents(target)
    await source.commit(A, Sent(0, ["d"]))
    await source.archive()
    with pytest.raises(NotOurCopy, match="promoted"):
        await copying(source, target).round()
    assert await contents(target) == before


async def test_a_source_that_is_no_cluster_is_refused(source: Lost) -> None:
    await fill(source)
    target = MemoryStore()
    await copying(source, target).round()
    with pytest.raises(CannotCopy, match="not promoted"):
        await Copying(target, MemoryStore(), URL, SystemClock()).round()
    before = await contents(target)
    await source.store.delete(list(await contents(source.store)))
    with pytest.raises(CannotCopy, match="promote it"):
        await copying(source, target, NOTHING_KEPT).round()
    assert await contents(target) == before


async def test_the_source_was_restored_into_another_log(source: Lost) -> None:
    target = MemoryStore()
    await fill(source)
    under_way = copying(source, target)
    await under_way.round()
    found, etag = await fingerprint.stored(source.store)
    await fingerprint.replace(source.store, Fingerprint("main", found.cluster_id, "etcd:new"), etag)
    await source.snapshot()
    made = await under_way.round()
    assert (made.log, made.revision) == ("etcd:new", source.script.state.revision)
    mark, (bound, _) = await copied.marked(target), await fingerprint.stored(target)
    assert mark is not None
    assert (mark.log, bound) == ("etcd:new", mark.fingerprint)


# Objects.


async def metas(store: MemoryStore) -> AsyncIterator[ObjectMeta]:
    async for page in store.list(""):
        for meta in page:
            yield meta


async def test_objects_under_way_are_bounded_in_number_and_bytes() -> None:
    source, target = MemoryStore(), Slow()
    for number in range(20):
        await source.put(f"k/{number:02}", [bytes(100)])
    await source.put("k/large", [bytes(1000)])
    copier = Copier(source, target, CopyOptions(objects_max=4, bytes_max=350))
    async for meta in metas(source):
        await copier.begin(meta)
    await copier.end()
    assert (copier.counts.objects, target.most) == (21, 3)
    assert await contents(target) == await contents(source)


class Slow(MemoryStore):
    """Counts puts that are under way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.now == 1 or sum(map(len, parts)) == 100, "a larger one is alone"
        for _ in range(5):
            etag = await super().put(key, parts, mode)
        self.now -= 1
        return etag


async def test_bytes_that_come_out_otherwise_are_written_again_and_then_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = MemoryStore(), MemoryStore()
    await target.put("other", [b""])  # etags differ
    await source.put("k", [b"right"])
    theirs, wrong = target.get, iter([True, False])

    async def get(key: str) -> bytes:
        return b"wrong" if next(wrong, True) else await theirs(key)

    monkeypatch.setattr(target, "get", get)
    copier = Copier(source, target)
    await copier.one(await source.head("k"))
    assert copier.counts.read_back == 2
    with pytest.raises(DamagedCopy):
        await copier.one(await source.head("k"))


async def test_what_vanished_is_told_and_a_failure_is_raised() -> None:
    source, target = MemoryStore(), Mortal()
    copier = Copier(source, target)
    await copier.begin(ObjectMeta("gone", 1, "", 0))
    with pytest.raises(Vanished) as told:
        await copier.end()
    assert told.value.keys == ["gone"]
    await source.put("k", [b"x"])
    target.left = 0
    await copier.begin(await source.head("k"))
    with pytest.raises(Died):
        await copier.end()
    await copier.abandon()


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = copied.CopyMark(URL, "main", CLUSTER_ID, LOST, 7, 9, 2, 1)
    assert copied.decode(mark.encode()) == mark
    with pytest.raises(NotOurCopy, match="cannot be read"):
        copied.decode(b"[]")
    with pytest.raises(NotOurCopy, match="format 2"):
        copied.decode(mark.encode().replace(b'"format": 1', b'"format": 2'))
    assert parse_chunk_key(COPY_KEY) is None


async def test_a_copy_goes_as_far_as_it_says_when_a_piece_comes_between_two_listings(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of the simulation: the state had a piece of the log that the listing before it had not."""
    target = MemoryStore()
    await fill(source)
    ours = frontier.source_of

    async def later(*given: Any) -> Any:
        await source.commit(B, Sent(1, ["y"]))
        await source.archive()
        monkeypatch.setattr(frontier, "source_of", ours)
        return await ours(*given)

    monkeypatch.setattr(frontier, "source_of", later)
    made = await copying(source, target).round()
    assert made.revision == source.script.state.revision
    assert (await source_of(target, LOST)).certain == made.revision


async def test_a_copy_goes_as_far_as_it_says_when_a_piece_goes_before_it_is_copied(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryStore()
    await fill(source)
    ours = source.store.get
    (*_, last) = sorted([key async for page in source.store.list(LOG) for key in (each.key for each in page)])
    reads = itertools.count()

    async def get(key: str) -> bytes:
        if key == last and next(reads) == 2:  # the first two are the look's
            await source.snapshot()
            await source.store.delete([last])
        return await ours(key)

    monkeypatch.setattr(source.store, "get", get)
    made = await copying(source, target).round()
    assert (await source_of(target, LOST)).certain == made.revision


async def test_whoever_follows_asks_again_when_the_log_changes_while_it_is_read(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And when the store does not answer; what cannot heal by itself ends it."""
    target = MemoryStore()
    await fill(source)
    ours, troubles = frontier.source_of, [ChangedMeanwhile("a piece is gone"), Retryable("no answer")]

    async def changing(*given: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return await ours(*given)

    monkeypatch.setattr(frontier, "source_of", changing)
    made, failed = list[Round](), list[str]()

    def copied_to(end: Round) -> None:
        made.append(end)
        monkeypatch.setattr(frontier, "source_of", _cannot)

    with pytest.raises(CannotRestore, match="newer version"):
        await follow(
            _Anew(source, target), 0.001, SystemClock(), copied_to, lambda each: failed.append(str(each))
        )
    assert failed == ["no answer", "a piece is gone"]
    assert [each.revision for each in made] == [source.script.state.revision]


async def _cannot(*given: Any) -> Any:
    raise CannotRestore("it is of a newer version")


class _Anew(Copying):
    """Looks at the whole source in each round."""

    def __init__(self, source: Lost, target: MemoryStore) -> None:
        super().__init__(source.store, target, URL, SystemClock())

    async def round(self) -> Round:
        self._frontier = Frontier(self._source, self._frontier.log)
        return await super().round()
