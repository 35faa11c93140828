"""DescribeAcls: the ACLs that a filter matches.

Versions 1 to 3.
Behaviour: answered after a read barrier. All filters: a name that is meant literally, as a prefix, in either
way (ANY) or as that of a resource to which ACLs apply (MATCH); null stands for any text. With
`authorizer.mode=off` SECURITY_DISABLED, as by Kafka that has no authorizer: administration programs ask when
they connect and take this for "no ACLs here".
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.api import Encoded
from agent.net.wire.errors import WireError
from agent.net.wire.generated import describe_acls
from agent.net.wire.generated.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state.acl_types import AclFilter

KEY = 29
VERSIONS = (1, 3)
NO_AUTHORIZER = "No Authorizer is configured on the broker"
NOTHING = 0  # an element that is left out: Kafka ends the connection of whoever sends one


async def handle(ctx: Context, request: DescribeAclsRequest, version: int) -> DescribeAclsResponse | Encoded:
    """The ACLs by resource, in the order in which the first of each came."""
    if ctx.services.authority.off:
        return DescribeAclsResponse(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    asked = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    require_known(asked.resource_type, asked.pattern_type, asked.operation, asked.permission)
    await ctx.barrier()
    found: dict[tuple[int, str, int], DescribeAclsResource] = {}
    pace = Pace()
    for acl in list(asked.candidates(ctx.state.acls)):
        await pace.row()
        if asked.matches(acl):
            place = (acl.resource_type, acl.name, acl.pattern_type)
            resource = found.get(place)
            if resource is None:
                resource = found[place] = DescribeAclsResource(*place)
            resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission))
    response = DescribeAclsResponse(resources=list(found.values()))
    return await encoded(describe_acls, response, version, "resources", "acls")


def require_known(*codes: int) -> None:
    """Raise WireError for an element that is UNKNOWN by its code, as Kafka, which cannot read it."""
    if NOTHING in codes:
        raise WireError("a filter or an ACL has an element that is UNKNOWN")
