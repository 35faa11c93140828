"""The torture verdict finds each anomaly in a hand-written history, and nothing in a good one."""

from __future__ import annotations

import logging

import pytest

from tests.torture.run import unexplained
from tests.torture.verdict import Seen, Sent, judge
from tests.torture.workload import Writer


def sent(sequence: int, value: bytes, outcome: str = "ok", offset: int = -1) -> Sent:
    return Sent("w", sequence, "t", 0, value, outcome, offset)


GOOD = [sent(0, b"a", offset=0), sent(1, b"b", "info"), sent(2, b"c", offset=1), sent(3, b"d", "fail")]
LOG = {("t", 0): [(0, b"a"), (1, b"c")]}


def test_a_good_history() -> None:
    seen = [Seen("r", "t", 0, 0, b"a"), Seen("r", "t", 0, 1, b"c")]
    verdict = judge(GOOD, LOG, seen)
    assert verdict.findings == []
    assert (verdict.acknowledged, verdict.unknown, verdict.failed, verdict.read) == (2, 1, 1, 2)


@pytest.mark.parametrize(
    ("anomaly", "log"),
    [
        ("lost-write", [(0, b"a")]),
        ("duplicate", [(0, b"a"), (1, b"c"), (2, b"a")]),
        ("phantom-read", [(0, b"a"), (1, b"c"), (2, b"z")]),
        ("aborted-read", [(0, b"a"), (1, b"c"), (2, b"d")]),
        ("poll-skip", [(0, b"a"), (2, b"c")]),
        ("inconsistent-offset", [(0, b"a"), (1, b"b"), (2, b"c")]),
        ("nonmonotonic-send", [(0, b"c"), (1, b"a")]),
    ],
)
def test_each_anomaly_of_the_log_is_found(anomaly: str, log: list[tuple[int, bytes]]) -> None:
    found = {finding.anomaly for finding in judge(GOOD, {("t", 0): log}, []).findings}
    assert anomaly in found


def keyed(sequence: int, key: bytes, value: bytes, offset: int, outcome: str = "ok") -> Sent:
    return Sent("w", sequence, "t", 0, value, outcome, offset, key)


KEYED = [
    keyed(0, b"k", b"k0", 0),
    keyed(1, b"l", b"l1", 1),
    keyed(2, b"k", b"k2", 2),
    keyed(3, b"k", b"k3", -1, "info"),
    keyed(4, b"l", b"l4", 4),
]


@pytest.mark.parametrize(
    ("log", "taken"),
    [
        ([(0, b"k0"), (1, b"l1"), (2, b"k2"), (4, b"l4")], 0),
        ([(2, b"k2"), (4, b"l4")], 2),
        ([(3, b"k3"), (4, b"l4")], 3),
    ],
)
def test_compaction_may_take_what_a_later_record_of_the_key_supersedes(
    log: list[tuple[int, bytes]], taken: int
) -> None:
    verdict = judge(KEYED, {("t", 0): log}, [], compacted=True)
    assert (verdict.findings, verdict.superseded) == ([], taken)
    if taken:
        assert {each.anomaly for each in judge(KEYED, {("t", 0): log}, []).findings} >= {"lost-write"}


@pytest.mark.parametrize(
    "log",
    [
        [(0, b"k0"), (1, b"l1"), (4, b"l4")],
        [(1, b"l1"), (2, b"k2")],
        [(4, b"l4")],
    ],
    ids=["an older one stays", "the newest of l is gone", "nothing of k is left"],
)
def test_the_newest_of_each_key_may_not_be_taken(log: list[tuple[int, bytes]]) -> None:
    found = judge(KEYED, {("t", 0): log}, [], compacted=True).findings
    assert {each.anomaly for each in found} == {"lost-write"}


@pytest.mark.parametrize(
    ("anomaly", "offsets"),
    [("poll-skip", [1]), ("nonmonotonic-poll", [0, 0]), ("nonmonotonic-poll", [0, 1, 0])],
)
def test_each_anomaly_of_a_reader_is_found(anomaly: str, offsets: list[int]) -> None:
    values = {0: b"a", 1: b"c"}
    seen = [Seen("r", "t", 0, offset, values[offset]) for offset in offsets]
    assert [f.anomaly for f in judge(GOOD, LOG, seen).findings] == [anomaly]


def test_a_reader_that_saw_other_bytes_is_found() -> None:
    found = judge(GOOD, LOG, [Seen("r", "t", 0, 0, b"x")]).findings
    assert [f.anomaly for f in found] == ["inconsistent-offset"]


def test_what_is_acknowledged_without_an_offset_is_counted_and_there_once() -> None:
    told = [GOOD[0], sent(2, b"c"), sent(3, b"d", "fail")]
    verdict = judge(told, LOG, [])
    assert (verdict.findings, verdict.unplaced) == ([], 1)
    for log, anomaly in (
        ([(0, b"a")], "lost-write"),
        ([(0, b"a"), (1, b"c"), (2, b"c")], "duplicate"),
        ([(0, b"c"), (1, b"a")], "nonmonotonic-send"),
    ):
        assert anomaly in {each.anomaly for each in judge(told, {("t", 0): log}, []).findings}
    elsewhere = judge(told, {("t", 0): LOG["t", 0][:1], ("t", 1): [(0, b"c")]}, [])
    assert [each.anomaly for each in elsewhere.findings] == ["inconsistent-offset"]


def test_a_client_explains_what_it_acknowledges_without_an_offset() -> None:
    writer = Writer("w", "127.0.0.1:1", "t", [0], limit=0)
    writer.sent = [sent(n, b"%d" % n) for n in range(6)]
    (finding,) = unexplained([writer])
    assert str(finding) == "no-offset at w: 6 records, of which its client explains 0"
    said = logging.getLogger("librdkafka")
    said.addHandler(writer._librdkafka)
    said.warning("IMPLICITACK [thrd:x/2]: t [0] 4 message(s) implicitly acked by subsequent batch success")
    assert unexplained([writer]) != []
    said.warning(
        "DUPSEQ [thrd:x/2]: ProduceRequest for t [0] with 2 message(s) failed due to duplicate sequence"
    )
    assert unexplained([writer]) == []
    said.removeHandler(writer._librdkafka)
