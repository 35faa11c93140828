"""DescribeCluster: the live brokers.

Versions 0 to 2.
Behaviour: every agent is a broker; the controller is one of them, any does its work. Fenced brokers are gone.
Deviations: there are no separate controllers: endpoint type 2 is MISMATCHED_ENDPOINT_TYPE, as from a broker.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.lookup import CLUSTER_OPERATIONS
from agent.net.wire.generated.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from coordination.kafka_codes import Code

KEY = 60
VERSIONS = (0, 2)
BROKERS, CONTROLLERS = 1, 2


async def handle(ctx: Context, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
    """The cluster as this agent knows it."""
    response = DescribeClusterResponse(
        endpoint_type=request.endpoint_type, cluster_id=ctx.services.config.cluster.name
    )
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        response.error_code = Code.MISMATCHED_ENDPOINT_TYPE if known else Code.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = f"endpoint type {request.endpoint_type}: this is a broker's endpoint (1)"
        return response
    response.controller_id = ctx.controller()
    for broker in ctx.brokers():
        endpoint = ctx.endpoint(broker)
        response.brokers.append(
            DescribeClusterBroker(broker.node_id, endpoint.host, endpoint.port, broker.zone or None)
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
