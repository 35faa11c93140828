"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs (KIP-339).

Versions 0 to 1.
Behaviour: all or none per resource; a resource named twice is INVALID_REQUEST; validate_only. All resources
of a request change at one point of the log, however many they are (rule 12). A broker's configs are the
cluster's: what is set or deleted for a live broker's id counts for the whole cluster, as for the empty name.
Deviations: no broker has configs of its own; what one agent alone can have (its settings, its log level) is
not changed by request (INVALID_REQUEST, with the remedy), nor are defaults of topic configs set so that no
topic could be made with them; client metrics have no subscriptions.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.alter import alter
from agent.net.wire.generated.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from coordination.state.types import Refused

KEY = 44
VERSIONS = (0, 1)


async def handle(
    ctx: Context, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    """One answer per resource, in the request's order."""
    resources = [
        (
            each.resource_type,
            each.resource_name,
            [(c.name, c.config_operation, c.value) for c in each.configs],
        )
        for each in request.resources
    ]
    results = await alter(ctx, resources, validate_only=request.validate_only)
    response = IncrementalAlterConfigsResponse()
    for (kind, name, _), result in zip(resources, results, strict=True):
        answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
        if isinstance(result, Refused):
            answer.error_code, answer.error_message = result.code, result.message
        response.responses.append(answer)
    return response
