"""ApiVersions: which APIs and versions this agent speaks.

Versions 0 to 4. An unsupported version gets a version 0 body with error 35 (KIP-511; agent/server.py).
Behaviour: the list is the list of handlers. Produce is advertised from 0, though 0 to 2 are refused.
Deviations: no features are finalized: there are neither transactions version 2 nor the new group protocol
yet. The epoch of the (empty) finalized features is 0 on every agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.context import Context
from agent.wire.generated.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from coordination.kafka_codes import Code

KEY = 18
VERSIONS = (0, 4)
NAMED_SINCE = 3  # KIP-511: the client says what it is
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(ctx: Context, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """Every handler's range."""
    named = (request.client_software_name, request.client_software_version)
    if version >= NAMED_SINCE and not all(map(_SOFTWARE.fullmatch, named)):
        return ApiVersionsResponse(error_code=Code.INVALID_REQUEST)
    return supported(ctx.services.ranges)


def supported(ranges: Mapping[int, tuple[int, int]]) -> ApiVersionsResponse:
    """The ranges (first and last version by API key) as an answer."""
    keys = [ApiVersion(key, *ranges[key]) for key in sorted(ranges)]
    return ApiVersionsResponse(api_keys=keys, finalized_features_epoch=0)
