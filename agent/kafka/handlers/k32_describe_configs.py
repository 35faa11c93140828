"""DescribeConfigs: configs of topics, brokers and groups, with where each value comes from.

Versions 1 to 4.
Behaviour: answered after a read barrier; no names means all configs. Brokers: any live node id; the empty
name: what was set for the whole cluster. Groups need not exist. docs/administration.md says what is set
where.
Deviations: of Kafka's broker configs those are shown that have a meaning here or that tools look for
(coordination/broker_configs.py), and more of them can be changed at run time. An agent has one logger,
read-only; a client metrics subscription is always the empty one.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.kafka.context import Context
from agent.kafka.handlers.configs import (
    Entry,
    Resource,
    all_brokers_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    logger_entries,
    no_broker,
    topic_entries,
)
from agent.net.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from coordination.kafka_codes import Code
from coordination.state.topics import name_refusal
from coordination.state.types import Refused

KEY = 32
VERSIONS = (1, 4)
_NAMELESS = {
    Resource.BROKER_LOGGER: "Broker id must not be empty",
    Resource.CLIENT_METRICS: "Client metrics subscription name must not be empty",
    Resource.GROUP: "Group name must not be empty",
}


async def handle(ctx: Context, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    """One answer per resource, in the request's order."""
    await ctx.barrier()
    return DescribeConfigsResponse(results=[_describe(ctx, each, request) for each in request.resources])


def _describe(
    ctx: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message="",  # as Kafka's, where others say null
    )
    entries = _entries(ctx, resource.resource_type, resource.resource_name)
    if isinstance(entries, Refused):
        result.error_code, result.error_message = entries.code, entries.message
        return result
    wanted = resource.configuration_keys
    result.configs = [_shown(entry, request) for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(ctx: Context, kind: int, name: str) -> Iterable[Entry] | Refused:
    if kind in _NAMELESS and not name:
        return Refused(Code.INVALID_REQUEST, _NAMELESS[Resource(kind)])
    match kind:
        case Resource.TOPIC:
            return _of_topic(ctx, name)
        case Resource.BROKER if not name:
            return all_brokers_entries(ctx)
        case Resource.BROKER | Resource.BROKER_LOGGER:
            if name not in map(str, ctx.state.brokers):
                return Refused(Code.INVALID_REQUEST, no_broker(name, "Broker id"))
            return broker_entries(ctx, int(name)) if kind == Resource.BROKER else logger_entries(ctx)
        case Resource.GROUP:
            return group_entries(ctx, name)
        case Resource.CLIENT_METRICS:
            return client_metrics_entries()
    return Refused(Code.INVALID_REQUEST, f"Unknown resource type {kind}")


def _of_topic(ctx: Context, name: str) -> Iterable[Entry] | Refused:
    refusal = name_refusal(name)
    if refusal:
        return Refused(Code.INVALID_TOPIC_EXCEPTION, refusal)
    topic = ctx.state.topics.get(name)
    if topic is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic_entries(topic.configs, ctx.state.cluster_configs)


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
