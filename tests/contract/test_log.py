"""The contract of the log port, over every adapter: rules 2, 3, 6 and 11 of docs/architecture.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coordination.log import Chain, EntryName, Fenced, Log, LogEntry, LogRegressed, Trimmed, Unavailable
from tests.contract.log_labs import Client, EtcdLab, Lab, MemoryLab, RebasedLab, SqliteLab, until

SERVED = pytest.mark.services
ADAPTERS = ["memory", "sqlite", pytest.param("etcd", marks=SERVED), pytest.param("rebased", marks=SERVED)]


@pytest.fixture(params=ADAPTERS)
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    made: Lab
    if request.param == "memory":
        made = MemoryLab()
    elif request.param == "sqlite":
        made = SqliteLab(tmp_path)
    else:
        kind = EtcdLab if request.param == "etcd" else RebasedLab
        made = kind(request.getfixturevalue("own_etcd"), tmp_path)
    yield made
    await made.close()


class Reader:
    """A follower in a task, and all that it was given."""

    def __init__(self, log: Log, after: int = 0, last: EntryName | None = None) -> None:
        self.entries: list[LogEntry] = []
        self.through = after
        self.task = asyncio.create_task(self._read(log, after, last))

    async def _read(self, log: Log, after: int, last: EntryName | None) -> None:
        async for batch in log.follow(after, last):
            assert batch.through > self.through, "the position never goes back"
            assert all(self.through < entry.revision <= batch.through for entry in batch.entries)
            self.entries += batch.entries
            self.through = batch.through

    async def reaches(self, revision: int) -> list[LogEntry]:
        """Wait until everything up to `revision` was delivered."""
        await until(lambda: self.through >= revision or self.task.done())
        if self.task.done():
            self.task.result()
        return self.entries

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def fill(chain: Chain, count: int) -> list[int]:
    return [await chain.append(b"%d" % number) for number in range(count)]


async def start(lab: Lab, incarnation: int = 1) -> tuple[Client, Chain]:
    client = await lab.client()
    return client, await client.log.register(incarnation, b"info", lab.ttl_s)


async def test_appends_are_followed_once_and_in_order(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 5)
    reader = Reader(client.log, lab.floor)
    revisions += await fill(chain, 5)
    entries = await reader.reaches(revisions[-1])
    assert revisions == sorted(set(revisions))
    assert entries == [
        LogEntry(revision, 1, number + 1, b"%d" % (number % 5)) for number, revision in enumerate(revisions)
    ]
    late = Reader(client.log, after=revisions[3])
    assert await late.reaches(revisions[-1]) == entries[4:]
    await reader.stop()
    await late.stop()


async def test_chains_side_by_side_make_one_order_the_same_for_every_follower(lab: Lab) -> None:
    started = [await start(lab, incarnation) for incarnation in (1, 2, 3)]
    readers = [Reader(client.log, lab.floor) for client, _ in started]
    acknowledged = await asyncio.gather(*(fill(chain, 40) for _, chain in started))
    newest = await started[0][0].log.current()
    orders = [await reader.reaches(newest) for reader in readers]
    assert orders[0] == orders[1] == orders[2]
    for incarnation, revisions in enumerate(acknowledged, 1):
        own = [entry for entry in orders[0] if entry.incarnation == incarnation]
        assert [entry.revision for entry in own] == revisions
        assert [entry.sequence for entry in own] == list(range(1, 41))
    assert len(orders[0]) == 120
    for reader in readers:
        await reader.stop()


async def test_a_read_barrier_is_reached_by_a_quiet_follower(lab: Lab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log, lab.floor)
    await chain.append(b"one")
    other, _ = await start(lab, 2)  # moves the log's revision on, without an entry
    barrier = await other.log.current()
    assert [entry.payload for entry in await reader.reaches(barrier)] == [b"one"]
    assert len(await reader.reaches(await client.log.current())) == 1
    await reader.stop()


async def test_the_answer_is_lost_after_the_effect(lab: Lab) -> None:
    client, chain = await start(lab)
    await chain.append(b"one")
    append = await client.lose_answer(chain.append(b"two"))
    revision = await append
    last = await chain.append(b"three")
    entries = await Reader(client.log, lab.floor).reaches(last)
    assert [entry.payload for entry in entries] == [b"one", b"two", b"three"]
    assert entries[1].revision == revision


async def test_the_answer_is_lost_and_the_entry_trimmed_before_the_retry(lab: Lab) -> None:
    """Rule 3: a trimmed entry looks like one that never was, so nobody may look for the entry."""
    client, chain = await start(lab)
    other = await lab.client()

    async def trim_all() -> None:
        await other.log.trim(await other.log.current())

    append = await client.lose_answer(chain.append(b"one"))
    await trim_all()
    revision = await append
    await trim_all()
    last = await chain.append(b"two")
    reader = Reader(other.log, after=await other.log.trimmed())
    assert [(entry.sequence, entry.payload) for entry in await reader.reaches(last)] == [(2, b"two")]
    assert revision < last
    await reader.stop()


async def test_the_request_is_lost_before_the_effect(lab: Lab) -> None:
    client, chain = await start(lab)
    append = await client.lose_request(chain.append(b"one"))
    revision = await append
    entries = await Reader(client.log, lab.floor).reaches(revision)
    assert [(entry.revision, entry.payload) for entry in entries] == [(revision, b"one")]


async def test_the_lease_is_gone(lab: Lab) -> None:
    client, chain = await start(lab)
    await chain.append(b"one")
    await lab.expire(1)
    with pytest.raises(Fenced) as fenced:
        await chain.append(b"two")
    assert not fenced.value.maybe_appended
    assert await client.log.members() == []
    entries = await Reader(client.log, lab.floor).reaches(await client.log.current())
    assert [entry.payload for entry in entries] == [b"one"]
    with pytest.raises(Fenced):
        await chain.append(b"three")


async def test_a_lease_that_nobody_renews_runs_out(lab: Lab) -> None:
    client = await lab.client()
    chain = await client.log.register(1, b"", 1.0)
    own: Any = getattr(chain, "_chain", chain)  # of a log around another, the other's
    own.abandon()  # every log has it for tests
    other = await lab.client()

    async def gone() -> bool:
        return await other.log.members() == []

    await until(gone)
    with pytest.raises(Fenced):
        await chain.append(b"one")


async def test_the_lease_is_gone_after_the_answer_was_lost(lab: Lab) -> None:
    """What landed then is not known here; it is after a later entry fences the incarnation."""
    client, chain = await start(lab)
    append = await client.lose_answer(chain.append(b"one"))
    await lab.expire(1)
    [outcome] = await asyncio.gather(append, return_exceptions=True)
    # An int when the retry was faster than the expiry.
    assert isinstance(outcome, int) or (isinstance(outcome, Fenced) and outcome.maybe_appended)
    entries = await Reader(client.log, lab.floor).reaches(await client.log.current())
    assert [entry.payload for entry in entries] == [b"one"]


async def test_a_live_chain_keeps_its_lease(lab: Lab) -> None:
    client = await lab.client()
    chain = await client.log.register(1, b"info", 2.0)
    await asyncio.sleep(4.0)
    assert [member.incarnation for member in await client.log.members()] == [1]
    await chain.append(b"one")


async def test_a_fenced_incarnation_appends_no_more(lab: Lab) -> None:
    client, chain = await start(lab)
    other = await lab.client()
    await other.log.fence(1)
    await other.log.fence(1)
    with pytest.raises(Fenced) as fenced:
        await chain.append(b"one")
    assert not fenced.value.maybe_appended
    assert await Reader(client.log, lab.floor).reaches(await client.log.current()) == []


async def test_two_writers_with_the_same_incarnation(lab: Lab) -> None:
    client, first = await start(lab, 7)
    other = await lab.client()
    with pytest.raises(Fenced):
        await other.log.register(7, b"", lab.ttl_s)
    await other.log.fence(7)
    second = await other.log.register(7, b"", lab.ttl_s)  # nothing of 7 is in the log: still free
    await second.append(b"second")
    with pytest.raises(Fenced):
        await first.append(b"first")
    await second.append(b"second again")
    entries = await Reader(client.log, lab.floor).reaches(await client.log.current())
    assert [(entry.sequence, entry.payload) for entry in entries] == [(1, b"second"), (2, b"second again")]


async def test_a_number_that_has_entries_is_never_given_out_again(lab: Lab) -> None:
    client, chain = await start(lab)
    await chain.append(b"one")
    await chain.close()
    with pytest.raises(Fenced):
        await client.log.register(1, b"", lab.ttl_s)


async def test_registering_survives_a_lost_answer(lab: Lab) -> None:
    client = await lab.client()
    await client.log.identity()
    [chain] = await asyncio.gather(
        await client.lose_answer(client.log.register(1, b"", lab.ttl_s)), return_exceptions=True
    )
    if isinstance(chain, Unavailable):  # then another number is the way on
        chain = await client.log.register(2, b"", lab.ttl_s)
    assert not isinstance(chain, BaseException)
    revision = await chain.append(b"one")
    assert [entry.payload for entry in await Reader(client.log, lab.floor).reaches(revision)] == [b"one"]


async def test_members_tell_what_they_registered_and_how_far_they_are(lab: Lab) -> None:
    client, first = await start(lab, 1)
    _, _ = await start(lab, 2)
    await fill(first, 3)
    members = await client.log.members()
    assert [(member.incarnation, member.info, member.sequence) for member in members] == [
        (1, b"info", 3),
        (2, b"info", 0),
    ]
    await first.close()
    await first.close()
    assert [member.incarnation for member in await client.log.members()] == [2]


async def test_history_is_compacted_below_the_follower(lab: Lab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log, lab.floor)
    revisions = await fill(chain, 3)
    await reader.reaches(revisions[-1])
    behind = await lab.client()
    revisions += await fill(chain, 100)
    await lab.compact()
    late = Reader(behind.log, after=revisions[0])
    await client.cancel_watches()
    revisions += await fill(chain, 3)
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    assert await late.reaches(revisions[-1]) == entries[1:]
    await reader.stop()
    await late.stop()


async def test_the_watch_is_cancelled(lab: Lab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log, lab.floor)
    revisions = []
    for _ in range(4):
        revisions += await fill(chain, 5)
        await reader.reaches(revisions[-1])
        await client.cancel_watches()
    revisions += await fill(chain, 5)
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    await reader.stop()


async def test_the_watch_is_silent(lab: Lab) -> None:
    client, _ = await start(lab)
    writer, chain = await start(lab, 2)
    reader = Reader(client.log, lab.floor)
    revisions = await fill(chain, 3)
    await reader.reaches(revisions[-1])
    await client.silence_watches()
    revisions += await fill(chain, 3)
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    assert writer is not client
    await reader.stop()


async def test_trimmed_entries_are_refused_and_the_rest_stays(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 10)
    assert await client.log.trimmed() == lab.floor
    await client.log.trim(revisions[4])
    await client.log.trim(revisions[2])
    await client.log.trim(revisions[4])
    assert await client.log.trimmed() == revisions[4]
    with pytest.raises(Trimmed) as trimmed:
        await Reader(client.log, after=revisions[3]).task
    assert trimmed.value.through == revisions[4]
    reader = Reader(client.log, after=revisions[4])
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions[5:]
    revisions.append(await chain.append(b"more"))
    assert (await reader.reaches(revisions[-1]))[-1].payload == b"more"
    await reader.stop()


async def test_a_running_follower_that_is_ahead_of_a_trim_does_not_notice(lab: Lab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log, lab.floor)
    revisions = await fill(chain, 10)
    await reader.reaches(revisions[-1])
    await client.log.trim(revisions[-1])
    revisions += await fill(chain, 3)
    assert [entry.revision for entry in await reader.reaches(revisions[-1])] == revisions
    await reader.stop()


async def test_a_log_restored_from_an_older_backup_is_refused(lab: Lab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log, lab.floor)
    await fill(chain, 3)
    await lab.backup()
    revisions = await fill(chain, 5)
    await reader.reaches(revisions[-1])
    await lab.restore()
    with pytest.raises(LogRegressed):
        await reader.task
    fresh = await lab.client()
    with pytest.raises(LogRegressed):
        await Reader(fresh.log, after=revisions[-1]).task
    with pytest.raises(LogRegressed):
        await chain.append(b"into the past")


async def test_a_restored_log_that_was_written_on_is_known_by_its_last_entry(lab: Lab) -> None:
    """Its revision is as high as the reader's again: only the entries tell that it is another log."""
    _, chain = await start(lab)
    before = await fill(chain, 3)
    await lab.backup()
    lost = await fill(chain, 2)
    await lab.restore()
    fresh, other = await start(lab, 2)
    revision = await other.append(b"another")
    while revision <= lost[-1] + 1:
        revision = await other.append(b"another")
    replaced = EntryName(lost[-1], 1, 5)
    kept, between = EntryName(before[-1], 1, 3), lost[-1]
    for last, after in ((replaced, lost[-1]), (kept, between)):
        with pytest.raises(LogRegressed):
            await Reader(fresh.log, after, last).task
    reader = Reader(fresh.log, before[-1], kept)
    assert [entry.payload for entry in await reader.reaches(revision)][:2] == [b"another", b"another"]
    await reader.stop()


async def test_the_last_entry_may_be_trimmed(lab: Lab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 5)
    await client.log.trim(revisions[3])
    reader = Reader(client.log, revisions[3], EntryName(revisions[3], 1, 4))
    assert [entry.revision for entry in await reader.reaches(revisions[-1])] == revisions[4:]
    await reader.stop()


async def test_large_entries(lab: Lab) -> None:
    client, chain = await start(lab)
    largest = b"x" * client.log.entry_bytes_max
    with pytest.raises(ValueError, match="entry_bytes_max"):
        await chain.append(largest + b"x")
    revisions = [await chain.append(largest) for _ in range(9)]
    entries = await Reader(client.log, lab.floor).reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    assert all(entry.payload == largest for entry in entries)
    await lab.compact()
    fresh = await lab.client()
    assert len(await Reader(fresh.log, lab.floor).reaches(revisions[-1])) == 9


async def test_the_identity_stays(lab: Lab) -> None:
    first, second = await lab.client(), await lab.client()
    assert await first.log.identity() == await second.log.identity() != ""
