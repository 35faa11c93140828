"""DeleteAcls: delete the ACLs that filters match, all at one point of the log.

Versions 1 to 3.
Behaviour: filters as in DescribeAcls, resolved when the command is applied; each answer names what its
filter matched, also where another filter matched it too. More than 10,000 at once are refused, and nothing is
deleted. With `authorizer.mode=off` SECURITY_DISABLED for each, as by Kafka that has no authorizer.
Deviations: 10,000 filters at most in one request, and those that name neither a principal nor a resource may
together be held against 200,000 ACLs.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.k29_describe_acls import require_known
from agent.kafka.handlers.k30_create_acls import NO_AUTHORIZER
from agent.kafka.propose import propose_one
from agent.net.wire.api import Encoded
from agent.net.wire.generated import delete_acls
from agent.net.wire.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from agent.net.wire.steps import encoded
from coordination.commands import DeleteAcls
from coordination.kafka_codes import Code
from coordination.state.acl_types import Acl, Operation, PatternType, Permission, ResourceType
from coordination.state.types import Done, Refused

KEY = 31
VERSIONS = (1, 3)


async def handle(ctx: Context, request: DeleteAclsRequest, version: int) -> DeleteAclsResponse | Encoded:
    """What each filter matched, in the request's order."""
    if ctx.services.authority.off:
        refused = DeleteAclsFilterResult(error_code=Code.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    for one in request.filters:
        require_known(one.resource_type_filter, one.pattern_type_filter, one.operation, one.permission_type)
    refusals = [_refusal(one) for one in request.filters]
    sound = [one for one, refused in zip(request.filters, refusals, strict=True) if refused is None]
    matched: list[tuple[Acl, ...]] = [() for _ in sound]
    if sound:
        result = await propose_one(ctx, DeleteAcls(filters=[_filter(one) for one in sound]))
        if isinstance(result, Refused):
            refusals = [each or result for each in refusals]
        else:
            assert isinstance(result, Done), f"DeleteAcls: {result!r}"
            matched = list(result.value) if isinstance(result.value, tuple) else []
    left = iter(matched)
    answers = [
        DeleteAclsFilterResult(0, None, [_matching(acl) for acl in next(left)])
        if refused is None
        else DeleteAclsFilterResult(refused.code, refused.message)
        for refused in refusals
    ]
    response = DeleteAclsResponse(filter_results=answers)
    return await encoded(delete_acls, response, version, "filter_results", "matching_acls")


def _refusal(one: DeleteAclsFilter) -> Refused | None:
    """Kafka's checks of values that it does not know (AclControlManager.validateFilter)."""
    for what, values in (
        ("patternFilter", ((one.resource_type_filter, ResourceType), (one.pattern_type_filter, PatternType))),
        ("entryFilter", ((one.operation, Operation), (one.permission_type, Permission))),
    ):
        if any(value not in kind._value2member_map_ for value, kind in values):
            return Refused(Code.INVALID_REQUEST, f"Unknown {what}.")
    return None


def _filter(one: DeleteAclsFilter) -> DeleteAcls.Filter:
    return DeleteAcls.Filter(
        resource_type=one.resource_type_filter,
        pattern_type=one.pattern_type_filter,
        name=one.resource_name_filter,
        principal=one.principal_filter,
        host=one.host_filter,
        operation=one.operation,
        permission=one.permission_type,
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        0,
        None,
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
