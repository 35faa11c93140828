"""DescribeConfigs: configs of topics and brokers, with where each value comes from.

Versions 1 to 4.
Behaviour: answered after a read barrier; no names means all configs. Brokers: any live node id; the empty
name: what was set for all.
Deviations: a broker shows the defaults of topic configs and a few of the agent's settings, not Kafka's
whole list (see configs.py). Loggers, client metrics and groups have no configs here: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.context import Context
from agent.handlers.configs import Entry, Resource, broker_entries, topic_entries
from agent.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from coordination.kafka_codes import Code
from coordination.state.topics import name_refusal

KEY = 32
VERSIONS = (1, 4)


async def handle(ctx: Context, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    """One answer per resource, in the request's order."""
    await ctx.barrier()
    return DescribeConfigsResponse(results=[_describe(ctx, each, request) for each in request.resources])


def _describe(
    ctx: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    entries = _entries(ctx, resource)
    if isinstance(entries, tuple):
        result.error_code, result.error_message = entries
        return result
    wanted = resource.configuration_keys
    result.configs = [_shown(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(ctx: Context, resource: DescribeConfigsResource) -> Iterable[Entry] | tuple[Code, str]:
    name = resource.resource_name
    if resource.resource_type == Resource.TOPIC:
        refusal = name_refusal(name)
        if refusal:
            return Code.INVALID_TOPIC_EXCEPTION, refusal
        topic = ctx.state.topics.get(name)
        if topic is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist"
        return topic_entries(topic.configs, ctx.state.cluster_configs)
    if resource.resource_type == Resource.BROKER:
        if name and name not in map(str, ctx.state.brokers):
            return Code.INVALID_REQUEST, f"broker {name!r} is not a live node id of this cluster"
        return broker_entries(ctx, all_brokers=not name)
    return Code.INVALID_REQUEST, f"resource type {resource.resource_type} has no configs here"


def _shown(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.chain if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[DescribeConfigsSynonym(name, value, source) for name, value, source in synonyms],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
