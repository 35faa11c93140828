"""The log in the bucket: nothing is missing, whoever dies or writes beside; what is damaged is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from coordination.archive import shelf
from coordination.archive.head import listed
from coordination.archive.keeper import CLAIM, ArchiveOptions, LogArchive
from coordination.archive.piece import (
    NONE,
    RAW_BYTES_MAX,
    CorruptPiece,
    Header,
    decode,
    encode_steps,
)
from coordination.archive.tail import Tail
from coordination.commands import Claim, Heartbeat, ReleaseClaim
from coordination.log import LogEntry, LogRegressed
from coordination.replica import Replica
from coordination.snapshot import canonical_digest
from coordination.snapshot import decode as load
from coordination.snapshot_keeper import SnapshotKeeper, SnapshotOptions
from coordination.state import State
from coordination.state.types import ClaimHolder
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import SNAPSHOTS, PieceId, log_folder, piece_key
from objectstore.store import CREATE, Ambiguous, Buffer, Precondition, PutMode, Retryable
from tests.unit.coordination.conftest import Agents, until
from tests.unit.coordination.kit import A, Script
from tests.unit.coordination.test_replica import crash, topic

IDENTITY = "memory:memory"
FOLDER = log_folder(IDENTITY)
SOON = ArchiveOptions(seconds=0.0, piece_bytes=2048, bytes_max=1 << 20)
LATER = ArchiveOptions(seconds=3600.0, piece_bytes=1 << 20)


def written(header: Header, entries: Sequence[LogEntry], identity: str = IDENTITY) -> bytes:
    """A whole piece."""
    *_, parts = encode_steps(header, identity, entries)
    return b"".join(parts)


def some(first: int, last: int, size: int = 10) -> list[LogEntry]:
    """Entries at every second revision, up to the last."""
    return [
        LogEntry(at, 7 << 60 | at % 3, at, bytes([at % 256]) * size) for at in range(last, first - 1, -2)
    ][::-1]


def test_a_piece_is_what_was_written() -> None:
    entries = [*some(1_000_001, 1_000_401, 3_000), LogEntry(1_000_500, 2**63 - 1, 1, b"")]
    header = Header(1_000_001, 1_000_500, b"p" * 32, snapshot=9, gap=8)
    content = written(header, entries)
    piece = decode(content)
    assert (piece.header, piece.identity, piece.count) == (header, IDENTITY, len(entries))
    assert list(piece.entries()) == entries
    assert written(header, entries) == content  # two agents write the same bytes
    assert len(content) < sum(len(each.payload) for each in entries) / 10


def test_a_piece_that_lacks_or_has_another_byte_is_refused() -> None:
    content = written(Header(1, 41, NONE), some(1, 41))
    for at in range(len(content)):
        spoilt = bytearray(content)
        spoilt[at] ^= 0x10
        with pytest.raises(CorruptPiece):
            list(decode(bytes(spoilt)).entries())
    for length in range(len(content)):
        with pytest.raises(CorruptPiece):
            decode(content[:length])
    with pytest.raises(CorruptPiece):
        decode(content + b"\0")


def test_what_unpacks_to_more_than_it_says_is_not_unpacked() -> None:
    header = Header(1, 1, NONE)
    *_, (signed, _, *body) = encode_steps(header, IDENTITY, [LogEntry(1, 1, 1, bytes(1 << 20))])
    from coordination.archive import piece

    fields = list(piece._SIGNED.unpack(signed))
    for raw_bytes in (RAW_BYTES_MAX + 1, 1 << 19):
        fields[8] = raw_bytes
        lying = piece._SIGNED.pack(*fields)
        digest = piece.blake2b(lying + b"".join(body), digest_size=32).digest()
        with pytest.raises(CorruptPiece, match="uncompressed"):
            decode(lying + digest + b"".join(body))


def test_the_tail_keeps_all_or_begins_again() -> None:
    script = Script()
    script.register(A)
    tail = Tail(400)
    tail.add(script.entries[0], 0.0)
    assert not tail.entries  # nobody has begun
    tail.begin(script.state.revision)
    for at in range(3):
        script.one(A, Heartbeat())
        tail.add(script.entries[-1], float(at))
    assert tail.busy_since is None
    script.one(A, Claim(name="x"))
    tail.add(script.entries[-1], 9.0)
    assert (tail.busy_since, len(tail.entries)) == (9.0, 4)
    assert tail.take(2, 1) == script.entries[2:3]  # one at least
    tail.drop(4, 10.0)
    assert (tail.after, tail.entries, tail.busy_since) == (4, script.entries[4:], 10.0)
    big = LogEntry(6, A, 6, bytes(400))
    tail.add(big, 11.0)
    assert (tail.after, tail.entries, tail.size) == (6, [], 0)  # the log still has them
    assert tail.busy_since == 10.0  # and they wait since then
    tail.drop(6, 12.0)
    assert tail.busy_since is None


class Archives:
    """Archiving jobs of agents, which look when they are told to."""

    def __init__(self, agents: Agents) -> None:
        self.agents = agents

    def of(self, name: str, replica: Replica, options: ArchiveOptions = SOON) -> LogArchive:
        """The job of one agent."""
        return LogArchive(replica, self.agents.logs[name], self.agents.store, options)

    async def survey(self) -> shelf.Survey:
        """What lies in the bucket."""
        store = self.agents.store
        return await shelf.survey(store, FOLDER, await shelf.snapshots(store))

    async def restored(self, revision: int = 0) -> State:
        """What the snapshot of that revision and the archive make; of revision 0: the archive alone."""
        state, store = State(), self.agents.store
        async for page in store.list(SNAPSHOTS):
            for meta in page:
                if meta.key.startswith(f"{SNAPSHOTS}{revision:016x}"):
                    state = load(await store.get(meta.key))
        async for entry in shelf.entries_after(store, await self.survey(), state.revision):
            state.apply(entry)
        return state


async def died(agents: Agents, one: Replica, other: Replica) -> None:
    """An agent is gone without a word, and the other one has heard of it."""
    number = one.incarnation
    await crash(one)
    agents.server.expire(number)
    await until(lambda: not other.state.is_live(number))


@pytest.fixture
def archives(agents: Agents) -> Archives:
    return Archives(agents)


async def test_the_archive_makes_the_state_that_the_log_makes(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    for number in range(30):
        await one.propose(topic(f"t{number}"))
        if number % 7 == 0:
            await job._look()
    await job._look()
    found = await archives.survey()
    assert len(found.lines) == 1
    assert len(found.lines[0]) >= 5
    assert found.whole
    assert not found.damaged
    restored = await archives.restored()
    assert restored.revision == job.head.last if job.head else False
    assert restored.hash == one.state.hash_at(restored.revision)
    assert (job.lag_s, job.missing, job.counts.gaps) == (0.0, [], 0)


async def test_nothing_is_written_while_the_cluster_idles(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    await job._look()
    await job._look()
    before = job.counts.pieces
    for _ in range(5):
        await one.propose(Heartbeat())
        await job._look()
    assert job.counts.pieces == before
    await one.propose(topic("t"))
    await job._look()
    assert job.counts.pieces == before + 1
    assert (await archives.restored()).hash == one.state.hash_at(job.head.last if job.head else 0)


async def test_a_piece_waits_for_its_time_or_its_size(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one, ArchiveOptions(seconds=3600.0, piece_bytes=1024))
    await job._look()
    before = job.counts.pieces
    await one.propose(topic("t"))
    await job._look()
    assert job.counts.pieces == before
    assert job.lag_revisions > 0
    for number in range(60):
        await one.propose(topic(f"t{number}"))
    await job._look()
    assert job.counts.pieces > before


class Store(MemoryStore):
    """A store whose PUTs of pieces fail, or seem to."""

    refuse: Callable[[str], Exception | None] = staticmethod(lambda key: None)
    late: bool = False

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = CREATE) -> str:
        """See ObjectStore."""
        error = self.refuse(key) if key.startswith("log/") else None
        if error is not None and not self.late:
            raise error
        tag = await super().put(key, parts, mode)
        if error is not None:
            raise error
        return tag


@pytest.mark.parametrize("late", [False, True], ids=["refused", "answer lost"])
async def test_a_put_that_fails_is_tried_again(agents: Agents, archives: Archives, late: bool) -> None:
    agents.store = store = Store()
    one = await agents.start("one")
    job = archives.of("one", one)
    store.late = late
    errors: list[Exception] = [Ambiguous("lost") if late else Retryable("refused")]
    store.refuse = lambda key: errors.pop() if errors else None
    await one.propose(topic("t"))
    if late:
        await job._look()  # it lies there, as a look shows
    else:
        with pytest.raises(Retryable):
            await job._look()
        assert job.counts.failures == 1
        await job._look()
    assert not errors
    assert (await archives.restored()).hash == one.state.hash_at(job.head.last if job.head else 0)
    assert len((await archives.survey()).lines) == 1


async def test_a_put_that_lands_late_lies_beside_the_chain(agents: Agents, archives: Archives) -> None:
    agents.store = store = Store()
    one = await agents.start("one")
    job = archives.of("one", one)
    await job._look()
    kept: list[tuple[str, bytes]] = []
    real = MemoryStore.put

    async def held(key: str, parts: Sequence[Buffer], mode: PutMode = CREATE) -> str:
        if key.startswith("log/") and not kept:
            kept.append((key, b"".join(parts)))
            raise Ambiguous("nobody knows")
        return await real(store, key, parts, mode)

    store.put = held  # type: ignore[method-assign]  # one PUT is held back
    await one.propose(topic("a"))
    with pytest.raises(Retryable, match="not known"):
        await job._look()
    await one.propose(topic("b"))
    await job._look()
    ((key, content),) = kept
    await real(store, key, [content], CREATE)  # it lands now
    await one.propose(topic("c"))
    await job._look()
    found = await archives.survey()
    assert [shelf.key_of(each) for each in found.beside] == [key]
    assert len(found.lines) == 1
    assert (await archives.restored()).hash == one.state.hash_at(found.last)


async def test_a_successor_goes_on_behind_what_is_there(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    two = await agents.start("two")
    first, second = archives.of("one", one), archives.of("two", two)
    await one.propose(topic("a"))
    await first._look()
    await second._look()
    assert second.counts.pieces == 0  # one writes
    await one.propose(topic("b"))
    holder = one.state.claims[CLAIM]
    await one.propose(ReleaseClaim(name=CLAIM, claim_revision=holder.revision))
    await two.barrier()
    await second._look()
    await first._look()
    assert first.status() == {"writes": False}
    assert not first._tail.entries
    await two.propose(topic("c"))
    await second._look()
    found = await archives.survey()
    assert (len(found.lines), found.beside, found.damaged) == (1, [], [])
    assert (await archives.restored()).hash == two.state.hash_at(found.last)


async def test_two_writers_at_once_do_no_harm(agents: Agents, archives: Archives) -> None:
    """Both believe that they hold the claim; each piece of either is true, and one line goes to the end."""
    one = await agents.start("one")
    two = await agents.start("two")
    hold = ClaimHolder(1, 1)
    jobs = [archives.of("one", one), archives.of("two", two)]
    for job in jobs:
        job.held = lambda: hold  # type: ignore[method-assign]  # the state would say who lost
    for number in range(6):
        await one.propose(topic(f"t{number}"))
        await asyncio.gather(one.barrier(), two.barrier())
        done = await asyncio.gather(*(job.step(hold) for job in jobs), return_exceptions=True)
        assert all(each is None or isinstance(each, Precondition) for each in done), done
    for job in jobs:
        await job.step(hold)
    found = await archives.survey()
    assert not found.missing
    assert not found.damaged
    last = max(job._head.last for job in jobs if job._head)
    assert (found.last, len(found.lines)) == (last, 1)
    assert (await archives.restored()).hash == one.state.hash_at(last)


async def test_a_piece_of_another_chain_under_its_name_is_gone_on_from(
    agents: Agents, archives: Archives
) -> None:
    """Whoever loses looks where the archive ends, and does not take the other's piece for its own."""
    one = await agents.start("one")
    job = archives.of("one", one, ArchiveOptions(seconds=0.0, piece_bytes=1 << 20))
    await job._look()
    await one.propose(topic("a"))
    entries = [each for each in job._tail.entries if each.revision > (job.head.last if job.head else 0)]
    header = Header(job.head.last + 1 if job.head else 0, entries[-1].revision, b"x" * 32)
    content = written(header, entries)
    await agents.store.put(piece_key(PieceId(FOLDER, header.first, header.last)), [content], CREATE)
    with pytest.raises(Precondition, match="another chain"):
        await job._look()
    await one.propose(topic("b"))
    await job._look()
    found = await archives.survey()
    assert (len(found.lines), found.missing) == (2, [])
    assert found.lines[1][0].checksum == decode(content).checksum
    assert (await archives.restored()).hash == one.state.hash_at(found.last)


@pytest.mark.parametrize(
    ("piece_bytes", "spoilt"),
    [(1 << 20, 1), (400, 1), (400, 4), (1, 1), (1, 3)],
    ids=["by time", "by size", "some by size", "of one entry", "some of one entry"],
)
async def test_what_is_damaged_is_passed_over_and_written_again(
    agents: Agents, archives: Archives, piece_bytes: int, spoilt: int
) -> None:
    """A piece that is cut by its size would be cut there again: then it is cut elsewhere."""
    one = await agents.start("one")
    options = ArchiveOptions(seconds=0.0, piece_bytes=piece_bytes)
    for number in range(32):
        await one.propose(topic(f"t{number}"))
    await archives.of("one", one, options)._look()
    pieces = await listed(agents.store, FOLDER)
    if piece_bytes == 400:  # what came last was not enough for a whole one
        await agents.store.delete([piece_key(pieces.pop().id)])
    keys = [piece_key(each.id) for each in pieces[-spoilt:]]
    for key in keys:
        content = bytearray(await agents.store.get(key))
        content[-1] ^= 1
        await agents.store.put(key, [content])
    for later in ("u", "v"):  # the second successor knows nothing of the first
        successor = archives.of("one", one, options)
        await successor._look()
        await one.propose(topic(later))
        await successor._look()
        found = await archives.survey()
        assert [piece_key(each.id) for each, _ in found.damaged] == keys
        assert (found.missing, len(found.lines), successor.counts.failures) == ([], 1, 0)
        assert (await archives.restored()).hash == one.state.hash_at(found.last)
        assert successor.lag_revisions == 0


async def test_a_piece_that_is_missing_in_the_middle_is_named(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    for name in ("a", "b", "c"):
        await one.propose(topic(name))
        await job._look()
    pieces = await listed(agents.store, FOLDER)
    lost = pieces[1].id
    await agents.store.delete([piece_key(lost)])
    found = await archives.survey()
    assert found.missing == [(lost.first, lost.last)]
    assert len(found.lines) == 2
    assert shelf.reached(found.lines, 0) == pieces[0].id.last


def keeper_of(agents: Agents, name: str, replica: Replica) -> SnapshotKeeper:
    """What writes snapshots, when told to."""
    return SnapshotKeeper(replica, agents.logs[name], agents.store, SnapshotOptions())


async def test_it_is_trimmed_behind_snapshots_and_goes_on_from_each(
    agents: Agents, archives: Archives
) -> None:
    one = await agents.start("one")
    job, keeper = archives.of("one", one), keeper_of(agents, "one", one)
    revisions = []
    for number in range(6):
        for other in range(3):
            await one.propose(topic(f"t{number}.{other}"))
            await job._look()
        revisions.append(await keeper.write())
        await keeper.trim()
        await job._look()
    found = await archives.survey()
    kept = found.lines[0]
    assert kept[0].header.first <= revisions[-3] + 1 <= kept[0].header.last  # no more than is needed
    assert [each.snapshot for each in found.reaches] == revisions[-3:]
    assert all(each.through == found.last for each in found.reaches)
    for revision in revisions[-3:]:
        restored = await archives.restored(revision)
        assert canonical_digest(restored) == canonical_digest(await archives.restored(revisions[-1]))
        assert restored.hash == one.state.hash_at(found.last)


async def test_what_waits_is_written_before_the_log_is_trimmed(agents: Agents, archives: Archives) -> None:
    """Though nothing but heartbeats waits: a successor could not tell what it is."""
    one = await agents.start("one")
    job, keeper = archives.of("one", one, LATER), keeper_of(agents, "one", one)
    await job._look()
    for _ in range(4):
        await one.propose(Heartbeat())
        revision = await keeper.write()
        await job._look()
        await keeper.trim()
        assert job.head
        assert job.head.last >= revision
    two = await agents.start("two")
    await died(agents, one, two)
    successor = archives.of("two", two)
    await successor._look()
    assert (successor.counts.gaps, (await archives.survey()).missing) == (0, [])


async def test_entries_that_were_trimmed_first_are_told_and_a_new_chain_begins(
    agents: Agents, archives: Archives
) -> None:
    one = await agents.start("one")
    job, keeper = archives.of("one", one), keeper_of(agents, "one", one)
    await one.propose(topic("a"))
    await job._look()
    end = job.head.last if job.head else 0
    job._let_go()  # as when the bucket took no pieces for long, and a successor comes
    for number in range(3):
        await one.propose(topic(f"t{number}"))
        await keeper.write()
    trimmed = await keeper.trim()
    assert trimmed > end
    await job._look()
    await one.propose(topic("z"))
    await job._look()
    assert job.counts.gaps == 1
    oldest = one.state.snapshots[0].revision
    assert job.missing == [(oldest + 1, trimmed)]
    begun = (await archives.survey()).lines[-1][0].header
    assert begun.begins
    assert (begun.first, begun.gap) == (trimmed + 1, end)
    assert begun.snapshot == one.state.snapshots[1].revision
    found = await archives.survey()
    reaches = {each.snapshot: each.through for each in found.reaches}
    assert [reaches[each.revision] == found.last for each in one.state.snapshots] == [False, True, True]
    assert (await archives.restored(begun.snapshot)).hash == one.state.hash_at(found.last)


async def test_an_archive_of_another_log_is_not_gone_on_with(agents: Agents, archives: Archives) -> None:
    one = await agents.start("one")
    job = archives.of("one", one)
    await one.propose(topic("a"))
    await one.propose(topic("b"))
    await job._look()
    head = job.head
    assert head is not None
    for revision in (head.last, head.last - 1, head.last + 1_000):  # as of a log that was restored since
        other = [LogEntry(revision, 3, 1, b"x")]
        content = written(Header(1, revision, NONE), other)
        store = agents.store = MemoryStore()
        await store.put(piece_key(PieceId(FOLDER, 1, revision)), [content])
        again = archives.of("one", one)
        with pytest.raises(LogRegressed, match="restored"):
            await again._look()
        assert again.counts.pieces == 0
