"""The grace of what was let go of: by its stamp, or by one's own watch where the stamp is ahead of time."""

from __future__ import annotations

import pytest

from objectstore import grace
from objectstore.grace import AHEAD_MS, Grace

NOW, GRACE_MS = 1_700_000_000_000, 60_000
YEAR_MS = 365 * 86_400_000


class Times:
    """What the agents say it is, and this process's watch."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self.watch_s = 5.0
        self._grace = Grace(GRACE_MS, lambda: self.now_ms, lambda: self.watch_s)

    def is_over(self, name: str, since_ms: int) -> bool:
        """As of now."""
        return self._grace.is_over(name, since_ms, self._grace.now_ms())


@pytest.mark.parametrize("ahead_ms", [-1, 0, 1, AHEAD_MS])
def test_a_stamp_that_may_be_right_counts(ahead_ms: int) -> None:
    times = Times()
    since_ms = NOW + ahead_ms
    assert not times.is_over("a", since_ms)
    times.watch_s += 10 * GRACE_MS / 1000
    times.now_ms = since_ms + GRACE_MS - 1
    assert not times.is_over("a", since_ms)
    times.now_ms += 1
    assert times.is_over("a", since_ms)


@pytest.mark.parametrize("ahead_ms", [AHEAD_MS + 1, YEAR_MS, 1 << 62])
def test_a_stamp_that_is_ahead_of_time_holds_nothing_up(ahead_ms: int) -> None:
    times = Times()
    assert not times.is_over("a", NOW + ahead_ms)
    times.watch_s += GRACE_MS / 1000 - 1
    assert not times.is_over("a", NOW + ahead_ms)
    assert not times.is_over("b", NOW + ahead_ms), "seen now"
    times.watch_s += 1
    assert times.is_over("a", NOW + ahead_ms)
    assert not times.is_over("b", NOW + ahead_ms)


def test_what_is_watched_is_bounded_and_all_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are watched, looked at in one order again and again: none is forgotten before its time."""
    monkeypatch.setattr(grace, "WATCHED_MAX", 2)
    times, left, rounds = Times(), list("abcde"), 0
    while left:
        gone = [name for name in left if times.is_over(name, NOW + YEAR_MS)]
        assert len(gone) <= 2
        left = [name for name in left if name not in gone]
        times.watch_s += GRACE_MS / 4000
        rounds += 1
        assert rounds < 20, f"{left} never go"
    assert rounds > 3 * 4, "two at a time, each after the grace"
