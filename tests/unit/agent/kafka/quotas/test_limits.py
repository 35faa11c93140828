"""Which quota counts: Kafka's eight levels, from the most special to the least."""

from __future__ import annotations

import pytest

from agent.kafka.quotas.limits import Limit, Sharers, connection_rate_of, limit_of
from coordination.state.quota_types import QuotaEntity

KEY = "producer_byte_rate"
LEVELS = [
    (QuotaEntity("alice", "app"), ("alice", "app")),
    (QuotaEntity("alice", ""), ("alice", "app")),
    (QuotaEntity("alice"), ("alice", None)),
    (QuotaEntity("", "app"), ("alice", "app")),
    (QuotaEntity("", ""), ("alice", "app")),
    (QuotaEntity(""), ("alice", None)),
    (QuotaEntity(client_id="app"), (None, "app")),
    (QuotaEntity(client_id=""), (None, "app")),
]


@pytest.mark.parametrize("level", range(8))
def test_the_most_special_level_counts_and_says_who_shares_it(level: int) -> None:
    entities = {entity: {KEY: float(n + 1)} for n, (entity, _) in enumerate(LEVELS) if n >= level}
    shared_by = LEVELS[level][1]
    assert limit_of(entities, "alice", "app", KEY) == Limit(Sharers(KEY, *shared_by), level + 1)


def test_a_level_without_this_quota_is_passed_over() -> None:
    entities = {QuotaEntity("alice", "app"): {"request_percentage": 1.0}, QuotaEntity(""): {KEY: 5.0}}
    assert limit_of(entities, "alice", "app", KEY) == Limit(Sharers(KEY, "alice", None), 5.0)


def test_others_have_none() -> None:
    entities = {entity: {KEY: 1.0} for entity, _ in LEVELS[:1]} | {QuotaEntity("bob"): {KEY: 1.0}}
    assert limit_of(entities, "carol", "app", KEY) is None


def test_an_address_has_its_own_rate_or_the_default() -> None:
    own, default = {"connection_creation_rate": 2.0}, {"connection_creation_rate": 9.0}
    entities = {QuotaEntity(ip="10.0.0.1"): own, QuotaEntity(ip=""): default}
    assert connection_rate_of(entities, "10.0.0.1") == 2
    assert connection_rate_of(entities, "10.0.0.2") == 9
    assert connection_rate_of({}, "10.0.0.2") is None
