"""UpdateFeatures: finalize levels of Floe's feature and those of Kafka that have a meaning here (KIP-584).

Versions 0 to 2.
Behaviour: all or none; validate_only applies the same rules without effect. `floe.level` is the level of
the replicated state: it rises only when every live agent knows the new one, and never goes back.
`group.version` 1 (0) switches the consumer group protocol on (off). Version 0 has no downgrades, as in
Kafka.
Deviations: metadata.version and other features of KRaft do not exist here: INVALID_UPDATE_VERSION.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.rehearse import rehearse
from agent.kafka.propose import propose_one
from agent.net.wire.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from coordination.commands import UpdateFeatures
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

KEY = 57
VERSIONS = (0, 2)
TYPES_SINCE = 1  # UpgradeType; before, everything is an upgrade
RESULTS_UNTIL = 1  # one row per feature; later only the answer of the whole
FAILED = "The update failed for all features since the following feature had an error: "
_Update = UpdateFeatures.Update


async def handle(ctx: Context, request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    """One answer for all updates together."""
    result = await _decide(ctx, request, version)
    if isinstance(result, Refused):
        message = result.message
        if result.code == Code.INVALID_UPDATE_VERSION:
            message = FAILED + message
        return UpdateFeaturesResponse(error_code=result.code, error_message=message)
    response = UpdateFeaturesResponse(error_message=None)
    if version <= RESULTS_UNTIL:
        response.results = [
            UpdatableFeatureResult(each.feature, Code.NONE, Code.NONE.name)
            for each in request.feature_updates
        ]
    return response


async def _decide(ctx: Context, request: UpdateFeaturesRequest, version: int) -> Result:
    negative = next((each for each in request.feature_updates if each.max_version_level < 0), None)
    if negative is not None:
        what = f"Invalid update version {negative.max_version_level} for feature {shown(negative.feature)}."
        return Refused(Code.INVALID_UPDATE_VERSION, f"{what} A feature version cannot be less than 0.")
    command = UpdateFeatures(updates=[_update(each, version) for each in request.feature_updates])
    if request.validate_only and version >= TYPES_SINCE:
        await ctx.barrier()
        return rehearse(ctx.state, command)
    return await propose_one(ctx, command, request.timeout_ms)


def _update(each: FeatureUpdateKey, version: int) -> _Update:
    kind = each.upgrade_type if version >= TYPES_SINCE else _Update.UPGRADE
    return _Update(name=each.feature, level=each.max_version_level, kind=kind)  # type: ignore[arg-type]  # open enum
