"""The cluster's broker configs and the configs of groups: tables, values in force, and what apply takes."""

from __future__ import annotations

import pytest

from coordination.broker_configs import BROKER_CONFIGS, boolean, contradiction, integer, items, text
from coordination.commands import AlterClusterConfigs, AlterGroupConfigs, AlterTopicConfigs
from coordination.group_configs import BOUNDS, GROUP_CONFIGS
from coordination.group_configs import integer as group_integer
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, Result
from coordination.topic_configs import TOPIC_CONFIGS
from tests.unit.coordination.kit import Script

A = 11
Change = AlterTopicConfigs.Change
Set = tuple[str, str]


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def alter_cluster(script: Script, *changes: Set, **more: bool) -> Result:
    wanted = [Change(name=name, value=value) for name, value in changes]
    return script.one(A, AlterClusterConfigs(changes=wanted, **more))


def alter_group(script: Script, group: str, *changes: Set, **more: bool) -> Result:
    wanted = [Change(name=name, value=value) for name, value in changes]
    return script.one(A, AlterGroupConfigs(group=group, changes=wanted, **more))


def code(result: Result) -> Code | None:
    return result.code if isinstance(result, Refused) else None


def test_every_default_passes_its_own_check_and_none_contradicts_another() -> None:
    configs = [*BROKER_CONFIGS.values(), *GROUP_CONFIGS.values()]
    unset = {config.name for config in BROKER_CONFIGS.values() if config.unset and not config.default}
    bad = [c.name for c in configs if c.name not in unset and c.refusal(c.default) is not None]
    assert bad == []
    assert contradiction({}) is None


def test_kafkas_defaults() -> None:
    assert boolean({}, "auto.create.topics.enable") is True
    assert integer({}, "num.partitions") == 1
    assert integer({}, "group.initial.rebalance.delay.ms") == 3000
    assert integer({}, "group.consumer.session.timeout.ms") == 45_000
    assert items({}, "group.consumer.assignors") == ["uniform", "range"]
    assert text({}, "group.consumer.migration.policy") == "bidirectional"
    assert integer({}, "log.retention.ms") == integer({}, "log.retention.minutes") * 60_000 == 604_800_000
    with pytest.raises(KeyError):
        text({}, "no.such")


def test_every_default_of_a_topic_config_has_a_broker_config() -> None:
    named = {config.broker_name for config in TOPIC_CONFIGS.values() if config.broker_name}
    assert named <= BROKER_CONFIGS.keys()
    assert BROKER_CONFIGS["message.max.bytes"].topic_config == "max.message.bytes"


def test_what_is_set_counts_and_all_or_none_is_taken(script: Script) -> None:
    assert alter_cluster(script, ("num.partitions", "7"), ("log.retention.ms", "9")) == Done()
    assert integer(script.state.cluster_configs, "num.partitions") == 7
    bad = alter_cluster(script, ("num.partitions", "8"), ("message.max.bytes", "-1"))
    assert code(bad) == Code.INVALID_REQUEST, "Kafka's brokers say so; topics say INVALID_CONFIG"
    assert integer(script.state.cluster_configs, "num.partitions") == 7
    assert alter_cluster(script, ("offsets.retention.minutes", "1"), replace_all=True) == Done()
    assert script.state.cluster_configs == {"offsets.retention.minutes": "1"}


def test_a_change_under_the_topic_configs_name_is_one_of_its_default(script: Script) -> None:
    assert alter_cluster(script, ("retention.ms", "8")) == Done()
    assert script.state.cluster_configs == {"log.retention.ms": "8"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("no.such", "1", Code.INVALID_CONFIG),
        ("node.id", "7", Code.INVALID_REQUEST),
        ("advertised.listeners", "X://y:1", Code.INVALID_REQUEST),
        ("num.partitions", "0", Code.INVALID_REQUEST),
        ("num.partitions", "many", Code.INVALID_REQUEST),
        ("group.max.size", str(1 << 31), Code.INVALID_REQUEST),
        ("group.consumer.assignors", "", Code.INVALID_REQUEST),
        ("group.consumer.assignors", "mine", Code.INVALID_REQUEST),
        ("group.consumer.migration.policy", "sideways", Code.INVALID_REQUEST),
        ("group.min.session.timeout.ms", "1800001", Code.INVALID_REQUEST),
        ("group.consumer.session.timeout.ms", "44999", Code.INVALID_REQUEST),
        ("group.consumer.max.heartbeat.interval.ms", "4999", Code.INVALID_REQUEST),
    ],
)
def test_what_the_cluster_cannot_have_is_refused(
    script: Script, name: str, value: str, expected: Code
) -> None:
    result = alter_cluster(script, (name, value))
    assert code(result) == expected
    assert isinstance(result, Refused)
    assert name in result.message, "the message names the config"
    assert script.state.cluster_configs == {}


def test_a_group_follows_the_cluster_until_it_has_its_own(script: Script) -> None:
    name = "consumer.heartbeat.interval.ms"
    assert group_integer(script.state, "g", name) == 5_000
    assert alter_cluster(script, ("group.consumer.heartbeat.interval.ms", "6000")) == Done()
    assert group_integer(script.state, "g", name) == 6_000
    assert alter_group(script, "g", (name, "7000")) == Done()
    assert (group_integer(script.state, "g", name), group_integer(script.state, "h", name)) == (7_000, 6_000)
    assert alter_group(script, "g", replace_all=True) == Done()
    assert script.state.group_configs == {}, "a group without configs takes no room"


def test_a_groups_value_stays_within_the_clusters_bounds(script: Script) -> None:
    name = "consumer.session.timeout.ms"
    assert name in BOUNDS
    assert code(alter_group(script, "g", (name, "44999"))) == Code.INVALID_CONFIG
    assert code(alter_group(script, "g", (name, "60001"))) == Code.INVALID_CONFIG
    assert alter_group(script, "g", (name, "60000")) == Done()
    assert alter_cluster(script, ("group.consumer.max.session.timeout.ms", "50000")) == Done()
    assert group_integer(script.state, "g", name) == 50_000, "as Kafka caps it when the bound moves"


@pytest.mark.parametrize(
    ("group", "change", "expected"),
    [
        ("", ("consumer.session.timeout.ms", "50000"), Code.INVALID_REQUEST),
        ("g", ("no.such", "1"), Code.INVALID_CONFIG),
        ("g", ("consumer.session.timeout.ms", "x"), Code.INVALID_CONFIG),
        ("g", ("share.auto.offset.reset", "never"), Code.INVALID_CONFIG),
        ("g", ("share.isolation.level", "x"), Code.INVALID_CONFIG),
    ],
)
def test_what_a_group_cannot_have_is_refused(script: Script, group: str, change: Set, expected: Code) -> None:
    assert code(alter_group(script, group, change)) == expected
    assert script.state.group_configs == {}
