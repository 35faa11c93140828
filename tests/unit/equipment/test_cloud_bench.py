"""The bench of a distant store: its delays are what it says; what Floe's rules are worth under them."""

from __future__ import annotations

from itertools import islice

import pytest

from agent.config.limits import ProduceConfig
from tests.bench.cloud.delays import EXPRESS, STANDARD, TAIL_S_MIN, Delay, draws
from tests.bench.cloud.load import Load, percentiles
from tests.bench.cloud.proxy import Weather
from tests.bench.cloud.virtual import Waits, reading, waits

DRAWN = 50_000


@pytest.mark.parametrize(
    ("delay", "p50_ms", "p99_ms"),
    [(STANDARD.write, 30, 200), (STANDARD.read, 20, 120), (EXPRESS.write, 5, 15), (EXPRESS.read, 5, 15)],
)
def test_the_quantiles_of_what_is_drawn(delay: Delay, p50_ms: float, p99_ms: float) -> None:
    drawn = sorted(islice(draws(delay, 1), DRAWN))
    assert 1000 * drawn[DRAWN // 2] == pytest.approx(p50_ms, rel=0.02)
    assert 1000 * drawn[DRAWN * 99 // 100] == pytest.approx(p99_ms, rel=0.04)
    assert 2 <= sum(each >= TAIL_S_MIN for each in drawn) <= 12, "one in ten thousand"


def test_the_same_seed_draws_the_same() -> None:
    assert list(islice(draws(STANDARD.write, 7), 9)) == list(islice(draws(STANDARD.write, 7), 9))
    assert list(islice(draws(STANDARD.write, 7), 9)) != list(islice(draws(STANDARD.write, 8), 9))


def test_what_else_is_asked_does_not_shift_the_delays_of_chunks() -> None:
    quiet, busy = Weather(STANDARD, 1), Weather(STANDARD, 1)
    chunk, other = b"PUT /b/floe/chunks/1/1.chunk HTTP/1.1\r\n", b"PUT /b/floe/snapshots/1 HTTP/1.1\r\n"
    expected = [quiet.next_s(chunk) for _ in range(5)]
    found = []
    for _ in range(5):
        busy.next_s(other)
        found.append(busy.next_s(chunk))
    assert found == expected
    assert busy.counts == {"PUT chunk": 5, "PUT other": 5}


def measured(**settings: float) -> Waits:
    """Half a minute of virtual time, S3 Standard's delays."""
    return waits("standard", ProduceConfig.model_validate(settings), Load(1e6, 1, 33))


def test_a_slow_put_is_felt_less_where_it_is_hedged() -> None:
    hedged, patient = measured(), measured(hedge_ms=0)
    assert percentiles(hedged.taken_ms)[1] < 0.8 * percentiles(patient.taken_ms)[1]
    assert hedged.puts_per_s < 1.16 * patient.puts_per_s


def test_a_slow_read_is_felt_less_where_it_is_hedged() -> None:
    bare, hedged = (reading("standard", hedge_ms, 10, 60.0, seed=1) for hedge_ms in (0, 1_500))
    assert bare.gets == 1
    assert 1.05 < hedged.gets < 1.15
    assert percentiles(hedged.taken_ms)[1] < 0.8 * percentiles(bare.taken_ms)[1]


def test_others_plans_wait_longer_and_the_put_budget_holds() -> None:
    ours, theirs = measured(puts_per_s_max=25), measured(linger_ms=250, quiet_ms=250)
    assert percentiles(ours.taken_ms)[1] <= 0.6 * percentiles(theirs.taken_ms)[1]
    assert ours.puts_per_s <= 25 + 25 / 4 / 33, "with its first burst"
