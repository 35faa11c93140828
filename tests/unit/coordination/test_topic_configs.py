"""The table of topic configs: what Kafka has, with its defaults and bounds, and what Floe adds."""

from __future__ import annotations

import pytest

from coordination.broker_configs import integer
from coordination.topic_configs import (
    TOPIC_CONFIGS,
    compacts,
    deletes,
    effective,
    effective_bool,
    effective_int,
    refusal,
)


def test_every_default_passes_its_own_check() -> None:
    assert [c.name for c in TOPIC_CONFIGS.values() if c.refusal(c.default) is not None] == []


def test_what_kafka_has() -> None:
    kafka = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
    }
    assert {name: TOPIC_CONFIGS[name].default for name in kafka} == kafka
    assert TOPIC_CONFIGS["max.message.bytes"].broker_name == "message.max.bytes"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1e3"),
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", str(1 << 63)),
        ("segment.bytes", "1048575"),
        ("segment.bytes", str(1 << 31)),
        ("preallocate", "yes"),
        ("cleanup.policy", "delete,keep"),
        ("floe.table.retention", "drop"),
        ("floe.table.partition", "bucket(value.user)"),
        ("floe.table.partition", "bucket(0, value.user)"),
        ("floe.table.partition", "week(kafka.timestamp)"),
        ("floe.table.partition", "value.user,"),
        ("floe.table.partition", ",".join(["value.user"] * 9)),
        ("floe.table.partition", "value.user, Headers.key"),
        ("floe.table.partition", "day(kafka.time)"),
        ("floe.table.sort", "value.user up"),
        ("floe.table.sort", "value.user asc nulls-middle"),
        ("floe.table.sort", "value.user nulls-last asc"),
        ("floe.table.sort", "desc(value.user)"),
        ("floe.table.sort", "value.user desc,"),
        ("floe.table.sort", "value.user,headers desc"),
        ("floe.table.sort", "value"),
        ("floe.table.sort", "kafka.time"),
        ("floe.table.history.ms", "-1"),
        ("floe.table.format-version", "1"),
        ("floe.table.format-version", "4"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("message.timestamp.type", "createtime"),
        ("floe.table.name", "a.b.c"),
        ("leader.replication.throttled.replicas", "x"),
        ("compression.type", "z" * 5000),
        ("no.such.config", "1"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    reason = refusal(name, value, 2)
    assert reason is not None
    assert name in reason


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("value.user, headers desc", "headers is a list"),
        ("value", "value is a struct"),
        (
            "bucket(4, kafka.time)",
            "no column kafka.time: kafka has partition, offset, timestamp, timestamp_type",
        ),
    ],
)
def test_columns_that_no_table_has_are_refused_with_the_remedy(value: str, told: str) -> None:
    for name in ("floe.table.sort", "floe.table.partition"):
        reason = refusal(name, value.removesuffix(" desc"), 2)
        assert reason is not None
        assert told in reason
        assert value.removesuffix(" desc") in reason, "the value"
        assert "name a column of single values, as kafka.timestamp" in reason, "the remedy"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,delete"),
        ("retention.bytes", "-5"),
        ("floe.table.retention", "follow"),
        ("floe.table.sort", ""),
        ("floe.table.sort", " value.a desc  nulls-first ,bucket( 4,key.id),day(kafka.timestamp) asc"),
        ("floe.table.history.ms", "0"),
        ("floe.table.format-version", "3"),
        ("preallocate", "TRUE"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("floe.table.name", "lake.flights"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_a_good_value_is_not(name: str, value: str) -> None:
    assert refusal(name, value, 2) is None


def test_the_topics_own_value_comes_before_the_clusters_and_the_default() -> None:
    own, cluster = {"retention.ms": "1"}, {"log.retention.ms": "2", "log.preallocate": "True"}
    assert effective_int("retention.ms", own, cluster) == 1
    assert effective_int("retention.ms", {}, cluster) == 2
    assert effective("retention.ms", {}, {}) == "604800000"
    assert effective_bool("preallocate", own, cluster) is True
    with pytest.raises(KeyError):
        effective("no.such", {}, {})


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "5", "log.retention.minutes": "3", "log.retention.hours": "2"}, 5),
    ],
)
def test_the_finer_unit_of_a_clusters_default_comes_first(cluster: dict[str, str], expected: int) -> None:
    assert effective_int("retention.ms", {}, cluster) == expected
    assert integer(cluster, "log.retention.ms") == expected, "what the broker's own name says"


@pytest.mark.parametrize(
    ("policy", "does"),
    [
        ("delete", (True, False)),
        ("compact", (False, True)),
        ("compact,delete", (True, True)),
        ("", (False, False)),
    ],
)
def test_cleanup_policies(policy: str, does: tuple[bool, bool]) -> None:
    configs = {"cleanup.policy": policy}
    assert (deletes(configs, {}), compacts(configs, {})) == does
    cluster = {"log.cleanup.policy": policy}
    assert (deletes({}, cluster), compacts({}, cluster)) == does


def test_a_config_that_came_later_is_unknown_below_its_level() -> None:
    """Agents of two versions apply the same entries: what the older refuses, the newer refuses too."""
    for name, value in (
        ("floe.produce.check", "full"),
        ("floe.table.history.ms", "1"),
        ("floe.table.compaction", "false"),
        ("floe.table.publish", "false"),
    ):
        assert refusal(name, value, 1) == f"Unknown topic config name: {name}"
        assert refusal(name, value, 2) is None
