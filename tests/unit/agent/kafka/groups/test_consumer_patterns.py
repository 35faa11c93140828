"""Regular expressions of subscriptions: whole names, RE2, bounded, remembered until topics change."""

from __future__ import annotations

import pytest

from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.patterns import (
    REGEX_LENGTH_MAX,
    REMEMBERED_MAX,
    Patterns,
    check_regex,
    matching,
)
from coordination.kafka_codes import Code

NAMES = ["orders", "orders.eu", "payments"]


def test_a_pattern_matches_whole_names() -> None:
    assert matching("orders", NAMES) == ("orders",)
    assert matching("orders.*|pay.*", reversed(NAMES)) == tuple(NAMES)  # type: ignore[arg-type]  # an order
    assert matching("", NAMES) == ()


@pytest.mark.parametrize(
    "regex",
    [
        "[",
        "(a)\\1",
        "(?=a)b",
        "a" * (REGEX_LENGTH_MAX + 1),
        "((a{1000}){1000}){1000}",
        "(\\pL{500}){2}",
        "\ud800",
    ],
    ids=["unclosed", "backreference", "look-ahead", "long", "nested", "large program", "surrogate"],
)
def test_what_is_no_pattern_or_too_large_is_refused(regex: str) -> None:
    with pytest.raises(GroupError) as refused:
        check_regex(regex)
    assert refused.value.code is Code.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message) < 2 * REGEX_LENGTH_MAX


def test_a_pattern_that_explodes_elsewhere_takes_linear_time_here() -> None:
    assert matching("(a*)*b", ["a" * 100_000]) == ()


async def test_a_result_is_remembered_until_topics_change() -> None:
    patterns = Patterns()

    async def resolved(topics: list[str], stamp: tuple[int, int], now: float) -> tuple[tuple[str, ...], bool]:
        found, fresh = await patterns.resolve(["o.*"], topics, stamp, now)
        return found["o.*"], fresh

    assert await resolved(NAMES, (3, 3), 10) == (("orders", "orders.eu"), True)
    assert await resolved(["other"], (3, 3), 11) == (("orders", "orders.eu"), True)
    assert await resolved(["other"], (4, 4), 12) == (("other",), True)
    assert await resolved(NAMES, (5, 5), 12.5) == (("other",), False), "evaluated a moment ago"


async def test_the_oldest_results_are_forgotten() -> None:
    patterns = Patterns()
    for number in range(REMEMBERED_MAX + 1):
        await patterns.resolve([f"t{number}"], ["t0", "t1"], (1, 1), now=1)
    assert ("t0" in patterns, "t1" in patterns) == (False, True)


async def test_whoever_asks_gets_all_results_however_few_are_remembered() -> None:
    regexes = [f"t{number}" for number in range(REMEMBERED_MAX + 1)]
    found, fresh = await Patterns().resolve(regexes, regexes, (1, 1), now=1)
    assert (found, fresh) == ({regex: (regex,) for regex in regexes}, True)
