"""Which column is whose where fields change names: whatever their order, as long as the table is there."""

from __future__ import annotations

import random

import pytest

from iceberg.column_ids import VALUE_ID, ColumnIds, Names
from iceberg.mapping import Field, Kind, Leaf

Named = str | tuple[str, str]
"""A field, or one with what it was called before."""


def fields(*names: Named) -> list[Field]:
    pairs = [(each, "") if isinstance(each, str) else each for each in names]
    return [
        Field(at, name, Leaf(Kind.INT64), True, known_as=name, aliases=(former,) if former else ())
        for at, (name, former) in enumerate(pairs)
    ]


def take(ids: ColumnIds, *names: Named) -> list[int]:
    return ids.take(VALUE_ID, fields(*names), "R")


def kept(ids: ColumnIds) -> ColumnIds:
    """As a table's properties hold them."""
    return ColumnIds.from_json(ids.to_json())


RENAMED = ("cost", "price")


@pytest.mark.parametrize("cost", ["cost", RENAMED], ids=["forgotten", "alias"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_renamed_field_keeps_its_column_before_a_new_one_of_its_former_name(
    turned: bool, cost: Named
) -> None:
    ids = ColumnIds()
    (column,) = take(ids, "price")
    assert take(ids, RENAMED) == [column]
    ids, both = kept(ids), [cost, "price"]
    found = take(ids, *(reversed(both) if turned else both))
    assert found == ([column + 1, column] if turned else [column, column + 1])
    for each in (ids, kept(ids)):
        assert take(each, "price") == [column], "the version before the rename"
        assert take(each, RENAMED) == [column]
        assert take(each, "cost", "price") == [column, column + 1]
        assert each.last == column + 1


def test_a_name_that_goes_on_keeps_its_column_beside_a_field_that_had_it_before() -> None:
    for names in ((RENAMED, "price"), ("price", RENAMED)):
        ids = ColumnIds()
        (column,) = take(ids, "price")
        assert take(ids, *names) == [column + 1 if each == RENAMED else column for each in names]


def test_a_third_name_does_not_take_what_the_second_has() -> None:
    ids = ColumnIds()
    take(ids, "price")
    take(ids, RENAMED)
    take(ids, "price", "cost")
    assert take(ids, ("sum", "price"), RENAMED) == [16, 15]


def test_a_table_whose_columns_changed_places_keeps_them_so() -> None:
    """Before, a new field took the column of the renamed one that stood behind it: there are rows by that."""
    price: dict[int, Names] = {15: {"R": "price"}}
    cost_then: dict[int, Names] = {15: {"R": "cost"}, 16: {"R": "cost"}}
    ids = ColumnIds({"8.price:integer": price, "8.cost:integer": cost_then}, 16)
    for cost in ("cost", RENAMED):
        assert take(ids, "price", cost) == [15, 16]
        assert take(ids, cost, "price") == [16, 15]
        assert take(ids, cost) == [15]
    assert ids.last == 16


@pytest.mark.parametrize("seed", range(300))
def test_who_looks_finds_what_was_given(seed: int) -> None:
    """Of versions at random: two fields have no column together, nothing is given twice, none moves."""
    draw, ids, seen = random.Random(seed), ColumnIds(), []
    for _ in range(5):
        names = draw.sample("abcd", draw.randint(1, 4))
        some = fields(*((each, draw.choice("abcd ").strip()) for each in names))
        given = ids.take(VALUE_ID, some, "R")
        assert len({*given}) == len(given)
        before = ids.to_json()
        assert ids.find(VALUE_ID, some, "R") == ids.take(VALUE_ID, some, "R") == given
        assert ids.to_json() == before
        seen.append((some, given))
        for earlier, columns in seen:
            assert kept(ids).find(VALUE_ID, earlier, "R") == columns
