"""Leaders are hints: even, the same on every agent, near their clients, moved only when they must."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from dataclasses import replace

from agent.cluster.hints import KEY_CHARS_MAX, NO_BROKER, LeaderHints
from agent.cluster.places import KNOWN_AFTER_S, PLACES_MAX, Places
from agent.cluster.zones import zone_of
from agent.kafka.fetch.redirect import AGAIN_S, REPEAT_S, WHEREVER, Sent, elsewhere, suits
from coordination.clock import ManualClock
from coordination.state.types import BACKGROUND, FETCH, PRODUCE, ROLES, Broker, Endpoint

NEVER = float("-inf")
HANDLES = range(3000)


def broker(node: int, zone: str = "", roles: tuple[str, ...] = ROLES, *, named: bool = True) -> Broker:
    return Broker(node, f"a{node}", node, (), zone, "", "", roles, "", named)


def hints_of(*brokers: Broker) -> LeaderHints:
    known = {each.node_id: each for each in brokers}
    return LeaderHints(lambda: known)


def leaders(nodes: list[int]) -> list[int]:
    hints = hints_of(*map(broker, nodes))
    return [hints.leader(handle) for handle in HANDLES]


def test_no_broker_no_leader() -> None:
    assert set(leaders([])) == {NO_BROKER}
    assert hints_of().replicas(1) == ()
    assert hints_of().coordinator("group") == NO_BROKER


def test_every_agent_names_the_same_leader() -> None:
    assert leaders([3, 1, 2]) == leaders([2, 3, 1])


def test_partitions_spread_evenly() -> None:
    counts = Counter(leaders([1, 2, 3]))
    assert all(850 < counts[node] < 1150 for node in (1, 2, 3))


def test_only_the_partitions_of_an_agent_that_left_move_and_they_come_back_with_it() -> None:
    before, after = leaders([1, 2, 3]), leaders([1, 3])
    moved = [handle for handle in HANDLES if before[handle] != after[handle]]
    assert all(before[handle] == 2 for handle in moved)
    assert len(moved) == before.count(2)
    assert leaders([1, 3, 2]) == before, "a restart moves its own partitions out and back, nothing else"


def test_only_what_a_new_agent_takes_moves_to_it() -> None:
    before, after = leaders([1, 2, 3]), leaders([1, 2, 3, 4])
    assert all(a in (b, 4) for b, a in zip(before, after, strict=True))


def test_what_was_chosen_before_changes_no_choice() -> None:
    """Many changes of members, zones and roles, each looked at by some partitions only."""
    draw, known = random.Random(7), dict[int, Broker]()
    hints = LeaderHints(lambda: known)
    for _ in range(150):
        for node in draw.sample(range(12), draw.randrange(1, 3)):
            if node in known and draw.random() < 0.6:
                del known[node]
            else:
                known[node] = broker(
                    node, draw.choice(("", "a", "b")), draw.choice((ROLES, (FETCH,), (PRODUCE,)))
                )
        afresh = hints_of(*known.values())
        for handle in draw.sample(HANDLES[:40], draw.choice((0, 5, 30))):
            for zone in ("", "a", "b"):
                assert hints.leader(handle, zone) == afresh.leader(handle, zone)
                assert hints.reader(handle, zone) == afresh.reader(handle, zone)
                assert hints.replicas(handle, zone) == afresh.replicas(handle, zone)


def test_a_restart_among_many_agents_weighs_what_moved_and_not_all_of_them() -> None:
    known, handles = {node: broker(node) for node in range(100)}, HANDLES[:300]
    hints = LeaderHints(lambda: known)
    before = [hints.leader(handle) for handle in handles]
    assert hints.view().writers.weighed == 100 * len(handles)
    left = known.pop(before[0])
    moved = before.count(before[0])
    for handle in handles:
        hints.leader(handle)
    assert hints.view().writers.weighed == moved * 99 + (len(handles) - moved)
    known[before[0]] = left
    assert [hints.leader(handle) for handle in handles] == before
    assert hints.view().writers.weighed == 2 * len(handles)


def test_changes_that_nobody_looked_at_forget_nothing_and_keep_one_state_alone() -> None:
    known = {node: broker(node) for node in range(10)}
    hints = LeaderHints(lambda: known)
    first = [hints.leader(handle) for handle in HANDLES]
    gone = weakref.ref(hints.view().writers)
    for node in (10, 11, 12):
        known[node] = broker(node)
        hints.view()
    assert gone() is not None, "it is what is compared with"
    assert [hints.leader(handle) for handle in HANDLES] != first
    assert hints.view().writers.weighed == 4 * len(HANDLES), "the one before and the three that came"
    known[13] = broker(13)
    hints.leader(1)
    gc.collect()
    assert gone() is None


def test_hints_follow_the_set_of_brokers() -> None:
    known = {7: broker(7)}
    hints = LeaderHints(lambda: known)
    assert (hints.leader(1), hints.coordinator("a-group"), hints.replicas(1)) == (7, 7, (7,))
    known[8] = broker(8)
    del known[7]
    assert (hints.leader(1), hints.coordinator("a-group"), hints.replicas(1)) == (8, 8, (8,))


def test_a_client_of_a_zone_is_led_within_it() -> None:
    hints = hints_of(broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "b"), broker(5, "c"))
    assert {hints.leader(handle, "a") for handle in HANDLES} == {1, 2}
    assert {hints.leader(handle, "c") for handle in HANDLES} == {5}
    assert {hints.leader(handle) for handle in HANDLES} == {1, 2, 3, 4, 5}
    assert all(hints.leader(h, "elsewhere") == hints.leader(h) for h in HANDLES), "a zone without agents"
    assert hints.view("b").nodes == [3, 4]


def test_replicas_name_the_leader_first_and_an_agent_of_every_zone() -> None:
    """KIP-881: assignors match members and partitions by the racks of the replicas."""
    zones = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    hints = hints_of(*(broker(node, zone) for node, zone in zones.items()))
    for handle in HANDLES[:200]:
        for zone in ("", "a", "b", "c", "elsewhere"):
            replicas = hints.replicas(handle, zone)
            assert replicas[0] == hints.leader(handle, zone)
            assert {zones[node] for node in replicas} == {"a", "b", "c"}
            assert {hints.leader(handle, each) for each in "abc"} <= set(replicas)


def test_without_zones_the_leader_is_the_only_replica() -> None:
    hints = hints_of(broker(1), broker(2), broker(3))
    assert all(hints.replicas(handle) == (hints.leader(handle),) for handle in HANDLES)


def test_members_of_all_zones_meet_at_one_coordinator() -> None:
    hints = hints_of(broker(1, "a"), broker(2, "b"), broker(3, "c", (BACKGROUND,)))
    assert {hints.coordinator(f"g{number}") for number in range(200)} == {1, 2}


def test_producers_go_to_producing_agents_and_consumers_to_fetching_ones() -> None:
    writer, reader, both = broker(1, "", (PRODUCE,)), broker(2, "", (FETCH,)), broker(3, "", (PRODUCE, FETCH))
    hints = hints_of(writer, reader, broker(9, "", (BACKGROUND,)))
    assert {hints.leader(handle) for handle in HANDLES} == {1}
    assert {hints.reader(handle) for handle in HANDLES} == {2}
    assert hints.replicas(5) == (1, 2), "clients follow only to a node that the replicas name"
    mixed = hints_of(writer, reader, both)
    assert {mixed.leader(handle) for handle in HANDLES} == {1, 3}
    assert {mixed.reader(handle) for handle in HANDLES} == {2, 3}
    assert hints_of(reader).leader(1) == 2, "any agent serves anything when there is no better one"


def test_nobody_is_sent_to_an_agent_that_is_not_warm_yet() -> None:
    hints = hints_of(broker(1), broker(2, named=False))
    assert {hints.leader(handle) for handle in HANDLES} == {1}
    assert hints.coordinator("g") == 1


def test_consumers_are_sent_to_their_own_zone_once_and_never_back() -> None:
    """KIP-392, and no loop: who is in the client's zone serves; nobody repeats himself to the deaf."""
    brokers = {node: broker(node, zone) for node, zone in ((1, "a"), (2, "b"), (3, "b"))}
    hints = LeaderHints(lambda: brokers)
    assert not suits(brokers[1], "b")
    sent: dict[int, Sent] = {}
    away = elsewhere(hints, brokers[1], "b", range(20), sent, 100.0, 0.0)
    assert away == {handle: hints.leader(handle, "b") for handle in range(20)}
    assert suits(brokers[2], "b")
    assert suits(brokers[3], "b"), "also when its own view of the zone names another agent"
    assert elsewhere(hints, brokers[1], "b", range(20), sent, 100.0 + REPEAT_S / 2, 0.0) == {}
    assert len(elsewhere(hints, brokers[1], "b", range(20), sent, 101.0 + REPEAT_S, 0.0)) == 20
    assert suits(brokers[1], ""), "a client without a zone stays where it is"


def test_a_fetch_of_many_partitions_looks_once_whether_brokers_have_changed() -> None:
    brokers = {node: broker(node, zone) for node, zone in ((1, "a"), (2, "b"))}
    looked: list[int] = []

    def now() -> dict[int, Broker]:
        looked.append(1)
        return brokers

    hints = LeaderHints(now)
    assert len(elsewhere(hints, brokers[1], "b", range(1_000), {}, 100.0, 0.0)) == 1_000
    assert len(looked) == 1


def test_a_consumer_whose_reader_left_is_sent_to_the_next_at_once() -> None:
    brokers = {node: broker(node, zone) for node, zone in ((1, "a"), (2, "b"), (3, "b"))}
    hints = LeaderHints(lambda: brokers)
    sent: dict[int, Sent] = {}
    first = elsewhere(hints, brokers[1], "b", [5], sent, 100.0, 0.0)[5]
    del brokers[first]
    assert elsewhere(hints, brokers[1], "b", [5], sent, 101.0, 0.0) == {5: 5 - first}
    assert elsewhere(hints, brokers[1], "b", [5], sent, 101.0 + AGAIN_S, 0.0) == {}


def test_nobody_is_sent_to_an_agent_that_moved_and_that_he_may_look_for_where_it_was() -> None:
    """A pod comes back under another address: librdkafka, sent to the one before, was lost for 20 s."""
    clock = ManualClock()
    began = clock.monotonic()
    brokers = {node: broker(node, zone) for node, zone in ((1, "a"), (2, "b"))}
    hints = LeaderHints(lambda: brokers, clock.monotonic)
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, NEVER) == {5: 2}, "where it was from the beginning"
    del brokers[2]
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, NEVER) == {}
    brokers[2] = broker(2, "b")
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, NEVER) == {5: 2}, "it came back where it was"
    brokers[2] = replace(brokers[2], listeners=(Endpoint("PLAINTEXT", "elsewhere", 9092),))
    clock.advance(100)
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, began) == {}, "he heard of all before it moved"
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, clock.monotonic()) == {5: 2}, "and since"
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, WHEREVER) == {5: 2}, "he comes back if need be"
    clock.advance(KNOWN_AFTER_S)
    assert elsewhere(hints, brokers[1], "b", [5], {}, 0.0, began) == {5: 2}, "of somebody else by now"


def test_places_that_are_remembered_are_bounded() -> None:
    places = Places(lambda: 7.0)
    places.see([broker(1)])
    places.see([broker(node) for node in range(2, PLACES_MAX + 10)])
    assert not places.found(1, 7.0)
    assert places.found(PLACES_MAX + 9, NEVER)


def test_coordinators_are_remembered_of_so_many_names_and_of_none_that_is_long() -> None:
    hints = hints_of(broker(1), broker(2))
    for number in range(100):
        name = f"{number}" + KEY_CHARS_MAX * "x"
        assert hints.coordinator(name) == hints.coordinator(name) != NO_BROKER
    hints.coordinator(KEY_CHARS_MAX * "x")
    assert list(hints._coordinators) == [KEY_CHARS_MAX * "x"]


def test_a_fetch_that_crossed_the_answer_is_answered_alike_and_the_deaf_are_served() -> None:
    """librdkafka moves a partition in a step of its own; another Fetch for it may be under way."""
    brokers = {node: broker(node, zone) for node, zone in ((1, "a"), (2, "b"))}
    hints = LeaderHints(lambda: brokers)
    sent: dict[int, Sent] = {}
    assert elsewhere(hints, brokers[1], "b", [5], sent, 100.0, 0.0) == {5: 2}
    assert elsewhere(hints, brokers[1], "b", [5], sent, 100.001, 0.0) == {5: 2}
    assert elsewhere(hints, brokers[1], "b", [5], sent, 100.002, 0.0) == {}, "twice is enough"
    assert elsewhere(hints, brokers[1], "b", [6], sent, 200.0, 0.0) == {6: 2}
    assert elsewhere(hints, brokers[1], "b", [6], sent, 200.0 + AGAIN_S, 0.0) == {}, (
        "it did not cross that answer"
    )


def test_a_consumer_at_an_agent_for_producing_is_sent_to_one_for_fetching() -> None:
    brokers = {1: broker(1, "a", (PRODUCE,)), 2: broker(2, "a", (FETCH,))}
    hints = LeaderHints(lambda: brokers)
    assert not suits(brokers[1], "")
    assert elsewhere(hints, brokers[1], "", [7], {}, 0.0, 0.0) == {7: 2}
    del brokers[2]
    assert elsewhere(hints, brokers[1], "", [7], {}, 0.0, 0.0) == {}, "nobody better lives"


def test_clients_say_their_zone_by_client_id_or_listener() -> None:
    assert zone_of("app,floe_zone=eu-1a,x=1") == "eu-1a"
    assert zone_of("floe_zone=b", "a") == "b"
    assert zone_of("app-floe_zone=b") == "b"
    assert zone_of("notfloe_zone=b", "a") == "a"
    assert zone_of("app", "a") == "a"
    assert zone_of(None) == ""
    assert zone_of("floe_zone=") == ""
