"""The server-side assignors: everything given once, balanced, sticky, the same on every agent."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.kafka.groups.consumer.assignors import (
    ASSIGNORS,
    Sizes,
    Subscriber,
    range_assignor,
    uniform_assignor,
)
from coordination.state.consumer_types import Assignment

TOPICS = [bytes([number]) * 16 for number in range(4)]
A, B = TOPICS[:2]
sizes_of = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in TOPICS})
wishes = st.sets(st.sampled_from(TOPICS)).map(lambda chosen: tuple(sorted(chosen)))


def members(wanted: list[tuple[bytes, ...]], before: dict[str, Assignment] | None = None) -> list[Subscriber]:
    return [
        Subscriber(f"m{number:03}", None, topics, (before or {}).get(f"m{number:03}", {}))
        for number, topics in enumerate(wanted)
    ]


def rows(share: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in share.items() for number in numbers}


def given_once(found: dict[str, Assignment], group: list[Subscriber], sizes: Sizes) -> None:
    counted = Counter(row for share in found.values() for row in rows(share))
    wanted = {topic for member in group for topic in member.topics}
    assert counted == {(topic, number): 1 for topic in wanted for number in range(sizes[topic])}
    for member in group:
        assert found[member.member_id].keys() <= set(member.topics)


@given(st.lists(wishes, min_size=1, max_size=8), sizes_of, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_goes_to_one_who_wants_it(
    wanted: list[tuple[bytes, ...]], sizes: Sizes, name: str
) -> None:
    group = members(wanted)
    found = ASSIGNORS[name](group, sizes)
    given_once(found, group, sizes)
    assert ASSIGNORS[name](list(reversed(group)), sizes) == found


@given(st.lists(wishes, min_size=1, max_size=8), st.lists(wishes, min_size=1, max_size=8), sizes_of)
def test_uniform_leaves_nobody_who_could_be_relieved(
    old: list[tuple[bytes, ...]], new: list[tuple[bytes, ...]], sizes: Sizes
) -> None:
    group = members(new, uniform_assignor(members(old), sizes))
    found = uniform_assignor(group, sizes)
    given_once(found, group, sizes)
    loads = {name: len(rows(share)) for name, share in found.items()}
    for one in group:
        for other in group:
            if found[one.member_id].keys() & set(other.topics):
                assert loads[one.member_id] - loads[other.member_id] < 2
    again = members(new, found)
    assert uniform_assignor(again, sizes) == found, "nothing moves when nothing changed"


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 40))
def test_one_member_more_moves_only_its_share(count: int, first: int, second: int) -> None:
    sizes = {A: first, B: second}
    before = uniform_assignor(members([(A, B)] * count), sizes)
    after = uniform_assignor(members([(A, B)] * (count + 1), before), sizes)
    moved = sum(len(rows(before[name]) - rows(after[name])) for name in before)
    assert moved == (first + second) // (count + 1)


@given(st.integers(2, 12), st.integers(1, 40))
def test_one_member_less_moves_only_what_it_had(count: int, size: int) -> None:
    before = uniform_assignor(members([(A,)] * count), {A: size})
    after = uniform_assignor(members([(A,)] * (count - 1), before), {A: size})
    for name, share in after.items():
        assert rows(before[name]) <= rows(share)


def test_range_gives_equal_topics_equal_numbers_and_static_members_come_first() -> None:
    group = [
        Subscriber("x", None, (A, B)),
        Subscriber("z", "i1", (A, B)),
        Subscriber("y", "i2", (A, B)),
    ]
    assert range_assignor(group, {A: 7, B: 7}) == {
        "z": {A: (0, 1, 2), B: (0, 1, 2)},
        "y": {A: (3, 4), B: (3, 4)},
        "x": {A: (5, 6), B: (5, 6)},
    }


def test_range_gives_nothing_to_members_beyond_the_partitions() -> None:
    group = [Subscriber("a", None, (A,)), Subscriber("b", None, (A,)), Subscriber("c", None, ())]
    assert range_assignor(group, {A: 1}) == {"a": {A: (0,)}, "b": {}, "c": {}}


def test_nobody_gets_nothing() -> None:
    assert uniform_assignor([], {}) == {} == range_assignor([], {})


def test_who_comes_soonest_gives() -> None:
    """One more in ten members that have ten each: nine of them give one, and those are heard first."""
    sizes = {A: 100}
    names = [f"m{number}" for number in range(10)]
    before = uniform_assignor([Subscriber(name, None, (A,)) for name in names], sizes)
    due = {name: float(7 * place % 10) for place, name in enumerate(names)}
    group = [Subscriber(name, None, (A,), before[name], due[name]) for name in names]
    found = uniform_assignor([*group, Subscriber("new", None, (A,))], sizes)
    assert Counter(len(rows(share)) for share in found.values()) == {10: 1, 9: 10}
    keeps = [name for name in names if found[name] == before[name]]
    assert keeps == [max(names, key=due.__getitem__)]
