"""ListConfigResources: the resources that have configs (KIP-1142).

Versions 0 to 1.
Behaviour: answered after a read barrier; no types means all. Groups are those with configs of their own.
Version 0 asks for client metrics only. An unknown type is UNSUPPORTED_VERSION.
Deviations: there are no client metrics subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.kafka.context import Context
from agent.kafka.handlers.configs import Resource
from agent.net.wire.api import Encoded
from agent.net.wire.generated import list_config_resources
from agent.net.wire.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code

KEY = 74
VERSIONS = (0, 1)
TYPES_SINCE = 1


async def handle(
    ctx: Context, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse | Encoded:
    """The names of each type that is asked for, in the order of the types."""
    if version < TYPES_SINCE:
        return ListConfigResourcesResponse()
    if not set(request.resource_types) <= set(Resource):
        return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
    await ctx.barrier()
    wanted = [kind for kind in Resource if kind in request.resource_types or not request.resource_types]
    response, pace = ListConfigResourcesResponse(), Pace()
    for kind in wanted:
        for name in _names(ctx, kind):
            response.config_resources.append(ConfigResource(name, kind))
            await pace.row()
    return await encoded(list_config_resources, response, version, "config_resources")


def _names(ctx: Context, kind: Resource) -> Iterable[str]:
    match kind:
        case Resource.TOPIC:
            return sorted(ctx.state.topics)
        case Resource.BROKER | Resource.BROKER_LOGGER:
            return [str(broker.node_id) for broker in ctx.brokers()]
        case Resource.GROUP:
            return sorted(ctx.state.group_configs)
        case Resource.CLIENT_METRICS:
            return []
