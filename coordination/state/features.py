"""Finalized features (KIP-584, KIP-1022): Floe's own feature level, and Kafka's that have a meaning here.

`floe.level` is the level of apply itself: it only rises, and only once every live agent knows the next one.
The others say what clients may use; they go up and down between the versions that this code supports.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordination.commands import SetFeatureLevel, UpdateFeatures
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.cluster import set_feature_level
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN, StateData
from coordination.state.levels import TRANSACTION_VERSION, TRANSACTIONS
from coordination.state.types import At, Done, Refused, Result

LEVEL = "floe.level"
GROUP_VERSION = "group.version"  # 1: the consumer group protocol of KIP-848 is spoken


@dataclass(frozen=True, slots=True)
class Supported:
    """The levels of a feature that this code knows; a minimum of 0 means that it can be off."""

    low: int
    high: int


SUPPORTED: dict[str, Supported] = {
    LEVEL: Supported(FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX),
    GROUP_VERSION: Supported(0, 1),
    TRANSACTION_VERSION: Supported(0, 2),  # 2: clients speak transactions v2 (KIP-890)
}

_Update = UpdateFeatures.Update
_KINDS = (_Update.UPGRADE, _Update.SAFE_DOWNGRADE, _Update.UNSAFE_DOWNGRADE)


def finalized(state: StateData) -> dict[str, int]:
    """The levels in force, by name, without features that are off."""
    levels = {LEVEL: state.feature_level, **state.features}
    return {name: level for name, level in levels.items() if level}


def update_features(state: StateData, message: UpdateFeatures, at: At) -> Result:
    """Finalize levels, all or none. Done's value: the epoch of the finalized features.

    Raises UnsupportedFeature when `floe.level` is raised above what this code knows.
    """
    for update in message.updates:
        problem = _problem(state, update)
        if problem is not None:
            what = f"Invalid update version {update.level} for feature {shown(update.name)}. {problem}"
            return Refused(Code.INVALID_UPDATE_VERSION, what)
    before = finalized(state)
    for update in message.updates:
        if update.name != LEVEL:
            state.features[update.name] = update.level
        elif update.level > state.feature_level:
            set_feature_level(state, SetFeatureLevel(level=update.level), at)
    state.features_epoch += finalized(state) != before
    return Done(state.features_epoch)


def _problem(state: StateData, update: _Update) -> str | None:
    """Why the level may not be finalized (FeatureControlManager.updateFeature); None when it may."""
    supported = SUPPORTED.get(update.name)
    if update.name == TRANSACTION_VERSION and state.feature_level < TRANSACTIONS:
        supported = None
    if supported is None and not update.level:
        return f"Feature {shown(update.name)} not found."
    if supported is None:
        return "This cluster does not support this feature."
    now = finalized(state).get(update.name, 0)
    if update.name == LEVEL and update.level > now:
        behind = [i.name for i in state.incarnations.values() if i.live and i.feature_max < update.level]
        if behind:
            return f"Agent {behind[0]!r} does not know it: run a version that does everywhere first."
    elif not supported.low <= update.level <= supported.high:
        return f"This cluster only supports versions {supported.low}-{supported.high}"
    if update.kind not in _KINDS:
        return "The controller does not support the given upgrade type."
    if update.level > now and update.kind != _Update.UPGRADE:
        return "Can't downgrade to a newer version."
    if update.level < now and update.kind == _Update.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level < now and update.name == LEVEL:
        return (
            "What is in the log already may need this level: it never goes back. To stay, run versions that "
            f"know level {now}; to go back, restore the log and the bucket from before it was finalized."
        )
    return None
