"""AlterConfigs: replace all configs of topics, of groups or of the whole cluster.

Versions 0 to 2.
Behaviour: configs that are not named return to their defaults; all or none per resource; a resource named
twice is INVALID_REQUEST; validate_only. All resources of a request change at one point of the log (rule 12).
What is set for one live broker's id counts for the whole cluster, and takes nothing away from it: a broker
has no configs of its own that could return to their defaults.
Deviations: what one agent alone can have is not changed by request (INVALID_REQUEST, with the remedy); nor
are the cluster's defaults of topic configs set so that no topic could be made with them (INVALID_REQUEST).
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.alter import Change, alter
from agent.net.wire.generated.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from coordination.state.types import Refused

KEY = 33
VERSIONS = (0, 2)


async def handle(ctx: Context, request: AlterConfigsRequest, version: int) -> AlterConfigsResponse:
    """One answer per resource, in the request's order."""
    resources = [
        (each.resource_type, each.resource_name, [(c.name, int(Change.SET), c.value) for c in each.configs])
        for each in request.resources
    ]
    results = await alter(ctx, resources, replace_all=True, validate_only=request.validate_only)
    response = AlterConfigsResponse()
    for (kind, name, _), result in zip(resources, results, strict=True):
        answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message
        response.responses.append(answer)
    return response
