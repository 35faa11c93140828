"""A run's history is judged by the checker's own anomalies."""

from __future__ import annotations

from dataclasses import replace

from tests.checker.judge import judge
from tests.torture.history import history_of
from tests.torture.verdict import Seen, Sent

SENT = [Sent("w", n, "t", n % 2, b"w/%d..." % n, "ok", n // 2) for n in range(6)]
SEEN = [Seen("r", each.topic, each.partition, each.offset, each.value) for each in SENT]
FINAL = {("t", p): [(s.offset, s.value) for s in SENT if s.partition == p] for p in (0, 1)}


def anomalies(sent: list[Sent], seen: list[Seen]) -> set[str]:
    return {each.anomaly for each in judge(history_of(sent, seen, FINAL)).findings}


def test_a_clean_run_is_clean() -> None:
    assert anomalies(SENT, SEEN) == set()


def test_what_is_wrong_has_its_name() -> None:
    assert anomalies([*SENT, Sent("w", 6, "t", 0, b"w/6", "ok", 3)], SEEN) == {"unseen"}
    assert anomalies([replace(SENT[0], outcome="fail"), *SENT[1:]], SEEN) == {"aborted-read"}
    assert "poll-skip" in anomalies(SENT, SEEN[:2] + SEEN[4:])
    assert "duplicate" in anomalies(SENT, [*SEEN, replace(SEEN[0], offset=9)])
