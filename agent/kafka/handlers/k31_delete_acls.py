"""DeleteAcls: refused as by Kafka that has no authorizer.

Versions 1 to 3.
Behaviour: SECURITY_DISABLED for each filter.
Deviations: none.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.k30_create_acls import NO_AUTHORIZER
from agent.net.wire.generated.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from coordination.kafka_codes import Code

KEY = 31
VERSIONS = (1, 3)


async def handle(ctx: Context, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
    """One refusal per filter."""
    refused = DeleteAclsFilterResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
