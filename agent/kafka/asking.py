"""What the console asks of Kafka's side in somebody's name: requests of Kafka's own, guarded and handled as
those of a connection are, or rehearsed.

A rehearsal changes nothing: requests that have `validate_only` are sent with it, and of the others guard and
checks are asked without the proposal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from agent.kafka.authority.needs import OFFSET_COMMIT, OFFSET_COMMIT_GROUP
from agent.kafka.context import Client, Context, Services
from agent.kafka.guards import guarded
from agent.kafka.guards.rows import opened
from agent.kafka.handlers import HANDLERS, k21_delete_records, k30_create_acls, k42_delete_groups
from agent.kafka.produce.firsts import Firsts
from agent.net.wire.api import APIS
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import offset_commit as oc
from agent.telemetry.changes import Change
from agent.telemetry.trail import Actor
from coordination.kafka_codes import Code
from coordination.state.acls import refusal
from coordination.state.groups import is_empty
from coordination.state.types import Done, Refused, Result

NO_CONNECTION: Final = -1
OFFSET_COMMIT_KEY: Final = 8
LISTED_MAX: Final = 20
"""Positions that the audit log tells of one reset."""
Checks = Callable[[Context, Any], Awaitable[Any]]


class Asking:
    """Of one agent."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def ask(self, actor: Actor, key: int, request: Any, *, rehearse: bool = False) -> Any:
        """The response to a request in the newest version that is served. `key`: of the API.

        `rehearse`: what it would be, as far as that is known without the log.
        """
        services, handler = self._services, HANDLERS[key]
        version = handler.VERSIONS[1]
        ctx = Context(services, self._client(actor), actor.client_id)
        if rehearse:
            return await self._rehearsed(ctx, key, request, version)
        if services.replica.state.quotas.entities:
            ctx.charge = services.quotas.charge(actor.principal, actor.client_id)
        response = await guarded(ctx, key, handler, request, version)
        if key == OFFSET_COMMIT_KEY:  # of clients no administration, and so not told by itself
            services.trail.decided(actor, [[_reset(ctx, request)]], [_outcome(response)])
        return await opened(APIS[key].codec(), response, version)  # type: ignore[arg-type]  # modules are codecs

    def coordinator(self, group_id: str) -> int:
        """The node that looks after a group."""
        return self._services.hints.coordinator(group_id)

    def _client(self, actor: Actor) -> Client:
        firsts = Firsts(self._services.config.produce)
        return Client(
            NO_CONNECTION, actor.door, firsts, host=actor.host, principal=actor.principal, software="console"
        )

    async def _rehearsed(self, ctx: Context, key: int, request: Any, version: int) -> Any:
        if hasattr(request, "validate_only"):
            request.validate_only = True
            response = await guarded(ctx, key, HANDLERS[key], request, version)
        else:
            response = await guarded(
                ctx, key, _Checked((version, version), key, _CHECKS[key]), request, version
            )
        return await opened(APIS[key].codec(), response, version)  # type: ignore[arg-type]  # modules are codecs


@dataclass
class _Checked:
    """Stands for a handler: its checks, without what it would propose."""

    VERSIONS: tuple[int, int]
    KEY: int
    checks: Checks

    async def handle(self, ctx: Context, request: Any, version: int) -> Any:
        """The response as far as it is known."""
        return await self.checks(ctx, request)


async def _topics(ctx: Context, request: dt.DeleteTopicsRequest) -> Any:
    return dt.DeleteTopicsResponse(
        responses=[dt.DeletableTopicResult(each.name, each.topic_id) for each in request.topics]
    )


async def _records(ctx: Context, request: dr.DeleteRecordsRequest) -> Any:
    return (await k21_delete_records.checked(ctx, request))[0]


async def _groups(ctx: Context, request: dg.DeleteGroupsRequest) -> Any:
    return dg.DeleteGroupsResponse(
        results=[
            dg.DeletableGroupResult(each, k42_delete_groups.refusal(ctx, each) or _has_members(ctx, each))
            for each in request.groups_names
        ]
    )


async def _acls(ctx: Context, request: ca.CreateAclsRequest) -> Any:
    if ctx.services.authority.off:
        return ca.CreateAclsResponse(results=[k30_create_acls.no_authorizer() for _ in request.creations])
    found = [refusal(k30_create_acls.acl_of(each)) for each in request.creations]
    return ca.CreateAclsResponse(
        results=[
            ca.AclCreationResult() if each is None else ca.AclCreationResult(each.code, each.message)
            for each in found
        ]
    )


async def _acls_gone(ctx: Context, request: da.DeleteAclsRequest) -> Any:
    answer = da.DeleteAclsFilterResult(error_message=None)
    if ctx.services.authority.off:
        answer = da.DeleteAclsFilterResult(Code.SECURITY_DISABLED, k30_create_acls.NO_AUTHORIZER)
    return da.DeleteAclsResponse(filter_results=[answer for _ in request.filters])


async def _positions(ctx: Context, request: oc.OffsetCommitRequest) -> Any:
    """What OffsetCommit's handler, which asks by itself, asks for."""
    whole = Code.NONE
    if not ctx.may(OFFSET_COMMIT_GROUP, request.group_id):
        whole = OFFSET_COMMIT_GROUP.code
    elif (refused := ctx.services.groups.refusal(request.group_id)) is not None:
        whole = refused
    else:
        whole = _has_members(ctx, request.group_id)
    answer = oc.OffsetCommitResponse()
    for each in request.topics:
        code = whole
        if not code and not ctx.may(OFFSET_COMMIT, each.name):
            code = OFFSET_COMMIT.code
        rows = [oc.OffsetCommitResponsePartition(one.partition_index, code) for one in each.partitions]
        answer.topics.append(oc.OffsetCommitResponseTopic(each.name, each.topic_id, rows))
    return answer


def _has_members(ctx: Context, group_id: str) -> Code:
    """Whether the log will say so, as it is by now."""
    group = ctx.state.groups.get(group_id)
    return Code.NONE if group is None or is_empty(group) else Code.NON_EMPTY_GROUP


_CHECKS: Final[dict[int, Checks]] = {
    OFFSET_COMMIT_KEY: _positions,
    20: _topics,
    21: _records,
    30: _acls,
    31: _acls_gone,
    42: _groups,
}
"""Of requests without `validate_only`, by API key."""


def _reset(ctx: Context, request: oc.OffsetCommitRequest) -> Change:
    rows = [
        f"{each.name}-{one.partition_index}={one.committed_offset}"
        for each in request.topics
        for one in each.partitions
    ]
    more = f"; {len(rows) - LISTED_MAX} more" if len(rows) > LISTED_MAX else ""
    return Change("ResetOffsets", "Group", request.group_id, ", ".join(rows[:LISTED_MAX]) + more)


def _outcome(response: oc.OffsetCommitResponse) -> Result:
    codes = [row.error_code for each in response.topics for row in each.partitions if row.error_code]
    return Refused(Code(codes[0]), "") if codes else Done()
