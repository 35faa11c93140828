"""What must have become of records that are set aside: each thing that can be wrong is named."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from schema.proto.quarantine_pb2 import Record
from tests.sim.bound_messages import MESSAGES
from tests.sim.gate import ASIDE, LEFT_OUT, Found, Gate, Sent, bad, good, repaired

PLACE = f"{ASIDE}/0/5"


def found(here: list[str], aside: list[str], back: dict[str, list[str]] | None = None) -> Found:
    """What is read: of the topic, of the quarantine, and what came back."""
    places = {PLACE: Record(value=aside[0].encode())} if aside else {}
    return Found(Counter(here), Counter(aside), defaultdict(list, back or {}), places)


def judged(found: Found, outcome: str = "ok") -> list[str]:
    """The anomalies of a batch of one good record and a bad one."""
    gate = Gate()
    gate.sent.append(Sent("batch", [good(1), bad(2)], outcome))
    return [each.anomaly for each in gate.judged(found)]


BACK = {PLACE: [good(2)]}


@pytest.mark.parametrize(
    ("what", "outcome", "anomalies"),
    [
        (found([good(1)], [bad(2)], BACK), "ok", []),
        (found([good(1)], [bad(2)], BACK), "info", []),
        (found([], []), "info", []),
        (found([], []), "fail", []),
        (found([good(1)], []), "ok", ["aside-lost"]),
        (found([good(1)], []), "info", ["aside-torn"]),
        (found([], [bad(2)], BACK), "fail", ["aside-aborted"]),
        (found([good(1), bad(2)], []), "fail", ["aside-misplaced", "aside-aborted"]),
        (found([good(1)], [bad(2), bad(2)], BACK), "ok", ["aside-doubled"]),
        (found([good(1)], [bad(2)], {PLACE: [good(2)] * 2}), "ok", ["replay-doubled"]),
        (found([good(1)], [bad(2)]), "ok", ["replay-lost"]),
        (found([good(1)], [bad(2)], {PLACE: [good(3)]}), "ok", ["replay-lost"]),
        (found([good(1)], [bad(2)], BACK | {f"{ASIDE}/1/0": [good(9)]}), "ok", ["replay-doubled"]),
    ],
)
def test_what_is_wrong_is_named(what: Found, outcome: str, anomalies: list[str]) -> None:
    assert judged(what, outcome) == anomalies


def test_good_records_are_messages_and_bad_ones_are_not() -> None:
    shown = MESSAGES[0].shown({2: "g12"})
    assert shown is not None
    assert good(12) == "\x12\x03g12"
    assert repaired(Record(value=bad(12).encode())) == good(12).encode()
    assert repaired(Record(value=bad(LEFT_OUT).encode())) is None
