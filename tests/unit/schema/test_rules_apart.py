"""The few records of a batch that may break rules, taken out of it."""

from __future__ import annotations

import pytest

from objectstore.batch import NewRecord, build, records
from objectstore.compression import Compression
from schema.descriptors import MessageType
from schema.rules.apart import apart
from schema.rules.ruled import NO_RULES, Ruled, Run
from tests.unit.schema import samples

KIND = samples.message_type(samples.RULED_FLIGHTS, "nyc.Flight")
RECORDS = [NewRecord(1_000 + n, b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),)) for n in range(40)]
BATCH = memoryview(build(RECORDS))


def ruled(kind: MessageType = KIND, **places: list[int]) -> Ruled:
    """Records at these places, by role, may break the rules of their message, which begins at byte 2."""
    found = Ruled(places)
    for role, chosen in places.items():
        for place in range(len(RECORDS)):
            if place in chosen:
                found.note(role, place, kind, 2)
            else:
                found.pass_over(role, place)
    return found


def test_few_records_are_a_batch_of_their_own() -> None:
    found = apart(BATCH, ruled(value=[3, 17, 18]), 1 << 20, parted=False)
    assert found is not None
    assert (found.places, found.left) == ([3, 17, 18], None)
    alone = [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in records(found.batch)]
    assert alone == [(r.timestamp, r.key, r.value, r.headers) for r in (RECORDS[n] for n in found.places)]
    assert found.runs == {"value": [Run(0, 0, 2)]}


def test_runs_of_each_role_are_counted_anew() -> None:
    found = apart(BATCH, ruled(key=[5], value=[2, 9]), 1 << 20, parted=False)
    assert found is not None
    assert found.places == [2, 5, 9]
    assert found.runs == {
        "key": [Run(0, NO_RULES, 0), Run(1, 0, 2), Run(2, NO_RULES, 0)],
        "value": [Run(0, 0, 2), Run(1, NO_RULES, 0), Run(2, 0, 2)],
    }


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_what_is_left_is_the_batch_without_them(compression: Compression) -> None:
    batch = memoryview(build(RECORDS, compression=compression))
    found = apart(batch, ruled(value=[0, 39]), 1 << 20, parted=True)
    assert found is not None
    assert found.left is not None
    assert [each.value for each in records(found.left)] == [r.value for r in RECORDS[1:39]]
    assert [each.value for each in found.records] == [b"v0", b"v39"]


def test_many_none_or_own_rules_leave_the_batch_as_it_is() -> None:
    assert apart(BATCH, ruled(value=list(range(6))), 1 << 20, parted=True) is None
    assert apart(BATCH, ruled(value=[]), 1 << 20, parted=True) is None
    assert apart(BATCH, Ruled(["value"]), 1 << 20, parted=True) is None
    own = ruled(value=[1])
    own.own = [("id", "true", "")]
    assert apart(BATCH, own, 1 << 20, parted=True) is None
