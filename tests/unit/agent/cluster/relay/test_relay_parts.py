"""The parts of a relay, each alone: what travels, what is kept, who is chosen, how long it is waited for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from agent.cluster.peers.wire import SIZE, PeerError, decode_request
from agent.cluster.relay.choice import Choice, choose
from agent.cluster.relay.ring import OVERHEAD_BYTES, Ring
from agent.cluster.relay.stream import Left, Patience
from agent.cluster.relay.wire import (
    Follow,
    decode_follow,
    decode_items,
    encode_follow,
    encode_item,
    name_of,
)
from coordination.commands import EnterMetadata, LeaveMetadata, RegisterAgent
from coordination.log import LogEntry
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.unit.coordination.kit import Script

BEFORE = bytes(range(16))


def test_a_request_to_follow_comes_back_and_an_agent_of_before_refuses_it() -> None:
    request = encode_follow(name_of("etcd:1:/floe/a/"), 77)
    body = request[SIZE.size :]
    assert SIZE.unpack(request[: SIZE.size]) == (len(body),)
    assert decode_follow(body) == Follow(name_of("etcd:1:/floe/a/"), 77)
    with pytest.raises(PeerError):
        decode_request(body)
    for odd in (body + b"\0", body[:-1], body[:1] + b"\2" + body[2:]):
        with pytest.raises(PeerError, match="another version"):
            decode_follow(odd)


def test_every_bit_of_an_entry_is_under_its_seal() -> None:
    entry = LogEntry(5, 1 << 62, 3, b"payload")
    data = encode_item(entry, BEFORE)
    (item,) = decode_items(data, 0)
    assert (item.entry, item.before, item.whole) == (entry, BEFORE, True)
    for at in range(len(data) * 8):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        try:
            found = list(decode_items(bytes(changed), 0))
        except PeerError:
            continue
        assert not all(each.whole for each in found), f"bit {at}"


def test_a_frame_that_is_cut_short_is_refused() -> None:
    data = encode_item(LogEntry(5, 1, 3, b"payload"), BEFORE) * 2
    whole = len(data) // 2
    for size in range(1, len(data)):
        if size != whole:
            with pytest.raises(PeerError):
                list(decode_items(data[:size], 0))


def test_the_ring_gives_each_follower_everything_or_nothing() -> None:
    """Against a plain list of all that was added, by chance."""
    for seed in range(200):
        chance = Random(seed)
        ring, every = Ring(chance.choice((1, 2_000, 1 << 20))), []
        ring.begin(start := chance.randrange(5))
        revision = start
        followers: list[tuple[object, list[bytes], int]] = []
        for _ in range(60):
            step = chance.random()
            revision += chance.randint(1, 3)
            if step < 0.5:
                every.append((revision, item := b"%d" % revision * chance.randint(1, 9)))
                ring.add(revision, item)
            elif step < 0.6:
                ring.reach(revision)
            elif step < 0.75:
                after = chance.randint(start, revision)
                cursor = ring.find(after)
                if cursor is not None:
                    followers.append((cursor, [], after))
            for place, (cursor, got, after) in enumerate(followers):
                taken = ring.take(cursor, chance.choice((1, 1 << 20)))
                if taken is not None:
                    parts, through, cursor = taken
                    got += parts
                    followers[place] = (cursor, got, after)
                    assert got == [item for at, item in every if after < at <= through], seed
            assert ring.size <= max(ring._bytes_max, 40 + OVERHEAD_BYTES), "the newest one is kept always"
        assert ring.find(ring.through) is not None
        ring.end()
        assert (ring.size, ring.find(ring.through)) == (0, None)
        assert all(ring.take(cursor, 1) is None for cursor, _, _ in followers)
        ring.begin(revision)
        assert all(ring.take(cursor, 1) is None for cursor, _, _ in followers), "that was another life"


def zone(script: Script, count: int, name: str = "z", first: int = 1) -> list[int]:
    numbers = list(range(100 + first, 100 + first + count))
    for number in numbers:
        script.one(
            number,
            RegisterAgent(
                name=f"agent-{number}",
                node_id=-1,
                feature_max=FEATURE_LEVEL_MAX,
                zone=name,
                peer_address=f"host:{number}",
                joining=True,
            ),
        )
        script.one(number, EnterMetadata())
    return numbers


def test_all_of_a_zone_choose_the_same_and_it_chooses_itself() -> None:
    script = Script()
    a, b, c = zone(script, 3)
    zone(script, 2, "y", first=50)
    chosen = {each: choose(script.state, each, "z", 3) for each in (a, b, c)}
    assert chosen == {a: Choice(a, ""), b: Choice(a, f"host:{a}"), c: Choice(a, f"host:{a}")}
    assert choose(script.state, a, "z", 4) is None, "too few"
    assert choose(script.state, 0, "z", 2) is None, "who is not registered has no zone"
    assert choose(script.state, 999, "z", 2) is None


def test_who_leaves_or_is_unwell_or_unreachable_is_not_chosen() -> None:
    script = Script()
    a, b, c = zone(script, 3)
    script.one(a, LeaveMetadata())
    assert choose(script.state, c, "z", 2) == Choice(b, f"host:{b}")
    second = next(each for each in script.state.brokers.values() if each.incarnation == b)
    script.state.brokers[second.node_id] = replace(second, unwell="no store")
    assert choose(script.state, b, "z", 2) == Choice(c, f"host:{c}")
    for node, broker in list(script.state.brokers.items()):
        script.state.brokers[node] = replace(broker, unwell="no store")
    assert choose(script.state, b, "z", 2) is None, "who is not well hears of little"
    for node, broker in list(script.state.brokers.items()):
        script.state.brokers[node] = replace(broker, unwell="", peer_address="")
    assert choose(script.state, b, "z", 2) is None


def test_patience_counts_only_while_the_relay_is_waited_for() -> None:
    patience = Patience(behind_s=1.0, silent_s=4.0)
    for _ in range(100):
        patience.look(0.0, 5, 10)  # it is this agent that is slow
    for _ in range(4):
        patience.look(60.0, 5, 20)  # a pause counts as one look
        if patience._late_s >= 0.75:
            break
    with pytest.raises(Left, match=r"revision 5, .* at 10"):
        patience.look(0.25, 5, 20)


def test_a_relay_that_gets_there_is_not_behind() -> None:
    patience = Patience(behind_s=1.0, silent_s=4.0)
    for revision in range(1, 100):
        patience.look(0.25, revision, revision + 1)


def test_silence_ends_with_a_frame() -> None:
    patience = Patience(behind_s=1.0, silent_s=1.0)
    for _ in range(10):
        for _ in range(3):
            patience.waited()
        patience.heard()
    for _ in range(3):
        patience.waited()
    with pytest.raises(Left, match="said nothing"):
        patience.waited()
