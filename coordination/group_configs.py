"""The configs of groups: names, types and bounds are Apache Kafka 4.3's (GroupConfig).

A group's own configs are held in the state (`group_configs`), whether or not the group exists. What a group
does not set follows from the broker config of the same meaning, and so do the bounds of most of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from coordination import broker_configs
from coordination.broker_configs import BROKER_CONFIGS
from coordination.config_types import NAME_SHOWN_MAX, Config, ConfigType
from coordination.state.data import StateData

_SHARE = "No effect in Floe: there are no share groups."


@dataclass(frozen=True, slots=True)
class GroupConfig(Config):
    """A config of a group. `broker_name` is the broker config of its default, "" where there is none."""

    broker_name: str = ""


def _following(name: str) -> GroupConfig:
    """One whose default, type and least bounds are those of the broker config `group.<name>`."""
    of = BROKER_CONFIGS[f"group.{name}"]
    return GroupConfig(
        name, of.type, of.default, of.doc, of.low, of.high, in_effect=of.in_effect, broker_name=of.name
    )


_TABLE = (
    *(_following(name) for name in (
        "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms",
        "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.record.lock.duration.ms",
        "share.delivery.count.limit", "share.partition.max.record.locks", "share.assignment.interval.ms",
        "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms",
    )),
    GroupConfig("share.auto.offset.reset", ConfigType.STRING, "latest", _SHARE,
                pattern=re.compile(r"latest|earliest|by_duration:P[0-9A-Z.]{1,64}")),
    GroupConfig("share.isolation.level", ConfigType.STRING, "read_uncommitted", _SHARE,
                choices=("read_committed", "read_uncommitted")),
    GroupConfig("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", _SHARE),
)  # fmt: skip

GROUP_CONFIGS: dict[str, GroupConfig] = {config.name: config for config in _TABLE}

# Where a group may go: the broker configs of the least and the most.
BOUNDS: dict[str, tuple[str, str]] = {
    f"consumer.{what}": (f"group.consumer.min.{what}", f"group.consumer.max.{what}")
    for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
}


def text(state: StateData, group_id: str, name: str) -> str:
    """The value in force: the group's own, else that of the broker config. KeyError for an unknown name."""
    own = state.group_configs.get(group_id, {}).get(name)
    if own is not None:
        return own
    config = GROUP_CONFIGS[name]
    if not config.broker_name:
        return config.default
    return broker_configs.text(state.cluster_configs, config.broker_name)


def integer(state: StateData, group_id: str, name: str) -> int:
    """`text` of a number, within the bounds that the cluster sets now (GroupConfig.evaluate)."""
    value = int(text(state, group_id, name))
    if name not in BOUNDS:
        return value
    least, most = (broker_configs.integer(state.cluster_configs, bound) for bound in BOUNDS[name])
    return min(max(value, least), most)


def refusal(configs: Mapping[str, str], cluster_configs: Mapping[str, str]) -> str | None:
    """Why a group may not have these configs together; None when it may."""
    for name, value in configs.items():
        config = GROUP_CONFIGS.get(name)
        if config is None:
            return f"Unknown group config name: {name[:NAME_SHOWN_MAX]}"
        problem = config.refusal(value) or _outside(name, value, cluster_configs)
        if problem:
            return problem
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    if _value(session, configs, cluster_configs) <= _value(heartbeat, configs, cluster_configs):
        return f"{heartbeat} must be less than {session}"
    return None


def _outside(name: str, value: str, cluster_configs: Mapping[str, str]) -> str | None:
    if name not in BOUNDS:
        return None
    least, most = BOUNDS[name]
    if int(value) < broker_configs.integer(cluster_configs, least):
        return f"{name} must be greater than or equal to {least}"
    if int(value) > broker_configs.integer(cluster_configs, most):
        return f"{name} must be less than or equal to {most}"
    return None


def _value(name: str, configs: Mapping[str, str], cluster_configs: Mapping[str, str]) -> int:
    own = configs.get(name)
    return int(own) if own is not None else broker_configs.integer(cluster_configs, f"group.{name}")
