"""Finalized features (KIP-584, KIP-1022): Floe's own feature level, and Kafka's that have a meaning here.

`floe.level` is the level of apply itself: it only rises, and only once every live agent knows the next one.
The others say what clients may use; they go up and down between the versions that this code supports.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordination.commands import SetFeatureLevel, UpdateFeatures
from coordination.kafka_codes import Code
from coordination.state.cluster import set_feature_level
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN, StateData
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
}

_Update = UpdateFeatures.Update


def finalized(state: StateData) -> dict[str, int]:
    """The levels in force, by name, without features that are off."""
    levels = {LEVEL: state.feature_level, **state.features}
    return {name: level for name, level in levels.items() if level}


def update_features(state: StateData, message: UpdateFeatures, at: At) -> Result:
    """Finalize levels, all or none. Done's value: the epoch of the finalized features.

    Raises UnsupportedFeature when `floe.level` is raised above what this code knows.
    """
    changed = [update for update in message.updates if finalized(state).get(update.name, 0) != update.level]
    for update in changed:
        refusal = _refusal(state, update)
        if refusal is not None:
            return refusal
    for update in changed:
        if update.name == LEVEL:
            raised = set_feature_level(state, SetFeatureLevel(level=update.level), at)
            if isinstance(raised, Refused):
                return raised
        else:
            state.features[update.name] = update.level
    state.features_epoch += bool(changed)
    return Done(state.features_epoch)


def _refusal(state: StateData, update: _Update) -> Refused | None:
    """Why the level may not be finalized (FeatureControlManager.updateFeature), None when it may."""
    now = finalized(state).get(update.name, 0)
    supported = SUPPORTED.get(update.name)
    problem = None
    if update.kind not in _Update.Kind.values():
        problem = f"upgrade type {update.kind} is unknown"
    elif supported is None:
        problem = "the cluster does not support this feature"
    elif update.name == LEVEL:
        return _level_refusal(state, update)
    elif not supported.low <= update.level <= supported.high:
        problem = f"levels {supported.low} to {supported.high} are supported"
    elif update.level < now and update.kind == _Update.UPGRADE:
        problem = f"it is at {now}: a lower level needs the upgrade type safe or unsafe downgrade"
    elif update.level > now and update.kind != _Update.UPGRADE:
        problem = f"it is at {now}: a higher level needs the upgrade type upgrade"
    if problem is None:
        return None
    return Refused(
        Code.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.name}: {problem}",
    )


def _level_refusal(state: StateData, update: _Update) -> Refused | None:
    """Floe's own level only rises, and to what every live agent knows."""
    what = f"Invalid update version {update.level} for feature {LEVEL}"
    if update.level < state.feature_level:
        return Refused(
            Code.INVALID_UPDATE_VERSION, f"{what}: it is at {state.feature_level} and never goes back"
        )
    if update.kind != _Update.UPGRADE:
        return Refused(Code.INVALID_UPDATE_VERSION, f"{what}: a higher level needs the upgrade type upgrade")
    behind = [i.name for i in state.incarnations.values() if i.live and i.feature_max < update.level]
    if behind:
        return Refused(
            Code.INVALID_UPDATE_VERSION,
            f"{what}: agent {behind[0]!r} does not know it; run a version that does everywhere first",
        )
    return None
