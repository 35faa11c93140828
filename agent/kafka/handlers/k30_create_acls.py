"""CreateAcls: refused as by Kafka that has no authorizer.

Versions 1 to 3.
Behaviour: SECURITY_DISABLED for each of them.
Deviations: none.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from coordination.kafka_codes import Code

KEY = 30
VERSIONS = (1, 3)
NO_AUTHORIZER = "No Authorizer is configured."


async def handle(ctx: Context, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    """One refusal per ACL."""
    refused = AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
