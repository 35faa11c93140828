"""Scrubbing: every damage is found, what is held twice is mended, and what is whole is left alone."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from agent.background.scrub import damage, walks
from agent.background.scrub.damage import ROUND_KEY, Counts, Damage, Round
from agent.background.scrub.job import Scrub
from agent.background.scrub.mending import Mended, Mender
from agent.background.scrub.scrubber import Scrubber
from coordination import steps
from coordination.commands import DeleteTopic
from coordination.places import Place
from deploy.services.s3 import S3Service
from iceberg import contents
from objectstore.adapters.memory import MemoryStore
from objectstore.chunk import HEADER_SIZE
from objectstore.collect import Verdict
from objectstore.fingerprint import decode
from objectstore.naming import CHUNKS, FINGERPRINT_KEY, ChunkId, chunk_key
from objectstore.open import open_store
from objectstore.steady import Steady
from objectstore.store import NotFound
from objectstore.turns import at_once
from tests.contract.test_store import s3_options
from tests.unit.agent.background.scrub_rig import Cluster, chunk_of, cluster, trial, whole
from tests.unit.agent.background.scrub_runs import damages, damages_of, many
from tests.unit.agent.background.test_merging import fill, keys
from tests.unit.agent.kafka.damage_rig import forget, skip
from tests.unit.agent.rig import Agent

SEED, DAMAGES = 19, 40


@pytest.fixture
async def made(agent: Agent, memory_store: MemoryStore) -> Cluster:
    return await cluster(agent, memory_store)


def test_every_damage_is_found_and_what_is_held_twice_is_mended() -> None:
    """`make scrub-damages` takes a thousand."""
    found, missed = many(SEED, DAMAGES)
    assert not missed
    ends = Counter(each.rsplit(" ", 1)[1] for each in found.elements())
    assert ends["mended"] > ends["beyond"] > 0


def test_a_damage_is_repeated_by_its_seed() -> None:
    """Names but for checksums: pyiceberg's Avro has random marks (scrub_runs.py)."""
    names: list[list[str]] = [[], [], []]
    results = [damages(seed, 3, names[at]) for at, seed in enumerate((5, 5, 6))]
    first, again, other = ([re.sub(r"[.][xc][0-9a-f]{16}[.]", ".", name) for name in each] for each in names)
    assert (first, results[0]) == (again, results[1])
    assert first != other


@pytest.mark.services
async def test_damages_at_a_real_s3_server(minio: S3Service, bucket: Callable[[S3Service], str]) -> None:
    store = open_store(f"s3://{bucket(minio)}", **s3_options(minio))
    found, missed = await damages_of(store, SEED, 4)
    await store.close()
    assert (found.total(), missed) == (4, [])


async def test_no_byte_of_any_object_changes_unseen(made: Cluster) -> None:
    """Also where no reader looks: one bit of each. What cluster.json must be beyond this its walk knows."""
    for key, content in made.sound.items():
        for at in range(len(content) if key != FINGERPRINT_KEY else 0):
            changed = bytearray(content)
            changed[at] ^= 1 << at % 8
            assert contents.problem(key, bytes(changed)), (key, at)


async def test_pace_is_kept_within_a_tenth_whatever_single_reads_take() -> None:
    """Virtual time: reads of up to half of their share of it."""
    random, now = Random(5), [100.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    steady, read, began = Steady(8e6, lambda: now[0], sleep), 0, now[0]
    while now[0] - began < 60:
        size = random.randrange(1, 4 << 20)
        await steady.take(size)
        read += size
        now[0] += random.random() * size / 8e6 / 2
    assert 0.9 <= read / (now[0] - began) / 8e6 <= 1.1


async def test_what_a_slow_store_did_not_give_is_not_asked_for_faster_later() -> None:
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    steady = Steady(1000.0, lambda: now[0], sleep)
    await steady.take(1000)
    now[0] = 3600.0
    for _ in range(20):
        await steady.take(1000)
    assert now[0] - 3600.0 >= 13.0, "five seconds are caught up with, and no hour"


class Died(BaseException):
    """The scrubber died here."""


@pytest.mark.parametrize("cached", [True, False])
async def test_a_scrubber_may_die_between_any_two_steps_of_an_exchange(made: Cluster, cached: bool) -> None:
    """Three objects hold one another's bytes; nobody else has those of the table's file."""
    file = next(key for key in made.sound if key.endswith(".parquet"))
    ring = [chunk_of(made), file, next(key for key in made.sound if key.startswith("segments/"))]
    reached = 0
    while True:
        forget(made.agent)
        if cached:
            await made.warm()
        for at, key in enumerate(ring):
            await made.store.put(key, [made.sound[ring[at - 1]]])
        left = [reached]

        def dies(step: str, left: list[int] = left) -> None:
            if step.startswith("scrub/"):
                left[0] -= 1
                if left[0] < 0:
                    raise Died(step)

        steps._hooks.append(dies)
        try:
            run = made.scrub.run_now(1e12, repair=True)
            await run.wait()
        finally:
            steps._hooks.remove(dies)
        died = left[0] < 0
        made.scrub.now = None
        await made.run()
        assert [await made.store.get(key) for key in ring] == [made.sound[key] for key in ring], reached
        assert not await keys(made.store, "scrub/spare/")
        if not died:
            break
        reached += 1
    assert reached >= 6, "spares, objects, and spares dropped"


async def test_without_repair_nothing_is_changed_and_what_could_be_is_told(made: Cluster) -> None:
    chunk = chunk_of(made)
    file = next(key for key in made.sound if key.endswith(".parquet"))
    await made.store.put(chunk, [made.sound[file]])
    await made.store.put(file, [made.sound[chunk]])
    await made.store.delete([FINGERPRINT_KEY])
    run = await made.run(repair=False)
    counts = run.scrubber.round.counts
    assert (counts.found, counts.repairable, counts.repaired) == (3, 3, 0)
    assert await made.store.get(chunk) == made.sound[file]
    assert FINGERPRINT_KEY not in await keys(made.store, "cluster")
    assert (await made.run()).scrubber.round.counts.repaired >= 2
    assert await made.store.get(FINGERPRINT_KEY) == made.sound[FINGERPRINT_KEY]


@pytest.mark.parametrize("restored_from", ["", "the lost one"])
async def test_a_bucket_that_a_restore_gave_to_another_log_is_left_to_it(
    made: Cluster, restored_from: str
) -> None:
    """An agent of the lost log may still be alive: what it knows of the cluster is no more so."""
    bound = replace(
        decode(made.sound[FINGERPRINT_KEY]), log_identity="a new one", restored_from=restored_from
    )
    await made.store.put(FINGERPRINT_KEY, [bound.encode()])
    counts = (await made.run()).scrubber.round.counts
    assert (counts.found, counts.repaired) == (0, 0)
    assert await made.store.get(FINGERPRINT_KEY) == bound.encode()


async def test_one_of_a_version_without_a_checksum_is_sound(made: Cluster) -> None:
    older = decode(made.sound[FINGERPRINT_KEY]).encode(summed=False)
    await made.store.put(FINGERPRINT_KEY, [older])
    assert not (await made.run()).scrubber.round.counts.found


async def test_records_of_a_deleted_topic_are_looked_at_and_mended(made: Cluster) -> None:
    """It can come back: a chunk that is made again has its records too, and what is lost is told."""
    await made.warm()
    state = made.agent.services.replica.state
    key = chunk_of(made)
    refs = made.slices(key)
    deleted = DeleteTopic(topic_id=state.topics["t"].topic_id)
    await made.agent.services.replica.propose(deleted)
    assert list(state.deleted)
    content = bytearray(made.sound[key])
    content[HEADER_SIZE + 70] ^= 1
    await made.store.put(key, [bytes(content)])
    counts = (await made.run()).scrubber.round.counts
    assert (counts.found, counts.repaired, counts.harmless) == (1, 1, 0)
    now = await made.store.get(key)
    assert refs
    assert all(whole(now, ref) for ref in refs)
    forget(made.agent)
    await made.store.delete([key])
    (lost,) = (await made.run()).scrubber.round.beyond.values()
    assert (lost.key, lost.places[0].topic) == (key, "t")


async def test_what_is_written_and_merged_meanwhile_is_neither_orphan_nor_lost(made: Cluster) -> None:
    """Chunks of the newest moment, of an author whom the state may not know yet as of the listing."""
    writing = asyncio.ensure_future(_write(made))
    for _ in range(5):
        counts = (await made.run()).scrubber.round.counts
        assert (counts.found, counts.strays) == (0, 0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def _write(made: Cluster) -> None:
    for number in range(1_000):
        await fill(made.agent, 1, first=1_000 + number)


async def test_damage_that_was_passed_over_does_not_ring(made: Cluster) -> None:
    forget(made.agent)
    chunk = chunk_of(made)
    await made.store.delete([chunk])
    (found,) = (await made.run()).scrubber.round.beyond.values()
    (place,) = found.places
    assert (found.key, place.topic, place.partition) == (chunk, "t", 0)
    await skip(made.agent, (place.start, place.end))
    forget(made.agent)
    counts = (await made.run()).scrubber.round
    assert (counts.beyond, counts.counts.harmless) == ({}, 1)


async def test_a_round_goes_on_where_it_was_and_begins_again_in_time(made: Cluster) -> None:
    """Whoever comes next reads what is left, and what is beyond repair is told as long as it is so."""
    scrub = made.scrub
    file = next(key for key in made.sound if key.endswith(".parquet"))
    await made.store.delete([file])
    looked: list[str] = []
    usual = Scrubber.look

    async def look(self: Scrubber, need: Any) -> bytes | None:
        looked.append(need.key)
        if len(looked) == 10:
            await self.remember(always=True)
            raise Died
        return await usual(self, need)

    try:
        Scrubber.look = look  # type: ignore[method-assign]  # watched
        with pytest.raises(Died):
            await scrub._look()
        first = list(looked)
        heir = Scrub(scrub._bucket, scrub.options)
        await heir._look()
    finally:
        Scrubber.look = usual  # type: ignore[method-assign]  # watched
    assert set(first[:8]) & set(looked[10:]) == set(), "not again what was done"
    assert set(looked) == set(made.sound)
    (damaged,) = heir.beyond
    assert (damaged.key, damaged.table) == (file, "floe.t")
    status = heir.status()
    assert (status["scrubs"], status["part"], status["found"]) == (True, "tables", 1)
    looked.clear()
    await heir._look()
    assert not looked, "the next round is in an hour"
    await made.store.put(file, [made.sound[file]])
    heir._again_s -= 601
    await heir._look()
    assert heir.beyond == [], "it came back"


@pytest.mark.parametrize(("ahead_ms", "begun"), [(0, 1), (365 * 86_400_000, 2)])
async def test_a_clock_that_was_ahead_does_not_put_off_the_next_round(
    made: Cluster, ahead_ms: int, begun: int
) -> None:
    """Found by the simulation (seed 450 with fill-log-too-late+scrub): nobody scrubbed for a year."""
    await made.scrub._look()
    at = await damage.stored(made.store)
    assert at is not None
    at.began_ms += ahead_ms
    at.ended_ms += ahead_ms
    await made.store.put(ROUND_KEY, [damage.encode(at)])
    heir = Scrub(made.scrub._bucket, made.scrub.options)
    await heir._look()
    assert heir.status()["round"] == begun
    assert heir.status()["ended_ms"]


async def test_a_round_is_kept_as_it_was(made: Cluster) -> None:
    place = Place("t", 1, 2, 3)
    kept = Round(3, 5, 0, "log", "log/x", Counts(1, 2), {"k": Damage("k", "chunk", "why", (place,))}, 4)
    assert damage.decode(damage.encode(kept)) == kept
    for broken in (b"", b"[]", b"{}", damage.encode(kept).replace(b'"log"', b'"moon"')):
        with pytest.raises(ValueError, match=r"."):
            damage.decode(broken)
    await made.store.put(ROUND_KEY, [b"broken"])
    assert await damage.stored(made.store) is None


# Controls: what the checks above would say of a scrub that does wrong.


async def _trials(made: Cluster, count: int) -> None:
    random = Random(SEED)
    for _ in range(count):
        await trial(made, random)


async def test_control_a_repair_that_writes_wrong_bytes_is_caught(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def mend(self: Mender, need: Any, content: bytes | None) -> Mended | None:
        wrong = bytearray(made.sound[need.key])
        wrong[len(wrong) // 2] ^= 1
        await made.store.put(need.key, [bytes(wrong)])
        return Mended("wrongly", bytes(wrong))

    monkeypatch.setattr(Mender, "mend", mend)
    with pytest.raises(AssertionError):
        await _trials(made, 5)


async def test_control_a_scrub_that_overwrites_without_setting_aside_is_caught(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.background.scrub.spares import Spares

    async def forgets(self: Spares, owner: str, content: bytes) -> None:
        return

    monkeypatch.setattr(Spares, "_set_aside", forgets)
    with pytest.raises(AssertionError):
        await _trials(made, 40)


async def _on_its_way(made: Cluster) -> Counts:
    """A scrub beside a chunk that is stored and not yet committed, of an agent that lives."""
    own = made.agent.services.replica.incarnation
    await made.store.put(f"{CHUNKS}{own:016x}/{1 << 40:016x}.chunk", [b"its entry comes"])
    return (await made.run()).scrubber.round.counts


async def test_a_chunk_whose_entry_is_on_its_way_is_no_stray(made: Cluster) -> None:
    counts = await _on_its_way(made)
    assert (counts.strays, counts.found) == (0, 0)
    unknown = f"{CHUNKS}{1 << 40:016x}/{1:016x}.chunk"
    await made.store.put(unknown, [b"of nobody that the log knows"])
    assert (await made.run()).scrubber.round.counts.strays == 1
    assert unknown in await keys(made.store, CHUNKS), "it is told, and not touched"


async def test_control_a_scrub_that_takes_the_newest_for_strays_is_caught(
    made: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "STRAYS", (*walks.STRAYS, Verdict.AUTHOR_LIVE))
    assert (await _on_its_way(made)).strays == 1, "what the test above would not have"


async def test_what_is_no_object_of_ours_is_nobodys() -> None:
    owners = contents.Owners(MemoryStore(), "tables")
    for odd in (b"", b"FLOECHNK", b"FLOESEGM" + bytes(100), b"FLOEMANI", b"FLOESNAP", b"FLOELOGP", b"PAR1"):
        assert await owners.of(odd) == ""
    with pytest.raises(NotFound):
        await MemoryStore().get("x")


@pytest.mark.parametrize("authors", [1, 7, 3_000])
def test_the_chunks_of_a_large_state_hold_the_event_loop_for_a_few_at_a_time(authors: int) -> None:
    random = Random(SEED)
    names = [random.getrandbits(64) for _ in range(authors)]
    chunks = [ChunkId(names[number % authors], number) for number in range(10 * walks.TURN)]
    known = sorted(map(chunk_key, chunks))
    for after in ("", known[1_000]):
        assert at_once(walks.behind(chunks, after)) == [name for name in known if name > after]
        assert sum(1 for _ in walks.behind(chunks, after)) >= 2 * len(chunks) // walks.TURN
