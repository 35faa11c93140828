"""Random changes of configs and features against dictionaries; a snapshot changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordination.commands import (
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    CreateTopic,
    UpdateFeatures,
)
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused, Result
from coordination.state.features import GROUP_VERSION, LEVEL, finalized
from coordination.state.levels import TRANSACTION_VERSION
from tests.unit.coordination.kit import Script

A = 11
GROUPS = ("g", "h")
Change = AlterTopicConfigs.Change
Update = UpdateFeatures.Update

# What may stand in each config, and what may not. Nothing here crosses a bound that another one sets.
GOOD: dict[str, dict[str, tuple[str, ...]]] = {
    "topic": {"retention.ms": ("-1", "5"), "cleanup.policy": ("compact", "delete", "", "compact,delete")},
    "cluster": {
        "num.partitions": ("1", "10000"),
        "log.retention.hours": ("-1", "7"),
        "group.consumer.assignors": ("uniform", "range,uniform"),
    },
    "group": {"consumer.session.timeout.ms": ("45000", "60000"), "consumer.heartbeat.interval.ms": ("5000",)},
}
BAD = {
    "topic": (
        ("retention.ms", "-2"),
        ("cleanup.policy", "burn"),
        ("no.such", "1"),
        ("log.retention.ms", "1"),
    ),
    "cluster": (("num.partitions", "0"), ("node.id", "1"), ("num.io.threads", "9"), ("no.such", "1")),
    "group": (("consumer.session.timeout.ms", "44999"), ("no.such", "1"), ("retention.ms", "1")),
}
WHERE = st.sampled_from(["t", "u", "cluster", *GROUPS])
LISTS = ("cleanup.policy", "group.consumer.assignors")


def kind_of(where: str) -> str:
    """The table that the place follows."""
    return where if where == "cluster" else "group" if where in GROUPS else "topic"


class Administration(RuleBasedStateMachine):
    """Two topics, two groups, one cluster, one administrator."""

    @initialize()
    def begin(self) -> None:
        self.script = Script()
        self.script.register(A)
        for name in "tu":
            self.script.one(A, CreateTopic(name=name, topic_id=name.encode() * 16, partitions=1))
        self.configs: dict[str, dict[str, str]] = {name: {} for name in ("t", "u", "cluster", *GROUPS)}
        self.group_version, self.epoch = 1, 0

    def _alter(self, where: str, *changes: Change, replace_all: bool = False) -> Result:
        if where == "cluster":
            return self.script.one(A, AlterClusterConfigs(changes=changes, replace_all=replace_all))
        if where in GROUPS:
            return self.script.one(
                A, AlterGroupConfigs(group=where, changes=changes, replace_all=replace_all)
            )
        return self.script.one(A, AlterTopicConfigs(topic=where, changes=changes, replace_all=replace_all))

    @rule(where=WHERE, data=st.data(), replace_all=st.booleans(), spoilt=st.booleans())
    def set(self, where: str, data: st.DataObject, replace_all: bool, spoilt: bool) -> None:
        good = GOOD[kind_of(where)]
        names = data.draw(st.lists(st.sampled_from(sorted(good)), unique=True))
        wanted = {name: data.draw(st.sampled_from(good[name])) for name in names}
        changes = [Change(name=name, value=value) for name, value in wanted.items()]
        if spoilt:
            name, value = data.draw(st.sampled_from(BAD[kind_of(where)]))
            changes = [each for each in changes if each.name != name] + [Change(name=name, value=value)]
            assert isinstance(self._alter(where, *changes, replace_all=replace_all), Refused)
            return
        assert self._alter(where, *changes, replace_all=replace_all) == Done()
        self.configs[where] = wanted if replace_all else self.configs[where] | wanted

    @rule(where=WHERE, data=st.data())
    def delete(self, where: str, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(GOOD[kind_of(where)])))
        assert self._alter(where, Change(name=name, operation=Change.DELETE)) == Done()
        self.configs[where].pop(name, None)

    @rule(where=st.sampled_from("tu"), item=st.sampled_from(["compact", "delete"]), append=st.booleans())
    def change_a_list(self, where: str, item: str, append: bool) -> None:
        operation = Change.APPEND if append else Change.SUBTRACT
        assert self._alter(where, Change(name="cleanup.policy", operation=operation, value=item)) == Done()
        policy = self.configs[where].get("cleanup.policy", "delete")
        items = [each for each in policy.split(",") if each and each != item]
        self.configs[where]["cleanup.policy"] = ",".join(items + [item] * append)

    @rule(where=WHERE, append=st.booleans())
    def change_no_list(self, where: str, append: bool) -> None:
        name = next(name for name in GOOD[kind_of(where)] if name not in LISTS)
        operation = Change.APPEND if append else Change.SUBTRACT
        assert isinstance(self._alter(where, Change(name=name, operation=operation, value="5")), Refused)

    @rule(level=st.integers(0, 2), kind=st.sampled_from(Update.Kind.values()), spoilt=st.booleans())
    def update_features(self, level: int, kind: Update.Kind.ValueType, spoilt: bool) -> None:
        updates = [Update(name=GROUP_VERSION, level=level, kind=kind)]
        updates += [Update(name=LEVEL, level=3, kind=Update.UPGRADE)] * spoilt
        result = self.script.one(A, UpdateFeatures(updates=updates))
        down = level < self.group_version
        up = level > self.group_version
        sound = level <= 1 and kind and not (down and kind == Update.UPGRADE)
        if spoilt or not sound or (up and kind != Update.UPGRADE):
            assert isinstance(result, Refused)
            return
        self.epoch += down or up
        self.group_version = level
        assert result == Done(self.epoch)

    @rule()
    def snapshot(self) -> None:
        again = decode(encode(self.script.state))
        assert canonical_digest(again) == canonical_digest(self.script.state)
        self.script.state = again

    @invariant()
    def the_state_shows_the_model(self) -> None:
        state = self.script.state
        found = {name: dict(topic.configs) for name, topic in state.topics.items()}
        found["cluster"] = dict(state.cluster_configs)
        found |= {group: dict(state.group_configs.get(group, {})) for group in GROUPS}
        assert found == self.configs
        levels = {LEVEL: 2, TRANSACTION_VERSION: 2} | ({GROUP_VERSION: 1} if self.group_version else {})
        assert (finalized(state), state.features_epoch) == (levels, self.epoch)


Administration.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAdministration = pytest.mark.timeout(300)(Administration.TestCase)
