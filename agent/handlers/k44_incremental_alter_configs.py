"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs (KIP-339).

Versions 0 to 1.
Behaviour: all or none per resource; a resource named twice is INVALID_REQUEST; validate_only.
Deviations: what one agent alone can have (one broker's configs, its log level) is not changed by request
(INVALID_REQUEST, with the remedy); client metrics have no subscriptions.
"""

from __future__ import annotations

from collections import Counter

from agent.context import Context
from agent.handlers.alter import alter
from agent.wire.generated.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

KEY = 44
VERSIONS = (0, 1)


async def handle(
    ctx: Context, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    """One answer per resource, in the request's order."""
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        if named[kind, name] > 1:
            result: Result = Refused(Code.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            changes = [(each.name, each.config_operation, each.value) for each in resource.configs]
            result = await alter(ctx, kind, name, changes, False, request.validate_only)
        answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message
        response.responses.append(answer)
    return response
