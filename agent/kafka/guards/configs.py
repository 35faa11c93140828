"""Configs: each resource of a request is refused alone, by what kind of resource it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agent.kafka.authority import needs
from agent.kafka.authority.needs import Need
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle, Split
from agent.kafka.handlers.configs import Resource
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import incremental_alter_configs as iac
from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME

WORDS = {
    Code.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Code.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Code.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
"""Kafka's."""
Needs = tuple[Need, Need, Need]
"""What is asked for topics, for groups and for all others."""
DESCRIBED: Needs = (needs.DESCRIBE_CONFIGS_TOPIC, needs.DESCRIBE_CONFIGS_GROUP, needs.DESCRIBE_CONFIGS)
ALTERED: Needs = (needs.ALTER_CONFIGS_TOPIC, needs.ALTER_CONFIGS_GROUP, needs.ALTER_CONFIGS)
INCREMENTED: Needs = (needs.INCREMENTAL_TOPIC, needs.INCREMENTAL_GROUP, needs.INCREMENTAL)


def _need(row: Any, asked: Needs) -> Need | None:
    """None for a type that does not exist: its handler says so."""
    if row.resource_type not in Resource._value2member_map_:
        return None
    places = {Resource.TOPIC: 0, Resource.GROUP: 1}
    return asked[places.get(Resource(row.resource_type), 2)]


def _name(row: Any) -> str:
    of_its_own = row.resource_type in (Resource.TOPIC, Resource.GROUP)
    return str(row.resource_name) if of_its_own else CLUSTER_NAME


def _code(row: Any, asked: Needs) -> Code:
    need = _need(row, asked)
    assert need is not None, "only what is asked for is refused"
    return need.code


def _described(row: dc.DescribeConfigsResource) -> Any:
    code = _code(row, DESCRIBED)
    return dc.DescribeConfigsResult(code, WORDS[code], row.resource_type, row.resource_name)


def _altered(row: ac.AlterConfigsResource) -> Any:
    code = _code(row, ALTERED)
    return ac.AlterConfigsResourceResponse(code, WORDS[code], row.resource_type, row.resource_name)


def _incremented(row: iac.AlterConfigsResource) -> Any:
    code = _code(row, INCREMENTED)
    return iac.AlterConfigsResourceResponse(code, WORDS[code], row.resource_type, row.resource_name)


async def _altering(
    ctx: Context, request: Any, version: int, handle: Handle, split: Split, asked: Needs
) -> Any:
    """What is named twice is refused as such by the handler."""
    times = Counter((row.resource_type, row.resource_name) for row in request.resources)
    need = {key: count == 1 for key, count in times.items()}
    once = Split(
        split.codec,
        split.asked,
        split.told,
        lambda row: _need(row, asked) if need[row.resource_type, row.resource_name] else None,
        split.name,
        split.refuse,
        split.empty,
    )
    return await once(ctx, request, version, handle)


_ALTER = Split(
    ac, "resources", "responses", lambda row: _need(row, ALTERED), _name, _altered, ac.AlterConfigsResponse
)
_INCREMENT = Split(
    iac,
    "resources",
    "responses",
    lambda row: _need(row, INCREMENTED),
    _name,
    _incremented,
    iac.IncrementalAlterConfigsResponse,
)


async def _alter(ctx: Context, request: Any, version: int, handle: Handle) -> Any:
    return await _altering(ctx, request, version, handle, _ALTER, ALTERED)


async def _increment(ctx: Context, request: Any, version: int, handle: Handle) -> Any:
    return await _altering(ctx, request, version, handle, _INCREMENT, INCREMENTED)


GUARDS: dict[int, Guard] = {
    32: Split(
        dc,
        "resources",
        "results",
        lambda row: _need(row, DESCRIBED),
        _name,
        _described,
        dc.DescribeConfigsResponse,
        ("configs",),
    ),
    33: _alter,
    44: _increment,
}
