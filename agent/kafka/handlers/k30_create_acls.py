"""CreateAcls: add ACLs, all at one point of the log (KIP-868).

Versions 1 to 3.
Behaviour: each ACL is answered alone; one that is none keeps nothing from the others. One that is there
already is no error. Any operation may stand with any resource. With `authorizer.mode=off` SECURITY_DISABLED
for each, as by Kafka that has no authorizer.
Deviations: a host may be a network (`10.0.0.0/8`), and one that has a slash and is none is refused. 100,000
ACLs at most; names of 1,024 characters, principals of 512, hosts of 255.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.k29_describe_acls import require_known
from agent.kafka.propose import propose_one
from agent.net.wire.generated.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from agent.net.wire.steps import Pace
from coordination.commands import AclBinding, CreateAcls
from coordination.kafka_codes import Code
from coordination.state.acl_types import Acl
from coordination.state.acls import refusal
from coordination.state.types import Refused

KEY = 30
VERSIONS = (1, 3)
NO_AUTHORIZER = "No Authorizer is configured."


async def handle(ctx: Context, request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    """One answer per ACL, in the request's order."""
    if ctx.services.authority.off:
        return CreateAclsResponse(results=[no_authorizer()] * len(request.creations))
    pace = Pace()
    sound: dict[Acl, None] = {}
    refusals: list[Refused | None] = []
    for one in request.creations:
        require_known(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
        acl = acl_of(one)
        refusals.append(refusal(acl))
        if refusals[-1] is None:
            sound[acl] = None
        await pace.row(5)
    if sound:
        result = await propose_one(ctx, CreateAcls(acls=[_binding(acl) for acl in sound]))
        if isinstance(result, Refused):
            refusals = [each or result for each in refusals]
    return CreateAclsResponse(
        results=[
            AclCreationResult() if each is None else AclCreationResult(each.code, each.message)
            for each in refusals
        ]
    )


def no_authorizer() -> AclCreationResult:
    """The answer where no ACL is asked for."""
    return AclCreationResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


def acl_of(one: AclCreation) -> Acl:
    """What the request asks to add."""
    return Acl(
        one.resource_type,
        one.resource_pattern_type,
        one.resource_name,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        resource_type=acl.resource_type,
        pattern_type=acl.pattern_type,
        name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )
