"""Windows and token buckets with a clock that moves when told; figures are those of kafka-clients 4.3.1."""

from __future__ import annotations

import pytest

from agent.net.rates import Paced, Rate, TokenBucket

BOUND = 1000.0


def rate() -> Rate:
    return Rate(samples=11, window_ms=1000)


def test_a_burst_of_all_windows_is_within_the_quota() -> None:
    one = rate()
    one.record(10_000, 0)
    assert one.throttle_ms(BOUND, 0) == 0, "ten full windows are counted, although none has passed"
    one.record(1, 0)
    assert one.throttle_ms(BOUND, 0) == 1


def test_the_wait_brings_the_rate_back_to_the_quota() -> None:
    one = rate()
    one.record(15_000, 0)
    wait = one.throttle_ms(BOUND, 0)
    assert wait == 5_000
    assert one.throttle_ms(BOUND, 10_000 + wait) == 0


def test_a_small_quota_makes_for_a_long_wait() -> None:
    one = rate()
    one.record(1_000_000, 0)
    assert one.throttle_ms(1.0, 0) == 999_990_000


@pytest.mark.parametrize(("passed_ms", "counts"), [(10_999, True), (11_000, False)])
def test_what_is_older_than_all_windows_counts_no_more(passed_ms: int, *, counts: bool) -> None:
    one = rate()
    one.record(20_000, 0)
    assert (one.throttle_ms(BOUND, passed_ms) > 0) is counts


def test_a_steady_taker_is_let_through_at_the_quota_and_not_above() -> None:
    """What is taken over a minute, by somebody who always wants more and waits as told."""
    one, now_ms, taken = rate(), 0, 0
    while now_ms < 600_000:
        one.record(500, now_ms)
        taken += 500
        now_ms += max(one.throttle_ms(BOUND, now_ms), 1)
    assert taken / 600 == pytest.approx(BOUND, rel=0.05)


@pytest.mark.parametrize("size", [16, 100, 1_000, 2_000], ids=lambda size: f"{size} B")
def test_a_pace_keeps_each_single_minute(size: int) -> None:
    """Of somebody who always wants more, after the first burst. Kafka's windows alone are 8 to 14 % off."""
    one, now_ms, taken = Paced(samples=11, window_ms=1000), 0, [0] * 600
    while now_ms < 600_000:
        one.record(size, now_ms)
        taken[now_ms // 1000] += size
        now_ms += one.throttle_ms(BOUND, now_ms) + 3
    minutes = [sum(taken[second : second + 60]) / 60 for second in range(25, 540)]
    assert min(minutes) > 0.95 * BOUND
    assert max(minutes) < 1.05 * BOUND


def test_a_pace_begins_as_kafkas_windows_do_and_never_waits_less() -> None:
    pace, windows = Paced(samples=11, window_ms=1000), rate()
    for now_ms, value in ((0, 9_000), (10, 1_000), (20, 7), (5_000, 900), (9_000, 10), (60_000, 500)):
        for one in (pace, windows):
            one.record(value, now_ms)
        told = windows.throttle_ms(BOUND, now_ms)
        assert pace.throttle_ms(BOUND, now_ms) >= told
        if now_ms <= 20:
            assert pace.throttle_ms(BOUND, now_ms) == told


def test_whoever_was_below_for_all_windows_may_burst_again() -> None:
    one = Paced(samples=11, window_ms=1000)
    one.record(10_500, 0)
    assert one.throttle_ms(BOUND, 0) == 500
    one.record(3_000, 11_400)
    assert one.throttle_ms(BOUND, 11_400) == 2_000, "paced: a second's worth was saved up"
    one.record(10_000, 40_000)
    assert not one.paced(40_000)
    assert one.throttle_ms(BOUND, 40_000) == 0


def test_the_debt_of_a_pace_is_forgotten_as_that_of_windows_is() -> None:
    one = Paced(samples=11, window_ms=1000)
    for now_ms in range(0, 100_000, 10_000):
        one.record(1_000_000, now_ms)
        one.throttle_ms(BOUND, now_ms)
    assert one.throttle_ms(BOUND, 90_000 + 3_600_000) == 0


def test_samples_are_bounded() -> None:
    one = rate()
    for now_ms in range(0, 1_000_000, 1000):
        one.record(1, now_ms)
    assert len(one._samples) == 12


def test_what_is_asked_for_does_not_count_until_it_is_taken() -> None:
    one = rate()
    one.record(9_000, 0)
    assert one.throttle_ms(BOUND, 0, more=2_000) == 1_000
    assert one.throttle_ms(BOUND, 0) == 0


def test_a_bucket_is_full_at_first_and_owes_what_was_taken_beyond() -> None:
    bucket = TokenBucket(11.0, 2.0, 0)
    bucket.take(22, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 0, "nothing is owed"
    bucket.take(5, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 2_500
    assert bucket.throttle_ms(2.0, 2_499) == 1
    assert bucket.throttle_ms(2.0, 2_500) == 0


def test_a_bucket_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(11.0, 2.0, 0)
    bucket.take(0, 2.0, 3_600_000)
    bucket.take(23, 2.0, 3_600_000)
    assert bucket.throttle_ms(2.0, 3_600_000) == 500
