"""ApiVersions: which APIs and versions this agent speaks.

Versions 0 to 4. An unsupported version gets a version 0 body with error 35 (KIP-511; agent/net/server.py).
Behaviour: the list is the list of handlers. Produce is advertised from 0, though 0 to 2 are refused.
Features: what UpdateFeatures finalized (docs/administration.md), with an epoch that rises when one changes,
the same on every agent. Before version 4 features that can be off are not listed as supported, as in Kafka.
Deviations: `floe.level` stands where Kafka has metadata.version; Kafka's other features do not exist here.
"""

from __future__ import annotations

import re

from agent.kafka.context import Context
from agent.net.wire.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from coordination.kafka_codes import Code
from coordination.state.features import SUPPORTED, finalized

KEY = 18
VERSIONS = (0, 4)
NAMED_SINCE = 3  # KIP-511: the client says what it is
ZERO_MINIMUM_SINCE = 4  # KIP-1022: older clients fail on a feature whose least level is 0
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(ctx: Context, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """Every handler's range."""
    named = (request.client_software_name, request.client_software_version)
    if version >= NAMED_SINCE and not all(map(_SOFTWARE.fullmatch, named)):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    ranges, state = ctx.services.ranges, ctx.state
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *ranges[key]) for key in sorted(ranges)],
        supported_features=[
            SupportedFeatureKey(name, each.low, each.high)
            for name, each in sorted(SUPPORTED.items())
            if each.low or version >= ZERO_MINIMUM_SINCE
        ],
        finalized_features_epoch=state.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name, level, level) for name, level in sorted(finalized(state).items())
        ],
    )
