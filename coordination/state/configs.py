"""Configs of topics, of the cluster and of groups: what may be set, and what is then in force.

Rules and codes are Kafka's (ConfigurationControlManager): a change is applied whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordination import broker_configs, group_configs, topic_configs
from coordination.broker_configs import BROKER_CONFIGS
from coordination.commands import AlterClusterConfigs, AlterGroupConfigs, AlterTopicConfigs
from coordination.config_types import NAME_SHOWN_MAX, Config, ConfigType, split_list
from coordination.group_configs import GROUP_CONFIGS
from coordination.kafka_codes import Code
from coordination.state import binding, following, table_names
from coordination.state.data import StateData
from coordination.state.levels import RULES_POLICY
from coordination.state.types import At, Done, Refused, Result, Topic
from coordination.topic_configs import TOPIC_CONFIGS

GROUPS_WITH_CONFIGS_MAX = 100_000
GROUP_ID_LENGTH_MAX = 32_767  # characters, what Kafka's wire allows

_Change = AlterTopicConfigs.Change
_Configs = tuple[Mapping[str, str] | None, Mapping[str, str]]  # of topics, None: each its own; of the cluster


def alter_topic_configs(state: StateData, message: AlterTopicConfigs, at: At) -> Result:
    """Change a topic's own configs, all or none. Done's value: None."""
    topic = state.topics.get(message.topic)
    if topic is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{message.topic}' does not exist.")
    configs = altered(state, topic, message)
    if isinstance(configs, Refused):
        return configs
    put(state, topic, configs, at)
    return Done()


def altered(state: StateData, topic: Topic, message: AlterTopicConfigs) -> dict[str, str] | Refused:
    """The topic's own configs after the changes; or why they are refused."""

    def inherited(name: str) -> str:
        return topic_configs.effective(name, {}, state.cluster_configs)

    known = _known("topic", TOPIC_CONFIGS, state.feature_level)
    configs = _altered(known, topic.configs, inherited, message.changes, message.replace_all)
    if isinstance(configs, Refused):
        return configs
    refusal = topic_refusal(configs, state.cluster_configs, state.feature_level)
    refusal = refusal or table_names.refusal_of_change(state, topic, configs)
    if refusal:
        return Refused(Code.INVALID_CONFIG, refusal)
    return following.refusal_of_change(state, topic, configs) or configs


def put(state: StateData, topic: Topic, configs: dict[str, str], at: At) -> None:
    """The topic has these configs from now on. `altered` has found nothing against them."""
    table_names.forget(state, topic)
    _judge_anew(state, [topic], (configs, state.cluster_configs), at)
    before, topic.configs = topic.configs, configs
    table_names.note(state, topic)
    following.follow(state, topic, before, at)


def _judge_anew(state: StateData, changed: Iterable[Topic], then: _Configs, at: At) -> None:
    """Records that were judged while another policy for rules was in force are to be judged again.

    `then`: the configs that the topics and the cluster are about to have.
    """
    own, cluster = then
    if state.feature_level < RULES_POLICY:
        return
    in_force = topic_configs.rules_in_force
    if own is None and in_force({}, state.cluster_configs) == in_force({}, cluster):
        return  # as with most changes of the cluster's configs: no topic's policy is another one
    for topic in changed:
        before = _judged_by(topic, topic.configs, state.cluster_configs)
        if before != _judged_by(topic, topic.configs if own is None else own, cluster):
            binding.judge_again(state, topic, at)


def _judged_by(topic: Topic, own: Mapping[str, str], cluster: Mapping[str, str]) -> tuple[str, ...]:
    """What of these configs says how the topic's records are judged; nothing where none are."""
    rules = topic_configs.record_rules_in_force(own, cluster)
    if not rules and topic.key_schema_id is None and topic.value_schema_id is None:
        return ()
    return (*topic_configs.rules_in_force(own, cluster), rules)


def topic_refusal(configs: Mapping[str, str], cluster: Mapping[str, str], level: int) -> str | None:
    """Why a topic may not have these configs in a cluster with those, at that level; None when it may."""
    reasons = (topic_configs.refusal(name, value, level) for name, value in configs.items())
    refusal = next((reason for reason in reasons if reason), None)
    return refusal or topic_configs.contradiction(configs, cluster)


def alter_cluster_configs(state: StateData, message: AlterClusterConfigs, at: At) -> Result:
    """Change the broker configs of the whole cluster, all or none. Done's value: None."""
    configs = cluster_altered(state.cluster_configs, message, state.feature_level)
    if isinstance(configs, Refused):
        return configs
    _judge_anew(state, state.topics.values(), (None, configs), at)
    state.cluster_configs = configs
    return Done()


def cluster_altered(
    before: dict[str, str], message: AlterClusterConfigs, level: int
) -> dict[str, str] | Refused:
    """The broker configs after the changes, at that level; or why they are refused."""
    changes = [_by_broker_name(change) for change in message.changes]
    for change in changes:
        config = BROKER_CONFIGS.get(change.name)
        if config is not None and (config.read_only or config.since > level):
            return Refused(
                Code.INVALID_REQUEST, f"{config.name} cannot be changed for the cluster: {config.doc}"
            )

    def inherited(name: str) -> str:
        return BROKER_CONFIGS[name].default

    configs = _altered(
        _known("broker", BROKER_CONFIGS, level), before, inherited, changes, message.replace_all
    )
    if isinstance(configs, Refused):
        return configs
    reasons = (broker_configs.refusal(name, value) for name, value in configs.items())
    refusal = next((reason for reason in reasons if reason), None) or broker_configs.contradiction(configs)
    if refusal:
        return Refused(Code.INVALID_REQUEST, refusal)  # not INVALID_CONFIG, as Kafka's brokers
    return configs


def _by_broker_name(change: _Change) -> _Change:
    """The change under the broker's name: it may come under that of the topic config, as it once did."""
    topic = TOPIC_CONFIGS.get(change.name)
    if topic is None or change.name in BROKER_CONFIGS or not topic.broker_name:
        return change
    return _Change(name=topic.broker_name, operation=change.operation, value=change.value)


def alter_group_configs(state: StateData, message: AlterGroupConfigs, at: At) -> Result:
    """Change a group's own configs, all or none; the group need not exist. Done's value: None."""
    group = message.group
    if not 0 < len(group) <= GROUP_ID_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, "a group's configs: the group id must not be empty")

    def inherited(name: str) -> str:
        return GROUP_CONFIGS[name].default

    own = state.group_configs.get(group, {})
    known = _known("group", GROUP_CONFIGS, state.feature_level)
    configs = _altered(known, own, inherited, message.changes, message.replace_all)
    if isinstance(configs, Refused):
        return configs
    refusal = group_configs.refusal(configs, state.cluster_configs)
    if refusal:
        return Refused(Code.INVALID_CONFIG, refusal)
    if configs and not own and len(state.group_configs) >= GROUPS_WITH_CONFIGS_MAX:
        return Refused(
            Code.POLICY_VIOLATION, f"{GROUPS_WITH_CONFIGS_MAX} groups have configs of their own, the most"
        )
    state.group_configs.pop(group, None)
    if configs:
        state.group_configs[group] = configs
    return Done()


def _known(what: str, table: Mapping[str, Config], level: int) -> Callable[[str], Config | Refused]:
    """Finds configs of a table by name, as far as the feature level knows them."""

    def find(name: str) -> Config | Refused:
        found = table.get(name)
        if found is None or found.known_from > level:
            return Refused(Code.INVALID_CONFIG, f"Unknown {what} config name: {name[:NAME_SHOWN_MAX]}")
        return found

    return find


def _altered(
    find: Callable[[str], Config | Refused],
    configs: dict[str, str],
    inherited: Callable[[str], str],
    changes: Iterable[_Change],
    replace_all: bool,
) -> dict[str, str] | Refused:
    """The configs after the changes, before their values are looked at; or why they cannot be made."""
    altered = {} if replace_all else dict(configs)
    for change in changes:
        known = find(change.name)
        if isinstance(known, Refused):
            return known
        if change.operation == _Change.SET:
            altered[change.name] = change.value
        elif change.operation == _Change.DELETE:
            altered.pop(change.name, None)
        elif known.type is not ConfigType.LIST:
            return Refused(
                Code.INVALID_CONFIG,
                f"Can't {_operation(change.operation)} to key {change.name} because its type is not LIST.",
            )
        else:
            items = split_list(altered.get(change.name, inherited(change.name)))
            named = split_list(change.value)
            items = [item for item in items if item not in named]
            if change.operation == _Change.APPEND:
                items += named
            altered[change.name] = ",".join(items)
    return altered


def _operation(number: int) -> str:
    """The name of an operation; before KNOWN_VALUES (levels.py) it may be one that nobody knows."""
    return next((name for name, known in _Change.Operation.items() if known == number), str(number))
