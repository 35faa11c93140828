"""The archived log is scrubbed as one chain: a piece that is gone, or another, is found by the next one."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from agent.background.scrub.damage import Counts
from coordination.archive import piece as pieces
from coordination.archive.piece import NONE
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import PieceId, parse_piece_key, piece_key
from tests.unit.agent.background.scrub_rig import Cluster, cluster, forged
from tests.unit.agent.background.test_merging import fill, keys
from tests.unit.agent.rig import Agent


@pytest.fixture
async def made(agent: Agent, memory_store: MemoryStore) -> Cluster:
    found = await cluster(agent, memory_store)
    assert len(await _pieces(found)) == 3
    return found


async def _pieces(made: Cluster) -> list[PieceId]:
    named = [parse_piece_key(key) for key in await keys(made.store, "log/")]
    return [each for each in named if each is not None]


async def _scrubbed(made: Cluster, *, repair: bool = True) -> Counts:
    return (await made.run(repair=repair)).scrubber.round.counts


async def test_a_piece_that_is_gone_is_found_and_needed_no_more(made: Cluster) -> None:
    first, middle, last = await _pieces(made)
    for gone in ([middle], [first, middle]):
        await made.store.delete([piece_key(each) for each in gone])
        told = await _scrubbed(made, repair=False)
        assert (told.found, told.repairable) == (1, 1), gone
        counts = await _scrubbed(made)
        assert (counts.found, counts.repaired) == (1, 1), gone
        assert made.agent.services.replica.state.snapshots[0].revision > middle.last
        assert (await _scrubbed(made)).found == 0
        await made.reset()
    assert last in await _pieces(made)


async def test_what_nothing_newer_covers_is_named(made: Cluster) -> None:
    """No snapshot is written: it is told by the name that one piece of the missing entries would have."""
    _, middle, _ = await _pieces(made)
    await made.store.delete([piece_key(middle)])

    async def nothing() -> int:
        return 0

    made.scrub._bucket = replace(made.scrub._bucket, renew=nothing)
    (found,) = (await made.run()).scrubber.round.beyond.values()
    assert (found.key, found.kind, found.reason) == (piece_key(middle), "log", "it is not there")


async def test_the_newest_piece_is_missed_by_the_next_one(made: Cluster) -> None:
    *_, last = await _pieces(made)
    await made.store.delete([piece_key(last)])
    assert (await _scrubbed(made)).found == 0
    await fill(made.agent, 1, first=500)
    await made.archive._look()
    counts = await _scrubbed(made)
    assert (counts.found, counts.repaired) == (1, 1)


async def test_a_whole_piece_with_another_entry_breaks_the_chain(made: Cluster) -> None:
    _, middle, last = await _pieces(made)
    key = piece_key(middle)
    await made.store.put(key, [forged(await made.store.get(key), Random(1))])
    told = await _scrubbed(made, repair=False)
    assert (told.found, told.repairable) == (1, 1)
    assert (await _scrubbed(made)).repaired == 1
    assert made.agent.services.replica.state.snapshots[0].revision >= last.last


async def test_a_gap_that_is_owned_up_to_is_no_damage(made: Cluster) -> None:
    """The log was trimmed before it was archived: the archive tells that itself."""
    _, middle, last = await _pieces(made)
    found = pieces.decode(await made.store.get(piece_key(last)))
    header = replace(found.header, previous=NONE, gap=middle.first - 1)
    *_, parts = pieces.encode_steps(header, found.identity, list(found.entries()))
    await made.store.put(piece_key(last), list(parts))
    await made.store.delete([piece_key(middle)])
    assert (await _scrubbed(made)).found == 0


async def test_what_a_writer_left_beside_the_chain_is_no_damage(made: Cluster) -> None:
    """It had lost the claim, and did not know: a shorter piece, and another behind that."""
    first, middle, last = await _pieces(made)
    before = pieces.decode(await made.store.get(piece_key(first)))
    both = [pieces.decode(await made.store.get(piece_key(each))) for each in (middle, last)]
    entries = [entry for each in both for entry in each.entries()]
    checksum = before.checksum
    for some in (entries[:3], entries[3:-2]):
        beside = PieceId(middle.folder, first.last + 1, some[-1].revision)
        header = pieces.Header(beside.first, beside.last, checksum)
        *_, parts = pieces.encode_steps(header, before.identity, some)
        checksum = pieces.checksum_of(parts)
        await made.store.put(piece_key(beside), list(parts))
        first = beside
    assert len(await _pieces(made)) == 5
    assert (await _scrubbed(made)).found == 0


async def test_a_round_goes_on_in_the_midst_of_the_log(made: Cluster) -> None:
    """What the piece before it was is read again."""
    first, middle, _ = await _pieces(made)
    key = piece_key(first)
    await made.store.put(key, [forged(await made.store.get(key), Random(2))])
    run = made.scrub.run_now(1e12, repair=False)
    run.scrubber.round.part, run.scrubber.round.after = "log", key
    await run.wait()
    assert run.scrubber.round.counts.found == 1
    assert middle in await _pieces(made)
