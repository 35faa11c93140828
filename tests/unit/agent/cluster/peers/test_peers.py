"""Reads inside a zone: once from the bucket, from the author's memory, never wrong whatever a peer does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from agent.cluster.peers import client
from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.near import SILENCE_S, Patience, _Turn
from agent.cluster.peers.server import PeerServer
from agent.cluster.peers.standing import PEERS_MAX, REST_S, REST_S_MAX, Standings
from agent.cluster.peers.wire import (
    REQUEST_BYTES_MAX,
    PeerError,
    Status,
    check_answer,
    decode_request,
    encode_answer,
    encode_request,
    secret_of,
)
from agent.telemetry.episodes import AGAIN_S
from coordination.clock import SystemClock
from coordination.commands import FenceIncarnation, LeaveMetadata
from objectstore.faulty import Fault
from objectstore.naming import ChunkId, SliceRef, chunk_key
from objectstore.reader import ChunkMissing
from objectstore.store import StoreError
from tests.unit.agent.cluster.peers.zone import CALM, SECRET, Member, Zones, check
from tests.unit.coordination.conftest import until


@pytest.fixture
async def zones() -> AsyncIterator[Zones]:
    made = Zones()
    yield made
    await made.stop()


async def read_all(members: list[Member], slices: list[SliceRef]) -> None:
    """Every member reads every slice, all at once."""

    async def read(member: Member, wanted: SliceRef) -> None:
        check(await member.reader.read(wanted), wanted)

    async with asyncio.timeout(20):
        await asyncio.gather(*(read(member, wanted) for member in members for wanted in slices))


def damaged(stored: bytes, where: SliceRef) -> bytes:
    """The chunk with one bit of a record turned."""
    data = bytearray(stored)
    data[where.position + 70] ^= 1
    return bytes(data)


def partner(members: list[Member], owner: Member) -> Member:
    return next(member for member in members if member is not owner)


def owner_of(members: list[Member], chunk: ChunkId) -> Member:
    found = members[0].owners.owner(chunk)
    assert found is not None
    return next(member for member in members if member.incarnation == found.incarnation)


async def test_a_chunk_is_read_from_the_bucket_once_per_zone_that_did_not_write_it(zones: Zones) -> None:
    members = [await zones.add(zone, patience=CALM) for zone in ("a", "a", "b", "b", "c", "c")]
    written = [await zones.chunk(members[number % 6]) for number in range(12)]
    for slices in written:
        await read_all(members, slices)
    gets = {zone: sum(member.gets for member in members if member.zone == zone) for zone in "abc"}
    assert gets == {"a": 8, "b": 8, "c": 8}, "of 12 chunks each zone wrote 4"


async def test_the_author_in_the_zone_answers_from_memory(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author)
    await read_all([other], slices)
    assert (author.gets, other.gets) == (0, 0)
    assert other.near.stats.hits == len(slices)


async def test_an_author_that_has_not_heard_of_its_own_flush_catches_up(zones: Zones) -> None:
    """Another agent may apply an entry first: the author has the bytes, there is no need for the bucket."""
    author, other = await zones.add("a"), await zones.add("a")
    author.hears = False
    slices = await zones.chunk(author)
    check(await other.reader.read(slices[0]), slices[0])
    assert (author.caught_up, author.gets, other.gets) == (1, 0, 0)


async def test_an_own_chunk_that_was_seen_is_read_without_the_log_however_old_it_is() -> None:
    """With etcd away each Fetch of older records waited five seconds for a read barrier."""
    zones = Zones(recent_max=1)
    try:
        author, other = await zones.add("a"), await zones.add("a")
        written = [await zones.chunk(author, keep=False) for _ in range(3)]
        await read_all([author, other], written[0])
        assert author.caught_up == 0
    finally:
        await zones.stop()


async def test_two_that_ask_each_other_for_all_they_can_answer() -> None:
    """Warming up, two agents asked each other for more than a reader reads at once, and had nothing left to
    answer with: consumers stood still until both gave up. (Seen in the first of several rolling restarts.)"""
    zones = Zones(recent_max=1, beat_s=0.05)
    try:
        one, two = [await zones.add("a", patience=CALM) for _ in range(2)]
        ones = [(await zones.chunk(one, keep=False))[0] for _ in range(20)]
        twos = [(await zones.chunk(two, keep=False))[0] for _ in range(20)]
        await asyncio.gather(read_all([one], twos), read_all([two], ones))
        assert one.near.stats.failed == two.near.stats.failed == 0
        assert one.near.stats.hits == two.near.stats.hits == 20
    finally:
        await zones.stop()


async def test_an_author_that_leaves_is_asked_while_it_lives(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author)
    check(await other.reader.read(slices[0]), slices[0])
    zones.script.one(author.incarnation, LeaveMetadata())
    check(await other.reader.read(slices[1]), slices[1])
    assert (author.gets, other.gets) == (0, 0)
    zones.script.one(other.incarnation, FenceIncarnation(incarnation=author.incarnation))
    check(await other.reader.read(slices[2]), slices[2])
    assert other.gets == 1


async def test_an_owner_that_is_behind_reads_the_chunk_once_all_the_same(zones: Zones) -> None:
    author, first, second = await zones.add("a"), await zones.add("b"), await zones.add("b")
    (first if await _owns_next(zones, author, [first, second]) is first else second).hears = False
    slices = await zones.chunk(author)
    owner = owner_of([first, second], slices[0].chunk)
    assert not owner.hears
    await read_all([partner([first, second], owner)], slices)
    assert (first.gets + second.gets, owner.gets) == (1, 1)


async def _owns_next(zones: Zones, author: Member, members: list[Member]) -> Member:
    number = zones.script.chunks.get(author.incarnation, 0) + 1
    return owner_of(members, ChunkId(author.incarnation, number))


async def test_old_chunks_are_read_by_range(zones: Zones) -> None:
    """Only what many read now is worth reading as a whole."""
    author, first, second = await zones.add("a"), await zones.add("b"), await zones.add("b")
    slices = await zones.chunk(author)
    for member in (first, second):
        member.owners._recent.clear()
    await read_all([first, second], slices[:1])
    owner = owner_of([first, second], slices[0].chunk)
    assert (owner.gets, partner([first, second], owner).gets) == (1, 0)
    assert owner.store.calls.get("get", 0) == 0


async def test_a_paused_peer_is_left_alone_once_it_was_silent_for_a_while(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    written = [await zones.chunk(author) for _ in range(3)]
    author.serving.clear()
    check(await other.reader.read(written[0][0]), written[0][0])
    assert (other.near.stats.asked, other.near.stats.hedged, other.gets) == (1, 1, 1)
    other.near._heard[author.address] -= SILENCE_S
    check(await other.reader.read(written[1][0]), written[1][0])
    assert (other.near.stats.asked, other.near.stats.hedged, other.gets) == (2, 2, 2)
    await read_all([other], written[2])
    assert (other.near.stats.asked, other.gets) == (2, 3), "read without it, as a whole all the same"


async def test_a_peer_that_was_paused_is_asked_again_as_soon_as_it_lives(zones: Zones) -> None:
    """Not only when its rest is over: until then every chunk would be read twice for the zone."""
    author, other = await zones.add("a"), await zones.add("a")
    written = [await zones.chunk(author) for _ in range(2)]
    author.serving.clear()
    other.near._heard[author.address] = asyncio.get_running_loop().time() - 2 * SILENCE_S
    check(await other.reader.read(written[0][0]), written[0][0])
    (greeting,) = other.near._greeting.values()
    assert other.near.standings.resting(author.address)
    author.serving.set()
    async with asyncio.timeout(60):
        await greeting
    check(await other.reader.read(written[1][0]), written[1][0])
    assert (other.near.stats.hits, other.gets) == (1, 1)


async def test_a_peer_that_shakes_hands_and_is_silent_again_rests_for_longer(
    zones: Zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    address, known = author.address, other.near.standings

    async def greet(_address: str) -> None:
        return None

    monkeypatch.setattr(other.near._client, "greet", greet)
    author.serving.clear()
    rests: list[float] = []
    for _ in range(3):
        other.near._heard[address] = asyncio.get_running_loop().time() - 2 * SILENCE_S
        slices = await zones.chunk(author)
        check(await other.reader.read(slices[0]), slices[0])
        rests.append(known._failing[address].rest_s)
        for greeting in list(other.near._greeting.values()):
            async with asyncio.timeout(60):
                await greeting
        known._failing[address].until = 0.0  # its rest is over
    assert rests == [REST_S, 2 * REST_S, 4 * REST_S]


async def test_a_peer_that_reads_is_waited_for_however_slow_the_bucket_is(zones: Zones) -> None:
    """A second read of the same chunk would cost a request and be no faster."""
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=0.2, timeout_s=60.0))
    author.server._beat_s = 0.01
    slices = await zones.chunk(author)
    check(await other.reader.read(slices[0]), slices[0])
    author.serving.clear()
    reading = asyncio.ensure_future(other.reader.read(slices[1]))
    await asyncio.wait([reading], timeout=1.0)  # five times the time after which a silent one is overtaken
    assert not reading.done()
    assert (other.near.stats.hedged, other.gets) == (0, 0)
    author.serving.set()
    check(await reading, slices[1])
    assert (other.near.stats.hits, other.gets) == (2, 0)


async def test_a_peer_that_hangs_up_is_told_nothing_more(zones: Zones) -> None:
    """While its answer is being read it is told so; it may lose patience in between."""
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=0.3, timeout_s=0.3))
    author.server._beat_s = 0.01
    slices = await zones.chunk(author)
    check(await other.reader.read(slices[0]), slices[0])
    (talking,) = author.server._connections
    author.serving.clear()
    check(await other.reader.read(slices[1]), slices[1])
    await asyncio.wait([talking], timeout=60)
    assert talking.done()
    assert talking.exception() is None
    author.serving.set()


async def test_waiting_for_other_requests_of_this_agent_is_not_the_peer_s_silence(
    zones: Zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starved agents took each other for dead by the thousand: the store is asked, the peer is used on."""
    monkeypatch.setattr(client, "CONNECTIONS_MAX", 1)
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=0.05, timeout_s=60.0))
    author.server._beat_s = 0.01
    written = [await zones.chunk(author) for _ in range(3)]
    check(await other.reader.read(written[0][0]), written[0][0])
    author.serving.clear()
    held = asyncio.ensure_future(other.reader.read(written[1][0]))
    await until(lambda: author.server._bytes > 0)
    other.near._heard[author.address] = -1e9
    check(await other.reader.read(written[2][0]), written[2][0])
    assert not held.done()
    assert (other.near.stats.hedged, other.gets, other.near.stats.failed) == (1, 1, 0)
    assert not other.near.standings.resting(author.address)
    author.serving.set()
    check(await held, written[1][0])


async def test_a_request_that_never_had_its_turn_says_nothing_of_the_peer(zones: Zones) -> None:
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(hedge_s=0.05, timeout_s=60.0))
    slices = await zones.chunk(author)
    pool = other.near._client._pool(author.address)
    for _ in range(client.CONNECTIONS_MAX):
        await pool.room.acquire()
    other.near._heard[author.address] = -1e9
    check(await other.reader.read(slices[0]), slices[0])
    assert (other.near.stats.hedged, other.gets) == (1, 1)
    assert not other.near.standings.resting(author.address)


async def test_time_in_the_queue_is_not_taken_from_the_peer_s(zones: Zones) -> None:
    near = (await zones.add("a", patience=Patience(hedge_s=0.01, timeout_s=0.02))).near
    turn = _Turn()

    async def queued() -> bytes:
        await asyncio.sleep(0.3)
        turn.begins()
        return b"answer"

    assert await near._patiently(queued(), turn) == b"answer"
    with pytest.raises(TimeoutError):
        await near._patiently(asyncio.sleep(60, b"never"), turn)


async def test_what_fails_many_times_is_told_once(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    written = [await zones.chunk(author) for _ in range(30)]
    await author.server.stop()
    with capture_logs() as logs:
        await read_all([other], [slices[0] for slices in written])
    told = [line["event"] for line in logs if line.get("peer") == author.address]
    assert told == ["a peer is left alone"]


async def test_a_peer_that_cannot_read_the_bucket_itself_is_asked_on(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author, keep=False)
    author.store.order("get", Fault.REFUSED)
    check(await other.reader.read(slices[0]), slices[0])
    assert (other.near.stats.failed, other.gets) == (1, 1)
    assert not other.near.standings.resting(author.address)


def test_a_peer_that_fails_rests_longer_each_time_and_is_tried_by_one() -> None:
    now = [100.0]
    standings = Standings(lambda: now[0])
    assert standings.may_ask("p")
    with capture_logs() as logs:
        for rest_s in (REST_S, 2 * REST_S, 4 * REST_S):
            for _ in range(10):
                standings.failed("p", "late")
            now[0] += rest_s - 0.1
            assert not standings.may_ask("p")
            now[0] += 0.2
            assert standings.may_ask("p")
            assert not standings.may_ask("p"), "one request tries it"
        standings.gave_up("p")
        assert standings.may_ask("p"), "another one may: nothing is known of it"
        for _ in range(20):
            standings.failed("p", "late")
            now[0] += REST_S_MAX + 0.1
            assert standings.may_ask("p"), "within a bound"
        standings.well("p")
        assert standings.may_ask("p")
        assert standings.may_ask("p")
    *going_on, over = logs
    assert {line["event"] for line in going_on} == {"a peer is left alone"}
    assert len(going_on) <= 1 + (now[0] - 100) / AGAIN_S, "each minute at most, whatever fails"
    assert (over["event"], over["times"]) == ("a peer is asked again", 50)
    for number in range(2 * PEERS_MAX):
        standings.failed(str(number), "late")
    assert standings.may_ask("0"), "bounded"


async def test_a_dead_peer_is_replaced_by_the_bucket(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author)
    check(await other.reader.read(slices[0]), slices[0])
    await author.server.stop()
    check(await other.reader.read(slices[1]), slices[1])
    assert (other.near.stats.failed, other.near.stats.hedged, other.gets) == (1, 0, 1)


async def test_a_peer_that_lies_is_noticed(zones: Zones) -> None:
    """Rule 13: what was read is checked, wherever it came from."""
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author, keep=False)
    author.whole._kept[slices[0].chunk] = damaged(
        await zones.memory.get(chunk_key(slices[0].chunk)), slices[0]
    )
    check(await other.reader.read(slices[0]), slices[0])
    assert (other.near.stats.corrupt, other.near.stats.failed, other.gets) == (1, 1, 1)


async def test_a_peer_that_answers_less_than_was_asked_is_noticed(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author, keep=False)
    author.whole._kept[slices[0].chunk] = bytes(slices[-1].position + 10)
    check(await other.reader.read(slices[-1]), slices[-1])
    assert (other.near.stats.failed, other.gets) == (1, 1)


async def test_an_owner_with_damaged_bytes_reads_them_again(zones: Zones) -> None:
    author, owner = await zones.add("a"), await zones.add("b")
    slices = await zones.chunk(author)
    owner.whole._kept[slices[0].chunk] = damaged(
        await zones.memory.get(chunk_key(slices[0].chunk)), slices[0]
    )
    check(await owner.reader.read(slices[0]), slices[0])
    assert owner.store.calls == {"get_range": 1}
    check(await owner.reader.read(slices[1]), slices[1])
    assert owner.store.calls == {"get_range": 1, "get": 1}, "what was wrong is forgotten"


async def test_a_bucket_that_is_away_is_told_and_the_peer_still_helps(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author)
    author.serving.clear()
    other.store.order("get", Fault.REFUSED)
    reading = asyncio.ensure_future(other.reader.read(slices[0]))
    async with asyncio.timeout(20):
        while other.gets == 0:  # noqa: ASYNC110 - the store's counter has no event
            await asyncio.sleep(0.01)
    author.serving.set()
    check(await reading, slices[0])
    assert other.near.stats.hits == 1, "the hedge failed, the slow peer answered"
    await author.server.stop()
    other.store.order("get", Fault.REFUSED)
    with pytest.raises(StoreError):
        await other.reader.read(slices[1])


async def test_a_chunk_that_is_gone_is_gone_for_all(zones: Zones) -> None:
    author, one, two = await zones.add("a"), await zones.add("b"), await zones.add("b")
    slices = await zones.chunk(author)
    await zones.memory.delete([chunk_key(slices[0].chunk)])
    for member in (one, two):
        with pytest.raises(ChunkMissing):
            await member.reader.read(slices[0])


async def test_whole_chunks_are_bounded(zones: Zones) -> None:
    author, owner = await zones.add("a"), await zones.add("b")
    written = [await zones.chunk(author) for _ in range(5)]
    size = len(await zones.memory.get(chunk_key(written[0][0].chunk)))
    owner.whole._bytes_max = 2 * size
    for slices in written:
        await read_all([owner], slices[:1])
        assert owner.whole.bytes <= 2 * size
    assert owner.gets == 5
    await read_all([owner], written[-1])
    assert owner.gets == 5


async def test_strangers_are_not_served(zones: Zones) -> None:
    author = await zones.add("a")
    slices = await zones.chunk(author)
    stranger = PeerClient(secret_of(bytes(16), "another"), SystemClock())
    with pytest.raises((PeerError, EOFError, OSError)):
        await stranger.ask(author.address, slices[:1])
    assert (author.server.stats.refused, author.server.stats.served) == (1, 0)


async def test_an_impostor_is_not_believed(zones: Zones) -> None:
    impostor = PeerServer(zones.members, b"x" * 32, SystemClock(), 1000)  # type: ignore[arg-type]  # never called
    address = f"127.0.0.1:{await impostor.start('127.0.0.1', 0)}"
    with pytest.raises((PeerError, EOFError, OSError)):
        await PeerClient(SECRET, SystemClock()).ask(address, [SliceRef(0, 1, ChunkId(1, 1), 0, 10, 0)])
    await impostor.stop()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"FLOEPEER1\n" + bytes(48), b"\0" * 200])
async def test_what_is_not_a_peer_is_closed(zones: Zones, sent: bytes) -> None:
    member = await zones.add("a")
    host, port = member.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(20):
        while True:
            try:
                if not await reader.read(100):
                    break
            except ConnectionError:
                break
    writer.close()
    assert member.server.stats.refused == 1


async def test_more_than_fits_is_told_busy(zones: Zones) -> None:
    author, other = await zones.add("a"), await zones.add("a")
    slices = await zones.chunk(author)
    author.server._bytes_max = slices[0].length - 1
    check(await other.reader.read(slices[0]), slices[0])
    assert (other.near.stats.failed, other.gets) == (1, 1)


async def test_patience_ends(zones: Zones) -> None:
    """The peer is not waited for longer than its time, the bucket has deadlines of its own."""
    author = await zones.add("a")
    other = await zones.add("a", patience=Patience(0.05, 0.1))
    slices = await zones.chunk(author)
    author.serving.clear()
    check(await other.reader.read(slices[0]), slices[0])
    assert (other.near.stats.hits, other.gets) == (0, 1)


def test_frames() -> None:
    chunk = ChunkId((1 << 64) - 1, 2)
    slices = [SliceRef(5, 9, chunk, 64, 100, -1), SliceRef(-1, 0, chunk, 0, 1, -1)]
    for recent in (True, False):
        request = encode_request(slices, recent)
        assert decode_request(request[4:]) == (slices, recent)
    head = bytes(encode_answer(request[4:], Status.OK, [b"data"])[0])
    assert check_answer(head, request) is Status.OK
    with pytest.raises(PeerError):
        check_answer(head, encode_request(slices[:1], False))
    other = slices[0]._replace(chunk=ChunkId(1, 1))
    bad = (b"", b"\0", request[5:], bytes(REQUEST_BYTES_MAX + 40), encode_request([*slices, other], True)[4:])
    for body in bad:
        with pytest.raises(PeerError):
            decode_request(body)
