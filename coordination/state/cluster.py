"""Claims of named jobs, the feature level, and the record of snapshots with what may be trimmed."""

from __future__ import annotations

from coordination.commands import Claim, RecordSnapshot, ReleaseClaim, SetFeatureLevel, Trim
from coordination.kafka_codes import Code
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN, StateData
from coordination.state.errors import UnsupportedFeature
from coordination.state.levels import TRIM_LAG_BOUND, enter
from coordination.state.types import At, ClaimHolder, Done, Refused, Result, SnapshotRecord

SNAPSHOTS_KEPT = 3
TRIM_LAG_MAX = 100_000
"""How many revisions an agent may be behind and the log still waits for it. One that is further behind
catches up from a snapshot, which takes it less time than so many entries."""
CLAIMS_MAX = 100_000
CLAIM_NAME_LENGTH_MAX = 512  # characters


def claim(state: StateData, message: Claim, at: At) -> Result:
    """Take a job nobody live holds. Done's value: the claim's revision (the old one for its holder)."""
    holder = state.claims.get(message.name)
    if holder is not None:
        if holder.incarnation == at.author.incarnation:
            return Done(holder.revision)
        return Refused(Code.NOT_COORDINATOR, f"claim {message.name!r} is held by {holder.incarnation:016x}")
    if not 0 < len(message.name) <= CLAIM_NAME_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, f"claim name: 1 to {CLAIM_NAME_LENGTH_MAX} characters")
    if len(state.claims) >= CLAIMS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has {CLAIMS_MAX} claims, the most it takes")
    state.claims[message.name] = ClaimHolder(at.author.incarnation, at.revision)
    return Done(at.revision)


def release_claim(state: StateData, message: ReleaseClaim, at: At) -> Result:
    """Give a job back. Done's value: None."""
    if state.claims.get(message.name) != ClaimHolder(at.author.incarnation, message.claim_revision):
        return Refused(Code.NOT_COORDINATOR, f"claim {message.name!r} is not the author's")
    del state.claims[message.name]
    return Done()


def set_feature_level(state: StateData, message: SetFeatureLevel, at: At) -> Result:
    """Raise the feature level once every live agent knows it. Done's value: the level.

    Raises UnsupportedFeature when the level is raised above what this code knows: nothing after it
    could be applied alike.
    """
    if message.level <= state.feature_level:
        return Refused(
            Code.INVALID_UPDATE_VERSION,
            f"feature level {message.level}: it is at {state.feature_level} already",
        )
    behind = [i.name for i in state.incarnations.values() if i.live and i.feature_max < message.level]
    if behind:
        return Refused(
            Code.FEATURE_UPDATE_FAILED, f"feature level {message.level}: {behind[0]!r} does not know it"
        )
    if message.level > FEATURE_LEVEL_MAX:
        raise UnsupportedFeature(
            f"revision {at.revision} raises the feature level to {message.level}, this code knows "
            f"{FEATURE_LEVEL_MIN} to {FEATURE_LEVEL_MAX}: run a newer version"
        )
    enter(state, message.level)
    return Done(message.level)


def record_snapshot(state: StateData, message: RecordSnapshot, at: At) -> Result:
    """Remember a durable snapshot; the newest three count. Done's value: the keys that count no more."""
    newest = state.snapshots[-1].revision if state.snapshots else 0
    if not newest < message.revision < at.revision:
        return Refused(
            Code.INVALID_UPDATE_VERSION,
            f"snapshot at {message.revision}: expected above {newest}, below {at.revision}",
        )
    state.snapshots.append(SnapshotRecord(message.revision, message.key, message.size))
    dropped = state.snapshots[:-SNAPSHOTS_KEPT]
    del state.snapshots[:-SNAPSHOTS_KEPT]
    return Done(tuple(snapshot.key for snapshot in dropped))


def trim_bound(state: StateData) -> int:
    """The highest revision through which the log may be trimmed now; 0 when nothing may be.

    Not above the second-newest snapshot (a corrupt newest one must not strand anybody) and not above what
    every live agent says it has applied. Counted in revisions and by no clock: whoever is more than
    TRIM_LAG_MAX of them behind is waited for no longer, for whatever reason it is (silent, slow, standing
    still); nothing is lost by that, since a follower behind the trim loads a snapshot.
    """
    if len(state.snapshots) < 2:
        return 0
    applied = [i.applied_revision for i in state.incarnations.values() if i.live]
    if state.feature_level >= TRIM_LAG_BOUND:
        applied = [revision for revision in applied if state.revision - revision <= TRIM_LAG_MAX]
    return min([state.snapshots[-2].revision, *applied])


def trim(state: StateData, message: Trim, at: At) -> Result:
    """Say whether the log may be trimmed. Done's value: the revision through which it may be."""
    bound = trim_bound(state)
    if message.through > bound:
        return Refused(Code.POLICY_VIOLATION, f"trim through {message.through}: not safe above {bound} yet")
    state.trimmed_through = max(state.trimmed_through, message.through)
    return Done(state.trimmed_through)
