"""What a commit takes, what the ledger says, where files are: pure parts."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg import ledger
from iceberg.ledger import LedgerError, Range
from iceberg.plan import STEP, Bounds, CommitPlan, consistent, fitting, plan
from iceberg.warehouse import OutsideWarehouse, Warehouse, s3_client_config
from objectstore.adapters.memory import MemoryStore
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, SliceRef
from objectstore.transactions import Aborted
from objectstore.turns import at_once


@dataclass
class Slices:
    """Slices of ten records and a hundred bytes each."""

    count: int
    first_offset: int = 0

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """See coordination.state.slices."""
        first = offset // 10
        last = max(first + 1, min(self.count, first + max_bytes // 100))
        return [
            SliceRef(at * 10, at * 10 + 10, ChunkId(1, at), 0, 100, 0)
            for at in range(first, min(last, self.count))
        ]


@dataclass
class Part:
    """A partition of `count` slices."""

    index: int
    count: int
    log_start: int = 0
    slices: Slices = field(init=False)

    def __post_init__(self) -> None:
        self.slices = Slices(self.count)

    @property
    def last_stable(self) -> int:
        """Everything is stable."""
        return self.count * 10

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """See coordination.state.types."""
        return []


def planned(
    partitions: list[Part],
    known: list[int],
    rows_max: int,
    bytes_max: int,
    file_rows_max: int = 1000,
    **more: Any,
) -> CommitPlan:
    """A plan with room in its files."""
    return at_once(plan(partitions, known, {}, Bounds(rows_max, bytes_max, file_rows_max, 1000), **more))


def test_a_file_has_bounds_of_its_own() -> None:
    found = planned([Part(0, 30)], [], rows_max=1000, bytes_max=10_000, file_rows_max=25)
    assert ([each.range for each in found.files], found.more) == ([Range(0, 0, 25)], True)
    found = planned([Part(0, 30)], [], rows_max=1000, bytes_max=10_000)
    assert [each.range for each in found.files] == [Range(0, 0, 100)]


def test_a_plan_goes_on_from_the_ledger_and_shares_the_bounds() -> None:
    found = planned([Part(0, 3), Part(1, 3), Part(2, 1)], [30, 10], rows_max=1000, bytes_max=400)
    assert [each.range for each in found.files] == [Range(1, 10, 30), Range(2, 0, 10)]
    assert not found.more


def test_every_waiting_partition_gives_at_least_one_slice() -> None:
    found = planned([Part(0, 3), Part(1, 3)], [], rows_max=1000, bytes_max=1)
    assert [each.range for each in found.files] == [Range(0, 0, 10), Range(1, 0, 10)]
    assert found.more


def test_rows_are_cut_inside_a_slice_and_taken_up_there() -> None:
    first = planned([Part(0, 2)], [], rows_max=7, bytes_max=1000)
    assert [each.range for each in first.files] == [Range(0, 0, 7)]
    second = planned([Part(0, 2)], [7], rows_max=7, bytes_max=1000)
    assert [each.range for each in second.files] == [Range(0, 7, 14)]
    assert [each.base_offset for each in second.files[0].slices] == [0, 10]


@dataclass
class Watched(Slices):
    """Slices that count what they are asked for."""

    made: int = 0
    asked: int = 0

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """See Slices."""
        found = super().plan(offset, max_bytes)
        self.asked += 1
        self.made += len(found)
        return found


def many(count: int, slices: int) -> tuple[list[Part], list[Watched]]:
    """Partitions whose slices are counted."""
    parts = [Part(index, slices) for index in range(count)]
    watched = [Watched(slices) for _ in parts]
    for part, each in zip(parts, watched, strict=True):
        part.slices = each
    return parts, watched


WIDE = Bounds(1 << 30, 1 << 40, 1 << 30, 1 << 40)


def test_no_step_of_a_plan_is_long_and_each_slice_is_looked_at_once() -> None:
    """The event loop stood still for 0.3 s at each commit of a topic with 1,000 partitions of 60 slices."""
    parts, watched = many(200, 60)
    made: list[int] = []
    steps = plan(parts, [], {}, WIDE)
    while True:
        before = sum(each.made for each in watched)
        try:
            next(steps)
        except StopIteration as done:
            found: CommitPlan = done.value
            break
        finally:
            made.append(sum(each.made for each in watched) - before)
    assert max(made) <= STEP + 60
    assert [each.range for each in found.files] == [Range(index, 0, 600) for index in range(200)]
    assert sum(made) == 200 * 60
    assert {each.asked for each in watched} == {1}


def test_what_is_merged_between_two_steps_waits_for_the_next_plan() -> None:
    """Half of the partitions are merged once the first were looked at: no transaction with one is torn."""
    parts, watched = many(100, 60)
    extents = [{0: (0, 99), 99: (0, 99)}, {1: (0, 99), 2: (0, 99)}]
    steps = plan(parts, [], {}, WIDE, extents=extents)
    while not any(each.asked for each in watched):
        next(steps)
    late = {index for index in range(50, 100) if not watched[index].asked}
    for index in late:
        watched[index].first_offset = 30
    found = at_once(steps)
    assert 99 in late
    assert [each.range for each in found.files] == [
        Range(index, 0, 600) for index in range(1, 100) if index not in late
    ]
    assert (found.more, found.too_small) == (True, False), "partition 0 waits for 99"


def test_what_ends_between_two_steps_is_left_for_the_next_plan() -> None:
    """A transaction across two partitions of which only one was looked at: all ends are of one moment."""
    parts, watched = many(100, 60)
    extents: list[dict[int, tuple[int, int]]] = []
    steps = plan(parts, [], {}, WIDE, extents=extents)
    next(steps)
    for index in (0, 99):
        parts[index].count += 1
        watched[index].count += 1
    extents.append({0: (600, 609), 99: (600, 609)})
    assert {each.range.end for each in at_once(steps).files} == {600}


async def test_a_topic_that_goes_while_it_is_planned_is_not_looked_at_again() -> None:
    """The chunks of a deleted topic's slices may have no name any more."""

    @dataclass
    class Topic:
        partitions: list[Part]
        extents: list[dict[int, tuple[int, int]]] = field(default_factory=list)

    parts, watched = many(100, 60)
    looks = 0

    def there() -> bool:
        nonlocal looks
        looks = sum(each.asked for each in watched)
        return not looks

    assert await fitting(NO_MERGED, Topic(parts), [], WIDE, {}, there) is None
    assert 0 < looks < 100
    assert sum(each.asked for each in watched) == looks


NO_MERGED = MergedRanges(MemoryStore())


def test_what_the_topic_lost_is_passed_over() -> None:
    found = planned([Part(0, 3, log_start=20)], [5], rows_max=1000, bytes_max=1000)
    assert [each.range for each in found.files] == [Range(0, 20, 30)]


def test_nothing_new_is_an_empty_plan() -> None:
    assert planned([Part(0, 1)], [10], rows_max=1, bytes_max=1).files == ()


def test_a_transaction_is_taken_whole_or_not_at_all() -> None:
    """Offsets by partition: 0 to 30 and 0 to 30; the transactions lie across both."""
    parts = [Part(0, 3), Part(1, 3)]
    whole = {0: (5, 12), 1: (20, 25)}
    found = planned(parts, [], rows_max=20, bytes_max=1000, extents=[whole])
    assert [each.range for each in found.files] == [Range(0, 0, 5), Range(1, 0, 10)], (
        "ten of each would tear it"
    )
    found = planned(parts, [5, 10], rows_max=1000, bytes_max=1000, extents=[whole])
    assert [each.range for each in found.files] == [Range(0, 5, 30), Range(1, 10, 30)]
    assert not found.more


def test_one_transaction_out_takes_those_that_lean_on_it_along() -> None:
    chain = [{0: (0, 4), 1: (10, 15)}, {1: (12, 19), 2: (3, 8)}, {2: (6, 29)}]
    assert consistent({0: 30, 1: 20, 2: 30}, {0: 0, 1: 0, 2: 0}, chain) == {0: 30, 1: 20, 2: 30}
    assert consistent({0: 30, 1: 20, 2: 29}, {0: 0, 1: 0, 2: 0}, chain) == {0: 0, 1: 10, 2: 3}
    assert consistent({0: 30, 1: 20, 2: 29}, {0: 2, 1: 11, 2: 7}, chain) == {0: 2, 1: 11, 2: 7}, "never back"


def test_a_long_chain_of_transactions_is_followed_in_one_pass_over_it() -> None:
    """Each leans on the one before: what is looked at again and again would hold up the event loop."""

    class Counted(dict[int, tuple[int, int]]):
        looks = 0

        def items(self) -> Any:
            Counted.looks += 1
            return super().items()

    count = 500
    chain = [Counted({at: (10, 20), at + 1: (0, 5)}) for at in range(count)]
    ends = dict.fromkeys(range(count + 1), 30) | {0: 15}
    found = consistent(ends, dict.fromkeys(ends, 0), chain)
    assert found == {0: 10, **dict.fromkeys(range(1, count + 1), 0)}
    assert Counted.looks <= 4 * count


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_ends_are_the_highest_that_tear_nothing(data: st.DataObject) -> None:
    """Against the definition: lower what is torn, until nothing is."""
    numbers = st.integers(0, 12)
    starts = data.draw(st.fixed_dictionaries(dict.fromkeys(range(3), numbers)))
    ends = {index: data.draw(st.integers(start, 14)) for index, start in starts.items()}
    spans = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
    extents = data.draw(st.lists(st.dictionaries(st.integers(0, 2), spans, min_size=1), max_size=6))
    expected = dict(ends)
    while torn := [
        (index, max(first, starts[index]))
        for extent in extents
        if any(starts[at] <= marker >= expected[at] for at, (_, marker) in extent.items())
        for index, (first, marker) in extent.items()
        if marker >= starts[index] and expected[index] > max(first, starts[index])
    ]:
        index, first = torn[0]
        expected[index] = first
    assert consistent(ends, starts, extents) == expected


def test_a_transaction_larger_than_the_bounds_gets_several_files() -> None:
    parts = [Part(0, 30)]
    extents = [{0: (0, 249)}]
    found = planned(parts, [], rows_max=1000, bytes_max=1000, extents=extents)
    assert (found.files, found.more, found.too_small) == ((), True, True)
    found = planned(parts, [], rows_max=1000, bytes_max=1000, extents=extents, factor=4)
    assert [each.range for each in found.files] == [Range(0, 0, 100), Range(0, 100, 200), Range(0, 200, 300)]
    assert ledger.advance([], [each.range for each in found.files], 1) == [300]


def test_the_ledger_never_goes_back() -> None:
    assert ledger.advance([5], [Range(0, 5, 9), Range(2, 0, 1)], 3) == [9, 0, 1]
    with pytest.raises(LedgerError, match="overlaps"):
        ledger.advance([5], [Range(0, 4, 9)], 1)


def test_a_summary_says_what_it_was_told() -> None:
    summary = ledger.summary(b"\x01" * 16, [9, 0], [Range(0, 5, 9)], "me")
    metadata = {
        "location": "x",
        "current-snapshot-id": 1,
        "snapshots": [{"snapshot-id": 1, "summary": summary}],
    }
    assert ledger.next_offsets(metadata, b"\x01" * 16) == [9, 0]
    assert ledger.ranges(summary) == [Range(0, 5, 9)]
    with pytest.raises(LedgerError, match="no ledger of topic 0202"):
        ledger.next_offsets(metadata, b"\x02" * 16)
    with pytest.raises(LedgerError, match="not partition:start-end"):
        ledger.ranges({"floe.ranges": "1-2"})


@pytest.mark.parametrize(
    ("store", "location", "key"),
    [
        ("file:///data", "file:///data/tables/a", "tables/a"),
        ("file:///data", "file:/data/tables/a", "tables/a"),
        ("s3://bucket/cluster", "s3://bucket/cluster/tables/a", "tables/a"),
        ("s3://bucket/cluster", "s3a://bucket/cluster/tables/a", "tables/a"),
    ],
)
def test_locations_and_keys(store: str, location: str, key: str) -> None:
    assert Warehouse.of(store, f"{store}/tables").key(location) == key


@pytest.mark.parametrize(
    "location", ["s3://bucket/clusters/x", "s3://other/cluster/x", "s3://bucket/cluster/tables/../../x"]
)
def test_locations_outside_are_refused(location: str) -> None:
    with pytest.raises(OutsideWarehouse):
        Warehouse("s3://bucket/cluster").key(location)


def test_a_warehouse_lies_below_its_store() -> None:
    assert Warehouse.of("s3://b/c/", "s3://b/c/lake/").location == "s3://b/c/lake"
    with pytest.raises(OutsideWarehouse, match="not below"):
        Warehouse.of("s3://b/c", "s3://b/other")


def test_client_config_leaves_out_what_is_not_known() -> None:
    config = s3_client_config(endpoint="", access_key="", secret_key="", region="eu-1")
    assert config == {"s3.region": "eu-1", "client.region": "eu-1"}
