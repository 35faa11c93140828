"""AlterConfigs: replace all configs of topics, of groups or of the whole cluster.

Versions 0 to 2.
Behaviour: configs that are not named return to their defaults; all or none per resource; a resource named
twice is INVALID_REQUEST; validate_only.
Deviations: what one agent alone can have is not changed by request (INVALID_REQUEST, with the remedy).
"""

from __future__ import annotations

from collections import Counter

from agent.context import Context
from agent.handlers.alter import Change, alter
from agent.wire.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

KEY = 33
VERSIONS = (0, 2)


async def handle(ctx: Context, request: AlterConfigsRequest, version: int) -> AlterConfigsResponse:
    """One answer per resource, in the request's order."""
    response = AlterConfigsResponse()
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for resource in request.resources:
        changes = [(config.name, int(Change.SET), config.value) for config in resource.configs]
        kind, name = resource.resource_type, resource.resource_name
        if named[kind, name] > 1:
            result: Result = Refused(Code.INVALID_REQUEST, "Each resource must appear at most once.")
        else:
            result = await alter(ctx, kind, name, changes, True, request.validate_only)
        answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message
        response.responses.append(answer)
    return response
