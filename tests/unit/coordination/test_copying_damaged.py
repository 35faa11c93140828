"""What the source gives damaged is told with its records, copied as it is, and taken again when mended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordination import steps
from coordination.clock import SystemClock
from coordination.copying.damaged import table_of
from coordination.copying.run import Copying, CopyingOptions, Round
from coordination.places import Place
from coordination.restore.source import source_of
from coordination.state import State
from coordination.state.types import Table
from iceberg.contents import problem
from objectstore import copied
from objectstore.adapters.memory import MemoryStore
from objectstore.copying import CopyOptions, Verify, believed
from objectstore.naming import LOG, SNAPSHOTS, chunk_key
from objectstore.store import Retryable
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import LOST, Lost, Sent
from tests.unit.objectstore.test_copying import Within

URL = "s3://source/prefix"


@pytest.fixture
async def source(script: Script) -> Lost:
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    await made.commit(A, Sent(0, ["a", "b"]), Sent(0, ["c"]), Sent(1, ["x"]))
    await made.snapshot()
    await made.archive()
    await made.commit(B, Sent(0, ["d"]))
    await made.archive()
    return made


def copying(
    source: Lost, target: MemoryStore, across: Within | None = None, verify: Verify = Verify.ETAG
) -> Copying:
    options = CopyingOptions(CopyOptions(check=problem, verify=verify), keep_deleted_s=0.0)
    return Copying(source.store, target, URL, SystemClock(), options, across=across)


def first_chunk(source: Lost) -> str:
    return min(chunk_key(each) for each in source.script.state.chunks.serials)


async def damage(store: MemoryStore, key: str, at: int = -1) -> bytes:
    """One bit of an object is another one; what it was."""
    sound = await store.get(key)
    at = len(sound) // 2 if at < 0 else at
    await store.put(key, [sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :]])
    return sound


async def listed(store: MemoryStore, prefix: str) -> list[str]:
    return [meta.key async for page in store.list(prefix) for meta in page]


async def marked(target: MemoryStore) -> tuple[str, ...]:
    mark = await copied.marked(target)
    assert mark is not None
    return mark.damaged


async def test_a_damaged_chunk_is_told_and_taken_again_when_it_is_mended(source: Lost) -> None:
    target, key = MemoryStore(), first_chunk(source)
    sound = await source.store.get(key)
    at = sound.index(b"c", sound.index(b"b"))
    await damage(source.store, key, at)
    made = await copying(source, target).round()
    (found,) = made.damaged
    assert (found.key, bool(found.reason), found.places) == (key, True, (Place("t", 0, 2, 3),))
    assert (made.damaged_count, made.missing_count) == (1, 0)
    (place,) = made.plain()["damaged"][0]["places"]
    assert place == {"topic": "t", "partition": 0, "start": 2, "end": 3}
    assert made.revision == source.script.state.revision, "the rest is copied"
    assert await target.get(key) == await source.store.get(key), "what is left of it is there"
    assert await marked(target) == (key,)
    again = await copying(source, target).round()
    assert (again.damaged, again.counts.objects) == ([found], 0), "told again, and not put again"
    await source.store.put(key, [sound])
    mended = await copying(source, target).round()
    assert (mended.damaged_count, mended.counts.objects) == (0, 1)
    assert (await target.get(key), await marked(target)) == (sound, ())


async def test_a_control_without_the_check_keeps_the_damaged_one(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was before: of the right size, so it is never looked at again."""
    target, key = MemoryStore(), first_chunk(source)
    sound = await damage(source.store, key)
    options = CopyingOptions(CopyOptions(check=believed))
    under_way = Copying(source.store, target, URL, SystemClock(), options)
    assert (await under_way.round()).damaged_count == 0
    await source.store.put(key, [sound])
    await under_way.round()
    assert await target.get(key) != sound


async def test_bytes_that_were_damaged_on_the_way_are_read_again(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, key = MemoryStore(), first_chunk(source)
    theirs, wrong = source.store.get, [True]

    async def get(wanted: str) -> bytes:
        content = await theirs(wanted)
        return b"x" * len(content) if wanted == key and wrong and wrong.pop() else content

    monkeypatch.setattr(source.store, "get", get)
    made = await copying(source, target).round()
    assert (made.damaged_count, wrong) == (0, [])
    assert await target.get(key) == await theirs(key)


async def test_what_is_put_damaged_is_noted_before(source: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies between the two: the next one takes it again all the same."""
    target, key = MemoryStore(), first_chunk(source)
    sound = await damage(source.store, key)
    put = target.put

    async def dies(wanted: str, parts: Sequence[bytes], *rest: object) -> str:
        etag = await put(wanted, parts, *rest)  # type: ignore[arg-type]  # handed on
        if wanted == key:
            raise Retryable("died behind it")
        return etag

    monkeypatch.setattr(target, "put", dies)
    with pytest.raises(Retryable):
        await copying(source, target).round()
    monkeypatch.setattr(target, "put", put)
    assert await target.get(key) != sound
    assert await marked(target) == (key,)
    await source.store.put(key, [sound])
    await copying(source, target).round()
    assert (await target.get(key), await marked(target)) == (sound, ())


async def test_one_that_the_source_loses_then_is_remembered_until_it_is_gone(source: Lost) -> None:
    target, key = MemoryStore(), first_chunk(source)
    await damage(source.store, key)
    await copying(source, target).round()
    await source.store.delete([key])
    made = await copying(source, target).round()
    assert (made.missing_count, await marked(target)) == (0, (key,)), "the copy has what is left of it"


async def test_one_that_nothing_refers_to_is_not_told(source: Lost) -> None:
    target = MemoryStore()
    key = chunk_key(await source.chunk(A, Sent(0, ["never committed"])))
    await damage(source.store, key)
    made = await copying(source, target).round()
    assert (made.damaged_count, await marked(target)) == (0, (key,))


@pytest.mark.parametrize("kind", [SNAPSHOTS, LOG])
async def test_damaged_pieces_and_snapshots_are_told_and_not_put(source: Lost, kind: str) -> None:
    """What leads to the state is whole: the newest snapshot is damaged, or a piece before it."""
    target = MemoryStore()
    await source.commit(A, Sent(1, ["y"]))
    newest = await source.snapshot()
    await source.archive()
    key = newest if kind == SNAPSHOTS else (await listed(source.store, LOG))[0]
    sound = await damage(source.store, key)
    made = await copying(source, target).round()
    assert [each.key for each in made.damaged] == [key]
    assert key not in await listed(target, "")
    assert (await source_of(target, LOST)).certain == made.revision == source.script.state.revision
    assert await marked(target) == ()
    await source.store.put(key, [sound])
    made = await copying(source, target).round()
    assert (made.damaged_count, await target.get(key)) == (0, sound)


async def test_files_of_tables_are_told_with_their_table(source: Lost) -> None:
    target = MemoryStore()
    key = "tables/floe/t/data/00000-1.parquet"
    await source.store.put(key, [b"PAR1 and no end"])
    made = await copying(source, target).round()
    (found,) = made.damaged
    assert (found.key, "not a Parquet file" in found.reason, found.table) == (key, True, "")
    await source.store.put(key, [b"PAR1  and PAR1 "[:-1]])
    made = await copying(source, target).round()
    assert made.damaged_count == 0


def test_a_file_is_of_the_table_in_whose_folder_it_lies() -> None:
    state = State()
    at = f"{URL}/tables/floe/t/metadata/00001-x.metadata.json"
    state.tables["floe", "t"] = Table("floe", "t", at, 0, "t", ())
    assert table_of(state, URL, "tables/floe/t/data/1.parquet") == "floe.t"
    assert table_of(state, URL, "tables/floe/t2/data/1.parquet") == ""


async def test_the_store_copies_it_unseen_unless_all_is_read(source: Lost) -> None:
    target, key = MemoryStore(), first_chunk(source)
    sound = await damage(source.store, key)
    within = Within(source.store, target)
    made = await copying(source, target, within).round()
    assert (made.damaged_count, made.counts.by_store > 0) == (0, True)
    await source.store.put(key, [sound])
    made = await copying(source, target, within).round()
    assert await target.get(key) == sound, "mended since the copy was made, it is taken again"
    await damage(source.store, key)
    other = MemoryStore()
    made = await copying(source, other, Within(source.store, other), Verify.READ).round()
    assert [each.key for each in made.damaged] == [key]
    assert made.counts.by_store > 0


@pytest.mark.parametrize("step", ["copy/damaged", "copy/publish", "copy/mark"])
async def test_it_dies_at_a_step_and_the_next_one_knows(
    source: Lost, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, key = MemoryStore(), first_chunk(source)
    await damage(source.store, key)

    class Died(Exception):
        pass

    def die(reached: str) -> None:
        if reached == step:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(steps, "_hooks", [die])
        with pytest.raises(Died):
            await copying(source, target).round()
    made: Round = await copying(source, target).round()
    assert ([each.key for each in made.damaged], await marked(target)) == ([key], (key,))
