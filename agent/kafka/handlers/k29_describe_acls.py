"""DescribeAcls: answered as Kafka does that has no authorizer.

Versions 1 to 3.
Behaviour: SECURITY_DISABLED. Administration programs ask when they connect and take this for "no ACLs here".
Deviations: none.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from coordination.kafka_codes import Code

KEY = 29
VERSIONS = (1, 3)
NO_AUTHORIZER = "No Authorizer is configured on the broker"


async def handle(ctx: Context, request: DescribeAclsRequest, version: int) -> DescribeAclsResponse:
    """Why there is nothing to describe."""
    return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
