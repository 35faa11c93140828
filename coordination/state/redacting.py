"""Which topics keep marked fields from readers without clearance, and how (`floe.redact`). Pure."""

from __future__ import annotations

from typing import NamedTuple

from coordination.config_types import split_list
from coordination.state import quarantine
from coordination.state.data import StateData
from coordination.state.quarantine_names import SUFFIX, topic_of
from coordination.state.types import Topic
from coordination.topic_configs import effective


class Policy(NamedTuple):
    """What stands in place of a marked field (remove, hash or mask), and which tags mark one."""

    action: str
    tags: frozenset[str]


def policy_of(state: StateData, topic: Topic) -> Policy | None:
    """How the topic redacts; None: not at all. A quarantine does as its topic, unless it says so itself."""
    action = effective("floe.redact", topic.configs, state.cluster_configs)
    if action == "off" and topic.name.endswith(SUFFIX):
        source = state.topics.get(topic_of(topic.name))
        return policy_of(state, source) if source and quarantine.of(state, source) is topic else None
    if action == "off":
        return None
    tags = split_list(effective("floe.redact.tags", topic.configs, state.cluster_configs))
    return Policy(action, frozenset(tags))
