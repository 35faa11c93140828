"""Agents whose states differ find out by themselves, and the right one goes on (decision 0043)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from coordination import snapshot_keeper
from coordination.archive import keeper
from coordination.archive.head import fetched, listed
from coordination.archive.keeper import LogArchive
from coordination.log import Copy, LogEntry, Unavailable
from coordination.replica import Replica
from coordination.replica.comparing import ENTRIES_REMEMBERED, Comparison, Findings, Verdict, by_copies
from coordination.snapshot_keeper import SnapshotKeeper
from coordination.state import State
from coordination.state.digest import print_of
from objectstore.naming import SNAPSHOTS, log_folder
from tests.unit.coordination.conftest import Agents, registration, until
from tests.unit.coordination.test_archive import SOON
from tests.unit.coordination.test_replica import topic

MINE = {3: b"a", 5: b"b", 8: b"c"}
OTHER = MINE | {5: b"x"}


def held(prints: Mapping[int, bytes], trimmed: int = 0) -> Copy:
    return Copy(trimmed, prints)


@pytest.mark.parametrize(
    ("copies", "found"),
    [
        ({}, Findings(None)),
        ({"1": None, "2": None}, Findings(None)),
        ({"1": held(MINE), "2": held(MINE), "3": held(MINE)}, Findings(None)),
        ({"1": held(MINE), "2": held(OTHER), "3": held(MINE)}, Findings(Verdict.SOUND, ("2",), True)),
        ({"1": held(OTHER), "2": held(OTHER), "3": held(MINE)}, Findings(Verdict.WRONG, ("3",), True)),
        ({"1": held(OTHER), "2": None, "3": held(MINE)}, Findings(Verdict.UNKNOWN, (), True)),
        ({"1": held(OTHER), "2": held(OTHER), "3": None}, Findings(Verdict.WRONG)),
        ({"1": held(OTHER), "2": None, "3": None}, Findings(Verdict.UNKNOWN)),
        ({"1": held({8: b"c"}, 5), "2": held(OTHER), "3": held(OTHER)}, Findings(None)),
    ],
)
def test_what_the_copies_of_the_log_say(copies: dict[str, Copy | None], found: Findings) -> None:
    assert by_copies(MINE, 2, copies) == found


def test_prints_are_kept_of_the_newest_entries_only() -> None:
    comparison = Comparison(lambda _: False, begun=7)
    assert comparison.begins == 7
    for number in range(ENTRIES_REMEMBERED + 5):
        comparison.note(LogEntry(10 + number, 1, number, b"p"))
    assert comparison.begins == 15
    known = comparison.prints(15, 10**9)
    assert len(known) == ENTRIES_REMEMBERED - 1
    entry = LogEntry(20, 1, 10, b"p")
    assert print_of(entry) == print_of(replace(entry, revision=4)), "a restored log has other revisions"


def test_what_was_read_is_all_that_was_applied_and_nothing_else() -> None:
    comparison = Comparison(lambda _: False, begun=10)
    applied = [LogEntry(revision, 1, revision, b"p") for revision in (12, 13, 15)]
    for each in applied:
        comparison.note(each)
    other, late = replace(applied[1], payload=b"q"), LogEntry(14, 1, 14, b"p")
    assert comparison.contradicts(10, applied) is None
    assert comparison.contradicts(12, applied[1:]) is None
    assert comparison.contradicts(10, [applied[0], other]) == 13
    assert comparison.contradicts(10, applied[1:]) == 12, "one is missing"
    assert comparison.contradicts(10, [*applied[:2], late, applied[2]]) == 14, "one more"
    before = LogEntry(9, 1, 9, b"anything")
    assert comparison.contradicts(8, [before]) is None, "from before it began: others are asked"
    assert comparison.contradicts(8, [before, *applied]) is None
    assert comparison.contradicts(8, [before, applied[0], other]) == 13


def test_those_of_a_reloaded_state_begin_with_it() -> None:
    comparison = Comparison(lambda _: False, begun=100)
    comparison.note(LogEntry(120, 1, 1, b"p"))
    assert (comparison.begins, set(comparison.prints(comparison.begins, 120))) == (100, {120})


def spoil(agents: Agents, member: int, state: State, name: str) -> int:
    """On that member's disk the topic has another name, of the same length; at which revision."""
    entries, _ = agents.server.read(0, 10**6)
    for entry in entries:
        if name.encode() in entry.payload:
            other = entry.payload.replace(name.encode(), name.upper().encode())
            agents.server.alter(member, replace(entry, payload=other))
            return entry.revision
    raise AssertionError(name)


async def diverging(agents: Agents, name: str) -> Replica:
    """An agent that starts at the member whose disk differs; it has not started."""
    made = agents.make(name)
    agents.logs[name].member = 2
    return made


async def test_who_starts_at_another_log_is_found_out_before_it_serves(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await a.propose(topic("sound"))
    revision = spoil(agents, 2, a.state, "sound")
    c = await diverging(agents, "c")
    served: list[bool] = []
    c.doubt.on_doubt.append(lambda: served.append(c.ready))
    await c.start(registration("c"))
    assert served == [False], "it was told, and not ready"
    assert "sound" in c.state.topics
    assert "SOUND" not in c.state.topics
    assert c.doubt.counts["rebuilt"] == 1
    assert agents.logs["c"].member != 2
    await a.propose(topic("later"))
    for each in (a, b, c):
        await each.barrier()
        assert each.ready
        assert each.state.hash_at(revision) is not None or each is c
    assert len({each.state.hash_at(a.state.revision) for each in (a, b, c)}) == 1
    assert (a.doubt.counts["rebuilt"], b.doubt.counts["rebuilt"]) == (0, 0)


async def test_the_others_go_on_and_ask_once(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await a.propose(topic("sound"))
    spoil(agents, 2, a.state, "sound")
    sent_away: list[str] = []
    for name, each in (("a", a), ("b", b)):
        each.on_wake.append(lambda name=name: sent_away.append(name))  # type: ignore[misc]  # a default
    c = await diverging(agents, "c")
    await c.start(registration("c"))
    await c.propose(topic("by-c"))
    await a.barrier()
    assert sent_away == []
    assert {each.doubt.counts["sound"] for each in (a, b)} <= {0, 1}
    assert a.doubt.counts["wrong"] == a.doubt.counts["unknown"] == 0


async def test_without_the_comparison_another_topic_is_served(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the above."""
    monkeypatch.setattr(Comparison, "heard", lambda self, applied, state: None)
    monkeypatch.setattr(Comparison, "others", lambda self, state: [])
    a = await agents.start("a")
    await a.propose(topic("sound"))
    spoil(agents, 2, a.state, "sound")
    c = await diverging(agents, "c")
    await c.start(registration("c"))
    assert "SOUND" in c.state.topics
    assert c.ready


async def test_one_against_one_and_the_members_cannot_tell(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stop serving; as soon as a third member answers, the right one and then the other go on."""
    a = await agents.start("a")
    await a.propose(topic("sound"))
    spoil(agents, 2, a.state, "sound")
    copies = agents.server.copy
    monkeypatch.setattr(
        agents.server, "copy", lambda member, *rest: copies(member, *rest) if member else None
    )
    c = await diverging(agents, "c")
    turned: list[str] = []
    monkeypatch.setattr(agents.logs["c"], "turn_from", turned.append)  # nor does it find another one
    starting = asyncio.ensure_future(c.start(registration("c")))
    await until(lambda: c.doubt.counts["unknown"] and a.doubt.counts["unknown"])
    assert not c.ready
    assert not a.ready
    assert a.doubt.reason
    assert not a.check_awake()
    with pytest.raises(Unavailable, match="in doubt"):
        await a.barrier()
    monkeypatch.undo()
    await starting
    await until(lambda: a.ready and c.ready)
    assert "sound" in c.state.topics
    assert a.state.topics.keys() == c.state.topics.keys()


async def test_memory_that_turned_is_made_anew(agents: Agents) -> None:
    """No copy of the log differs: most agents say who is wrong."""
    made = [await agents.start(name) for name in "abc"]
    c = made[2]
    c.state.digest = bytes(16)
    await made[0].propose(topic("t"))
    await until(lambda: c.doubt.counts["rebuilt"])
    await until(lambda: c.ready)
    assert [each.doubt.counts["rebuilt"] for each in made] == [0, 0, 1]
    await made[0].propose(topic("u"))
    await c.barrier()
    assert c.state.hash_at(made[0].state.revision) == made[0].state.hash


async def test_two_whose_memories_differ_both_make_theirs_anew(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    b.state.digest = bytes(16)
    await a.propose(topic("t"))
    await until(lambda: a.doubt.counts["rebuilt"] and b.doubt.counts["rebuilt"])
    await until(lambda: a.ready and b.ready)
    await a.propose(topic("u"))
    await b.barrier()
    assert b.state.hash_at(a.state.revision) == a.state.hash


async def test_an_entry_of_one_copy_that_cannot_be_read_does_not_end_the_agent(agents: Agents) -> None:
    a = await agents.start("a")
    await a.propose(topic("t"))
    entry = agents.server.read(0, 10**6)[0][-1]
    agents.server.alter(2, replace(entry, payload=b"\xff" + entry.payload))
    c = await diverging(agents, "c")
    await c.start(registration("c"))
    assert c.ready
    assert "t" in c.state.topics
    assert not c.failed.done()


async def test_no_snapshot_of_a_state_that_nobody_else_has(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b", confirm_s=0.5)
    keeper = SnapshotKeeper(b, agents.logs["b"], agents.store)
    await a.propose(topic("t"))
    async with a.applying:  # it lives, and hears nothing new
        await b.propose(topic("u"))
        with pytest.raises(Unavailable, match="said that it has the same state"):
            await keeper.write()
    assert not [key for key in agents.store._objects if key.startswith(SNAPSHOTS)]
    assert await keeper.write()


async def test_no_snapshot_of_a_state_that_was_made_anew_meanwhile(agents: Agents) -> None:
    made = [await agents.start(name) for name in "abc"]
    c = made[2]
    c.state.digest = bytes(16)
    keeper = SnapshotKeeper(c, agents.logs["c"], agents.store)
    async with c.applying:  # the dispute comes while the snapshot is written
        await made[0].propose(topic("t"))
        writing = asyncio.ensure_future(keeper.write())
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await writing
    await until(lambda: c.doubt.counts["rebuilt"])
    assert not [key for key in agents.store._objects if key.startswith(SNAPSHOTS)]


async def test_a_snapshot_is_not_put_off_for_ever_where_the_others_are_mute(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_keeper, "UNCONFIRMED_S_MAX", 0.0)
    a, b = await agents.start("a"), await agents.start("b", confirm_s=0.5)
    keeper = SnapshotKeeper(b, agents.logs["b"], agents.store)
    async with a.applying:
        await b.propose(topic("u"))
        assert await keeper.write()


async def test_no_piece_of_entries_that_were_not_applied(agents: Agents) -> None:
    a, b = await agents.start("a"), await agents.start("b")
    await a.propose(topic("sound"))
    await b.barrier()
    spoil(agents, 2, a.state, "sound")
    agents.logs["b"].member = 2  # what it applied was right; what it reads again is not
    job = LogArchive(b, agents.logs["b"], agents.store, SOON)
    with pytest.raises(Unavailable, match="what was applied there"):
        await job._look()
    assert not job.counts.pieces
    agents.logs["b"].member = 0
    await job._look()
    assert job.counts.pieces


async def begun_behind(agents: Agents, name: str) -> tuple[Replica, LogArchive]:
    """An agent at the member with another disk, whose state begins behind what differs there; its job."""
    a, b = await agents.start("a"), await agents.start("b")
    await a.propose(topic("sound"))
    await b.barrier()
    revision = await SnapshotKeeper(b, agents.logs["b"], agents.store).write()
    assert spoil(agents, 2, a.state, "sound") <= revision
    c = await diverging(agents, name)
    await c.start(registration(name))
    assert c.vouches_above >= revision
    assert not c.doubt.counts, "its state is right, and nobody contradicts it"
    return c, LogArchive(c, agents.logs[name], agents.store, SOON)


async def archived(agents: Agents) -> bytes:
    """All payloads of all pieces."""
    pieces = await listed(agents.store, log_folder(await agents.logs["a"].identity()))
    found = [await fetched(agents.store, each.id) for each in pieces]
    return b"".join(entry.payload for piece in found for entry in piece.entries())


async def test_no_piece_of_what_was_read_from_before_the_state_and_one_copy_only_has(agents: Agents) -> None:
    _, job = await begun_behind(agents, "c")
    with pytest.raises(Unavailable, match="not as most copies of the log have them"):
        await job._look()
    assert not job.counts.pieces
    assert agents.logs["c"].member != 2
    await job._look()
    assert job.counts.pieces
    assert b"sound" in await archived(agents)
    assert b"SOUND" not in await archived(agents)


async def test_nor_while_most_copies_are_mute_but_for_some_time(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = await begun_behind(agents, "c")
    log = agents.logs["c"]
    log.member = 0
    told = log.copies

    async def most_are_mute(after: int, through: int) -> Mapping[str, Copy | None]:
        return {name: copy if name == "0" else None for name, copy in (await told(after, through)).items()}

    monkeypatch.setattr(log, "copies", most_are_mute)
    with pytest.raises(Unavailable, match="do not say"):
        await job._look()
    assert not job.counts.pieces
    monkeypatch.setattr(keeper, "UNCONFIRMED_S_MAX", 0.05)
    await asyncio.sleep(0.1)
    job._let_go()
    with pytest.raises(Unavailable, match="do not say"):
        await job._look()  # another term of the claim waits anew
    assert not job.counts.pieces
    await asyncio.sleep(0.1)
    await job._look()
    assert job.counts.pieces
    assert b"sound" in await archived(agents)


async def test_an_agent_of_before_is_not_waited_for(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    from coordination.replica import author

    told = author.payload
    monkeypatch.setattr(author, "payload", lambda batch, ms, revision, *_, **__: told(batch, ms, revision))
    a, b = await agents.start("a", ttl_s=1.0), await agents.start("b", ttl_s=1.0)
    await a.propose(topic("t"))
    await b.barrier()
    assert not b._follower.comparison.others(b.state)
    await b.confirm(b.revision)
