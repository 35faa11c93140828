"""The source was restored into another log: the copy is the old log's until it leads to a state of the new.

Wherever the round that changes it dies, what a promotion begins with is no less than before.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from coordination.restore.source import source_of
from objectstore import copied, fingerprint
from objectstore.adapters.memory import MemoryStore
from objectstore.copied import COPY_KEY, NotOurCopy
from objectstore.fingerprint import Fingerprint
from objectstore.naming import CHUNKS, FINGERPRINT_KEY, SNAPSHOTS, chunk_key
from objectstore.store import Retryable
from tests.unit.coordination.kit import A, B, Script
from tests.unit.coordination.lost import CLUSTER_ID, LOST, Lost, Sent
from tests.unit.coordination.test_copying import NOTHING_KEPT, Died, Mortal, copying

NEW = "etcd:new"


@pytest.fixture
async def source(script: Script) -> Lost:
    """Behind its snapshot it has a topic and records that pieces of its log alone tell of."""
    made = Lost(MemoryStore(), script)
    script.topic(A, "t", partitions=2)
    await made.bind()
    await made.commit(A, Sent(0, ["a", "b"]))
    await made.snapshot()
    await made.archive()
    script.topic(A, "later")
    await made.commit(B, Sent(0, ["c"]), Sent(2, ["x"]))
    await made.archive()
    return made


async def restored(source: Lost) -> None:
    """Into NEW, in place; a record came since."""
    _, etag = await fingerprint.stored(source.store)
    await fingerprint.replace(source.store, Fingerprint("main", CLUSTER_ID, NEW), etag)
    await source.commit(A, Sent(0, ["d"]))
    await source.snapshot()


async def promoted(target: MemoryStore) -> tuple[int, list[str]]:
    """What a promotion begins with: where a partition ends, and the topics; every chunk is there."""
    found, _ = await fingerprint.stored(target)
    state = (await source_of(target, found.restored_from)).state
    for chunk in state.chunks.serials:
        await target.head(chunk_key(chunk))
    return state.topics["t"].partitions[0].high_watermark, sorted(state.topics)


OLD_STATE, NEW_STATE = (3, ["later", "t"]), (4, ["later", "t"])


@pytest.mark.parametrize("behind", [False, True])
async def test_it_is_killed_at_every_object_of_the_round_that_goes_over_to_the_new_log(
    source: Lost, behind: bool
) -> None:
    before = MemoryStore()
    await copying(source, before).round()
    await restored(source)
    states, logs = set[int](), set[tuple[str, str]]()
    for number in itertools.count():
        target = Mortal()
        target._objects = dict(before._objects)
        target.left, target.behind = number, behind
        try:
            await copying(source, target, NOTHING_KEPT).round()
        except Died:
            target.left = None
        else:
            break
        found = await promoted(target)
        assert found in (OLD_STATE, NEW_STATE), f"at object {number}"
        states.add(found[0])
        mark, (bound, _) = await copied.marked(target), await fingerprint.stored(target)
        assert mark is not None
        logs.add((bound.restored_from, mark.log))
        made = await copying(source, target, NOTHING_KEPT).round()
        assert (made.log, await promoted(target)) == (NEW, NEW_STATE), f"at object {number}"
        mark, (bound, _) = await copied.marked(target), await fingerprint.stored(target)
        assert mark is not None
        assert (mark.log, mark.revision, bound) == (NEW, made.revision, mark.fingerprint)
    assert states == {3, 4}
    assert (NEW, LOST) in logs, "it died between cluster.json and copy.json, too"


async def test_what_an_older_version_left_between_its_two_objects_is_gone_on_with(source: Lost) -> None:
    """It wrote copy.json first, and refused the copy for good when it died then."""
    target = MemoryStore()
    await copying(source, target).round()
    await restored(source)
    mark = await copied.marked(target)
    assert mark is not None
    await target.put(COPY_KEY, [replace(mark, log=NEW, revision=0).encode()])
    assert await promoted(target) == OLD_STATE
    made = await copying(source, target).round()
    assert (made.log, await promoted(target)) == (NEW, NEW_STATE)


async def test_while_the_source_is_away_the_copy_stays_what_it_was(
    source: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryStore()
    await copying(source, target).round()
    mark, bound = await copied.marked(target), await fingerprint.stored(target)
    await restored(source)
    listing = source.store.list

    def fails(prefix: str, start_after: str = "") -> object:
        if prefix == CHUNKS:
            raise Retryable("the source is away")
        return listing(prefix, start_after)

    monkeypatch.setattr(source.store, "list", fails)
    with pytest.raises(Retryable):
        await copying(source, target).round()
    assert (await copied.marked(target), await fingerprint.stored(target)) == (mark, bound)
    assert await promoted(target) == OLD_STATE


@pytest.mark.parametrize("prefix", [SNAPSHOTS, FINGERPRINT_KEY])
async def test_who_promotes_in_the_midst_of_it_is_left_alone(
    source: Lost, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a snapshot of the new log is put, whose revision may be above a promotion's; or at the end."""
    target = MemoryStore()
    await copying(source, target).round()
    await restored(source)
    promoted_to = Fingerprint("main", CLUSTER_ID, "etcd:promoted", restored_from=LOST)
    ours, theirs = copied.still_ours, fingerprint.replace
    looks = itertools.count()

    async def looking(*given: object) -> str:
        if prefix == SNAPSHOTS and next(looks) == 1:
            await target.put(FINGERPRINT_KEY, [promoted_to.encode()])
        return await ours(*given)  # type: ignore[arg-type]  # handed on

    async def replacing(*given: object) -> str:
        await target.put(FINGERPRINT_KEY, [promoted_to.encode()])
        return await theirs(*given)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(copied, "still_ours", looking)
    if prefix == FINGERPRINT_KEY:
        monkeypatch.setattr(fingerprint, "replace", replacing)
    with pytest.raises(NotOurCopy, match="promoted"):
        await copying(source, target).round()
    assert (await fingerprint.stored(target))[0] == promoted_to
    mark = await copied.marked(target)
    assert mark is not None
    assert mark.log == LOST
    assert (await source_of(target, LOST)).certain < source.script.state.revision or prefix != SNAPSHOTS
