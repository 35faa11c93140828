"""Queues between two clusters: the judge sees what is wrong, and broken copiers are caught."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.sim.queues import Copy, judged

DUE = {"sim-0": {0: "a", 1: "b", 4: "c"}, "sim-1": {2: "x"}}
WHOLE: list[Copy] = [("sim-0", 0, "a"), ("sim-1", 2, "x"), ("sim-0", 1, "b"), ("sim-0", 4, "c")]


@pytest.mark.parametrize(
    ("found", "anomaly"),
    [
        (WHOLE, []),
        (WHOLE[1:], ["queue-lost"]),
        ([*WHOLE, WHOLE[0]], ["queue-doubled"]),
        ([WHOLE[2], WHOLE[0], *WHOLE[1:2], WHOLE[3]], ["queue-order"]),
        ([*WHOLE, ("sim-0", 2, "aborted")], ["queue-foreign", "queue-order"]),
        ([*WHOLE, ("sim-2", 0, "of no key")], ["queue-foreign"]),
        ([*WHOLE[:3], ("sim-0", 4, "another")], ["queue-foreign"]),
    ],
)
def test_each_record_is_there_once_as_it_was_and_in_order(found: Sequence[Copy], anomaly: list[str]) -> None:
    assert [each.anomaly for each in judged(DUE, found)] == anomaly
