"""Agents that follow one of their zone: they see what those see that follow etcd, whatever the relay does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.cluster.peers import standing
from agent.cluster.relay import log, serving
from agent.cluster.relay.log import RelayedLog
from agent.cluster.relay.ring import Ring
from agent.cluster.relay.wire import decode_items, encode_item, name_of
from coordination.log import LogEntry, LogRegressed
from tests.unit.agent.cluster.relay.bed import Agent, Bed, until

SOON = {"behind_ms_max": 200}


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    made = Bed()
    yield made
    await made.stop()


def altered(entry: LogEntry) -> LogEntry:
    """Another payload that a state takes: the stamp of its author."""
    changed = bytearray(entry.payload)
    at = changed.index(0x20) + 1  # field 4, proposed_ms
    changed[at] ^= 1
    return LogEntry(entry.revision, entry.incarnation, entry.sequence, bytes(changed))


def instead(agent: Agent, item: object) -> None:
    """The relay keeps `item(bytes)` of the next entry, or nothing for None, and is honest again."""
    ring, real = agent.log.ring, Ring.add

    def add(revision: int, data: bytes) -> None:
        del ring.add
        found = item(data)
        if found is None:
            ring.reach(revision)
        else:
            real(ring, revision, found)

    ring.add = add


async def test_the_zone_follows_one_of_them_and_everybody_agrees(bed: Bed) -> None:
    agents = await bed.zone_of(4)
    before = [each.log.by_relay for each in agents]
    await bed.agree()
    assert not agents[0].by_relay
    assert agents[0].relaying.server.followers == 3
    assert all(each.log.by_relay > had for each, had in zip(agents[1:], before[1:], strict=True))
    assert [each.reasons for each in agents] == [{}] * 4
    assert len(bed.server._watches) == 1, "the log's server sends what is new once"
    counts = agents[0].relaying.counts()
    assert counts["relay_followers"] == 3
    assert counts["relay_sent_bytes"] > 0
    assert counts["relay_kept_bytes"] == agents[0].log.ring.size > 0
    assert agents[1].relaying.counts()["relay_followed"] == 1


async def test_each_zone_has_its_own_and_a_small_one_none(bed: Bed) -> None:
    first = await bed.zone_of(2)
    other = [await bed.add("y") for _ in range(2)]
    lonely = await bed.add("x")
    await until(lambda: other[1].by_relay)
    await bed.agree()
    assert other[1].log.stream.choice.incarnation == other[0].replica.incarnation
    assert not lonely.by_relay
    assert not lonely.log.ring.open, "nobody would follow it"
    assert first[1].by_relay


async def test_an_entry_that_was_damaged_on_its_way_is_not_applied(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    instead(relay, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    await bed.agree()
    await until(lambda: follower.reasons == {"damaged": 1})
    await bed.agree()


async def test_an_entry_that_is_hidden_is_missed_by_the_next_one(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    instead(relay, lambda data: None)
    await bed.agree()
    await until(lambda: follower.reasons == {"differs": 1})
    await bed.agree()


async def test_progress_is_believed_no_further_than_etcd_told(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    relay.log.ring.reach(1 << 40)
    await bed.agree()
    assert follower.replica.revision < 1 << 40


async def test_a_reader_does_not_miss_the_newest_entry_that_its_relay_hides(bed: Bed) -> None:
    """It says that there is nothing; etcd says that there is."""
    relay, follower = await bed.zone_of(2, **SOON)
    other = await bed.add("elsewhere")
    relay.log.ring.add = lambda revision, data: relay.log.ring.reach(revision)
    await bed.agree()
    name = await bed.write(other)
    await follower.replica.barrier()
    assert name in follower.replica.state.topics
    del relay.log.ring.add
    await until(lambda: bool(follower.reasons))


async def test_who_was_lied_to_stops_and_the_others_go_on(bed: Bed) -> None:
    """A payload of its own under a seal of its own: the next hash tells, and etcd says who is right."""
    relay, follower = await bed.zone_of(2)
    other = await bed.add("elsewhere")

    def lie(data: bytes) -> bytes:
        (item,) = decode_items(data, 0)
        return encode_item(altered(item.entry), item.before)

    instead(relay, lie)
    await bed.write(other)
    await until(follower.replica.failed.done)
    with pytest.raises(LogRegressed, match="etcd does not have so"):
        follower.replica.failed.result()
    bed.agents.remove(follower)
    await bed.agree()
    await follower.stop()


async def test_a_relay_that_hears_nothing_any_more_is_left(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2, **SOON)
    other = await bed.add("elsewhere")
    relay.memory_log.faults.partitioned = True
    name = await bed.write(other)
    await follower.replica.barrier()
    assert name in follower.replica.state.topics
    await until(lambda: follower.reasons == {"behind": 1})
    relay.memory_log.faults.partitioned = False
    await bed.agree()


async def test_a_relay_that_is_late_is_left(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2, **SOON)
    relay.memory_log.faults.delivery_delay_s = 0.8
    other = await bed.add("elsewhere")
    await bed.write(other)
    await follower.replica.barrier()
    await until(lambda: "behind" in follower.reasons)
    relay.memory_log.faults.delivery_delay_s = 0.0
    await bed.agree()


async def test_a_relay_that_is_bad_again_is_left_alone_for_longer_each_time(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes who comes, and is behind a moment later: to be taken shows nothing."""
    relay, follower = await bed.zone_of(2, **SOON)
    now, rests = [0.0], list[float]()
    follower.log._standings = known = standing.Standings(lambda: now[0])
    other = await bed.add("elsewhere")
    relay.log.ring.add = lambda revision, data: None
    relay.log.ring.reach = lambda through: None
    for count in (1, 2, 3):
        await until(lambda: follower.by_relay)
        await bed.write(other)
        await follower.replica.barrier()
        await until(lambda count=count: follower.reasons == {"behind": count})
        rests += [each.rest_s for each in known._failing.values()]
        now[0] += standing.REST_S_MAX
    assert rests == [standing.REST_S, 2 * standing.REST_S, 4 * standing.REST_S]
    del relay.log.ring.add, relay.log.ring.reach
    monkeypatch.setattr(log, "SHOWN_S", 0.0)
    await until(lambda: follower.by_relay and not known._failing)
    await bed.agree()


async def test_a_relay_that_is_left_for_no_fault_is_asked_again(bed: Bed) -> None:
    """It failed before, and follows again; another one is chosen before it has shown that it is well."""
    _, follower = await bed.zone_of(2)
    address = follower.log.stream.choice.address
    follower.log._standings._failing[address] = failing = standing._Failing(0.0, 6.0, trying=True)
    zone = follower.log._zone
    follower.log._zone = replace(zone, choose=lambda: None)
    await until(lambda: follower.reasons == {"moved": 1})
    follower.log._zone = zone
    await until(lambda: follower.by_relay)
    assert failing.rest_s == 6.0, "nor is it forgotten"
    await bed.agree()


async def test_a_relay_that_is_gone_is_left_at_once(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    await relay.server.stop()
    await until(lambda: follower.reasons == {"gone": 1})
    await bed.agree()


async def test_a_relay_that_says_nothing_is_left(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BEAT_S", 3600.0)
    relay, follower = await bed.zone_of(2, silence_ms_max=1_000)
    relay.log.ring.wake = lambda: None  # its connections stay, and nothing comes
    await until(lambda: follower.reasons == {"silent": 1})
    del relay.log.ring.wake
    await bed.agree()


async def test_a_new_relay_follows_one_that_leaves(bed: Bed) -> None:
    first, second, third = await bed.zone_of(3)
    bed.agents.remove(first)
    await first.stop()
    await until(lambda: third.by_relay and third.log.stream.choice.address != "")
    await until(lambda: not second.by_relay and second.relaying.server.followers == 1)
    await bed.agree()


async def test_a_relay_that_was_fenced_harms_nobody(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    fenced = relay.replica.incarnation
    bed.server.expire(fenced)
    await until(lambda: relay.replica.incarnation not in (0, fenced))
    await bed.agree()
    assert follower.replica.ready


@pytest.mark.parametrize("odd", [{"secret": b"o" * 32}, {"followers_max": 1}])
async def test_who_is_not_let_in_follows_etcd(bed: Bed, odd: dict[str, object]) -> None:
    full = {each: value for each, value in odd.items() if each != "secret"}
    await bed.zone_of(2, **full)
    third = await bed.add(**odd)
    await until(lambda: third.log.left["refused"] > 0)
    await bed.agree()
    assert not third.by_relay


async def test_another_log_is_not_followed(bed: Bed) -> None:
    agents = await bed.zone_of(2)
    stranger = Agent(bed, "stranger", "z", b"s" * 32, {})
    bed.agents.append(stranger)
    identity = stranger.memory_log.identity
    stranger.memory_log.identity = lambda: _named(identity)
    await stranger.start()
    await until(lambda: stranger.log.left["refused"] > 0)
    assert stranger.log.name != agents[0].log.name
    assert not stranger.by_relay


async def _named(identity: object) -> str:
    return f"{await identity()}, restored"


async def test_who_falls_behind_what_is_kept_follows_etcd(bed: Bed) -> None:
    relay, follower = await bed.zone_of(2)
    relay.log.ring._bytes_max = 1
    follower.log.stream._link.streams[1].transport.pause_reading()
    real = relay.relaying.server._send
    relay.relaying.server._send = lambda writer, parts: None
    for _ in range(3):
        await bed.write(relay)
    relay.relaying.server._send = real
    follower.log.stream._link.streams[1].transport.resume_reading()
    await bed.agree()


async def test_without_a_zone_it_is_the_log_below(bed: Bed) -> None:
    agent = await bed.add("x")
    assert isinstance(agent.log, RelayedLog)
    assert agent.log.name == name_of(f"memory:{bed.server.name}")
    assert await agent.log.current() == bed.server.revision
    assert await agent.log.members() == bed.server.members()
    assert await agent.log.trimmed() == 0
