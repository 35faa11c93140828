"""DescribeConfigs: configs of topics, brokers and groups, with where each value comes from.

Versions 1 to 4.
Behaviour: answered after a read barrier; no names means all configs. Brokers: any live node id; the empty
name: what was set for the whole cluster. Groups need not exist. docs/administration.md says what is set
where.
Deviations: of Kafka's broker configs those are shown that have a meaning here or that tools look for
(coordination/broker_configs.py), and more of them can be changed at run time. An agent has one logger,
read-only; a client metrics subscription is always the empty one. A resource that is named again with the
same keys is answered once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_configs
from agent.net.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from agent.net.wire.steps import Pace, encoded
from coordination.kafka_codes import Code
from coordination.state.topics import name_refusal
from coordination.state.types import Refused

KEY = 32
VERSIONS = (1, 4)
ROW_COST = 8  # what making a row costs, in rows that are only looked at or encoded
_NAMELESS = {
    Resource.BROKER_LOGGER: "Broker id must not be empty",
    Resource.CLIENT_METRICS: "Client metrics subscription name must not be empty",
    Resource.GROUP: "Group name must not be empty",
}


Asked = tuple[int, str, tuple[str, ...]]
"""A resource: its type, its name, and the configs that are wanted of it; none: all."""

Rows = list[DescribeConfigsResourceResult]


async def handle(ctx: Context, request: DescribeConfigsRequest, version: int) -> Encoded:
    """One answer per resource, in the request's order.

    It is made in steps; the topics' configs are all those of one moment (rule 12).
    """
    asked: dict[Asked, None] = {}
    pace = Pace()
    for resource in request.resources:
        keys = tuple(resource.configuration_keys or ())
        asked[resource.resource_type, resource.resource_name, keys] = None
        await pace.row(1 + len(keys))
    await ctx.barrier()
    made = _Made(ctx, request)
    topics = ctx.state.topics
    moment = [
        topic.configs if kind == Resource.TOPIC and (topic := topics.get(name)) is not None else None
        for kind, name, _ in asked
    ]
    response = DescribeConfigsResponse()
    for each, own in zip(asked, moment, strict=True):
        before = made.rows
        response.results.append(_describe(ctx, each, own, made))
        await pace.row(1 + ROW_COST * (made.rows - before))
    return await encoded(describe_configs, response, version, "results", "configs")


def _describe(
    ctx: Context, asked: Asked, own: Mapping[str, str] | None, made: _Made
) -> DescribeConfigsResult:
    kind, name, keys = asked
    result = DescribeConfigsResult(resource_type=kind, resource_name=name)
    result.error_message = ""  # as Kafka's, where others say null
    refusal = _topic_refusal(name, own) if kind == Resource.TOPIC else None
    if refusal is None and own is not None:
        result.configs = made.of_topic(own, keys)
        return result
    entries = refusal or _entries(ctx, kind, name)
    if isinstance(entries, Refused):
        result.error_code, result.error_message = entries.code, entries.message
        return result
    result.configs = made.shown(entries, keys)
    return result


class _Made:
    """The rows of the answer; topics with the same configs share them, as thousands may."""

    def __init__(self, ctx: Context, request: DescribeConfigsRequest) -> None:
        self.rows = 0
        """How many were made."""
        self._cluster = ctx.state.cluster_configs
        self._request = request
        self._topics: dict[tuple[tuple[tuple[str, str], ...], tuple[str, ...]], Rows] = {}

    def of_topic(self, own: Mapping[str, str], keys: tuple[str, ...]) -> Rows:
        """A topic's, which has set `own`."""
        known = tuple(own.items()), keys
        rows = self._topics.get(known)
        if rows is None:
            rows = self._topics[known] = self.shown(topic_entries(own, self._cluster), keys)
        return rows

    def shown(self, entries: Iterable[Entry], keys: tuple[str, ...]) -> Rows:
        """Of these entries what was asked for."""
        rows = []
        for entry in entries:
            self.rows += 1
            if not keys or entry.name in keys:
                rows.append(_shown(entry, self._request))
        return rows


def _entries(ctx: Context, kind: int, name: str) -> Iterable[Entry] | Refused:
    if kind in _NAMELESS and not name:
        return Refused(Code.INVALID_REQUEST, _NAMELESS[Resource(kind)])
    match kind:
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


def _topic_refusal(name: str, own: Mapping[str, str] | None) -> Refused | None:
    refusal = name_refusal(name)
    if refusal:
        return Refused(Code.INVALID_TOPIC_EXCEPTION, refusal)
    if own is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return None


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
