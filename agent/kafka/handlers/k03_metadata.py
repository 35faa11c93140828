"""Metadata: brokers, topics, partitions and who is named as their leader.

Versions 0 to 13.
Behaviour: the leader is a hint by rendezvous hash over the live agents of the client's zone
(docs/zones.md); the replicas, all in sync, are every zone's leaders. Leader epochs grow with each change of
leaders (coordination/state/leaders.py): clients ignore metadata whose epoch goes back. An agent that has
gone is listed a moment longer than it leads (agent/cluster/lingering.py). The controller is a live broker
of the client's zone; any agent does its work. Topics are answered after a read barrier: a change that
another agent has acknowledged is seen. One that cannot reach the log answers for topics that it knows from
what it has, after a quarter of a second: clients find their way to the others by it.
Topics are created on the way where auto.create.topics.enable and the request allow it. Before version 12
topics cannot be asked for by id: INVALID_REQUEST.
Deviations: an auto-created topic is answered at once instead of with LEADER_NOT_AVAILABLE first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from agent.cluster.hints import NO_BROKER
from agent.kafka.authority.needs import METADATA_CLUSTER_CREATE, METADATA_CREATE
from agent.kafka.context import Context
from agent.kafka.handlers.lookup import (
    CLUSTER_OPERATIONS,
    NIL_ID,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    unknown_code,
)
from agent.kafka.propose import propose
from agent.kafka.topic_bodies import Flavour, assembled, encoded_topic
from agent.net.wire.api import Encoded
from agent.net.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from agent.net.wire.steps import ASKING_COST, Pace
from coordination.broker_configs import boolean, integer
from coordination.commands import CreateTopic
from coordination.kafka_codes import Code
from coordination.state.topics import name_refusal
from coordination.state.types import Refused, Topic

KEY = 3
VERSIONS = (0, 13)
TOPIC_IDS_SINCE = 12
AUTO_CREATE_TOPICS_MAX = 100  # topics that one request may create by naming them
KNOWN_S_MAX = 0.25  # how long an answer about topics that are known waits for the log, seconds
ROWS_PER_STEP = 1000  # partitions encoded and topics taken before others have their turn: some milliseconds


async def handle(ctx: Context, request: MetadataRequest, version: int) -> Encoded:
    """The cluster as this agent knows it."""
    asked = _each_once(request.topics)
    if version < TOPIC_IDS_SINCE and any(
        each.topic_id != NIL_ID or each.name is None for each in asked or ()
    ):
        return _no_ids_yet(asked or [], version)
    everything = asked is None or (version == 0 and not asked)
    if everything or any(_find(ctx, each) is None for each in asked or ()):
        await ctx.barrier()
    elif asked:
        await ctx.barrier(KNOWN_S_MAX)
    failures = await _auto_create(ctx, request, version) if asked and not everything else {}
    wanted = None if everything else asked or []
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    bodies: list[bytes] | None = None
    for calmly in (True, True, False):  # leaders and brokers of one answer must belong together
        zone = ctx.services.hints.known(ctx.zone)  # not the client's word: it may say a new one each time
        flavour = Flavour(version, zone, operations, ctx.state.leader_epoch)
        bodies = await _bodies(ctx, wanted, failures, flavour, calmly)
        if bodies is not None:
            break
    response = MetadataResponse(cluster_id=ctx.services.config.cluster.name, controller_id=ctx.controller())
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    ctx.client.told = ctx.services.clock.monotonic()
    for broker in ctx.listed():
        endpoint = ctx.endpoint(broker)
        response.brokers.append(
            MetadataResponseBroker(broker.node_id, endpoint.host, endpoint.port, broker.zone or None)
        )
    return Encoded(assembled(response, bodies or [], version))


def _each_once(asked: Sequence[MetadataRequestTopic] | None) -> list[MetadataRequestTopic] | None:
    """The topics asked for: in Kafka too they are a set. One of 10,000 partitions is large enough once."""
    if asked is None:
        return None
    return list({(each.name, each.topic_id): each for each in asked}.values())


def _no_ids_yet(asked: Sequence[MetadataRequestTopic], version: int) -> Encoded:
    """Refuse a request of version 10 or 11 that names topics by id.

    They have the field, but Kafka takes ids from version 12 on only, and refuses all of the request.
    """
    refused = [
        MetadataResponseTopic(error_code=Code.INVALID_REQUEST, name=each.name or "", topic_id=each.topic_id)
        for each in asked
    ]
    bodies = [encoded_topic(each, version) for each in refused]
    return Encoded(assembled(MetadataResponse(cluster_id=None), bodies, version))


async def _bodies(
    ctx: Context,
    asked: Sequence[MetadataRequestTopic] | None,
    failures: dict[str, Code],
    flavour: Flavour,
    calmly: bool,
) -> list[bytes] | None:
    """The topics (`asked`, else all by name) encoded; None when a broker came or went meanwhile.

    `calmly` lets others run now and then while much is to be encoded. The topics and their numbers of
    partitions are those of the beginning: a large change that comes meanwhile is not shown in part (rule 12).
    """
    kept, brokers = ctx.services.topic_bodies, ctx.services.hints.views
    named = ctx.services.hints.chooser(flavour.zone)
    ready = kept.use(flavour, brokers)
    bodies: list[bytes] = []
    made = 0
    for each, topic, count in _found(ctx, asked):
        if topic is None:
            assert each is not None, "of all topics none is missing"
            bodies.append(encoded_topic(_missing(each, failures), flavour.version))
            continue
        body = kept.get(ready, topic, count)
        made += 1
        if body is None:
            body = encoded_topic(_topic(topic, count, named, flavour), flavour.version)
            kept.put(flavour, ready, topic, count, body)
            made += count
        bodies.append(body)
        if calmly and made >= ROWS_PER_STEP:
            made = 0
            await asyncio.sleep(0)
            if ctx.services.hints.views is not brokers:
                return None
    return bodies


def _found(
    ctx: Context, asked: Sequence[MetadataRequestTopic] | None
) -> list[tuple[MetadataRequestTopic | None, Topic | None, int]]:
    """What was asked for, the topic, its number of partitions; of one moment. All by name without `asked`."""
    if asked is None:
        topics = sorted(ctx.state.topics.values(), key=attrgetter("name"))
        return [(None, topic, len(topic.partitions)) for topic in topics]
    found = [(each, _find(ctx, each)) for each in asked]
    return [(each, topic, 0 if topic is None else len(topic.partitions)) for each, topic in found]


def _find(ctx: Context, each: MetadataRequestTopic) -> Topic | None:
    if each.topic_id != NIL_ID:
        return ctx.state.topics_by_id.get(each.topic_id)
    return ctx.state.topics.get(each.name or "")


async def _auto_create(ctx: Context, request: MetadataRequest, version: int) -> dict[str, Code]:
    """Create what is named, missing, wanted and the client's to create; the errors by name."""
    cluster = ctx.state.cluster_configs
    if not request.allow_auto_topic_creation or not boolean(cluster, "auto.create.topics.enable"):
        return {}
    partitions = integer(cluster, "num.partitions")
    named = [each for each in request.topics or () if each.topic_id == NIL_ID]
    missing = dict.fromkeys(each.name or "" for each in named if _find(ctx, each) is None)
    failures = await _not_to_create(ctx, missing)
    names = [name for name in missing if name not in failures and name_refusal(name) is None]
    commands = [
        CreateTopic(name=name, topic_id=ctx.services.clock.random_bytes(16), partitions=partitions)
        for name in names[:AUTO_CREATE_TOPICS_MAX]
    ]
    results = zip(names, await propose(ctx, commands), strict=False)
    return failures | {name: result.code for name, result in results if isinstance(result, Refused)}


async def _not_to_create(ctx: Context, missing: Iterable[str]) -> dict[str, Code]:
    """The missing topics that this client may not create, each with the error.

    Asked here, of what is about to be created, and not by the guard: a topic that was there when the guard
    looked may be gone by now.
    """
    if ctx.allows(METADATA_CLUSTER_CREATE):
        return {}
    failures = {}
    pace = Pace()
    for name in missing:
        await pace.row(ASKING_COST)
        if not ctx.may(METADATA_CREATE, name):
            failures[name] = METADATA_CREATE.code
    return failures


def _missing(each: MetadataRequestTopic, failures: dict[str, Code]) -> MetadataResponseTopic:
    by_id = each.topic_id != NIL_ID
    code = unknown_code(by_id)
    if not by_id and name_refusal(each.name or ""):
        code = Code.INVALID_TOPIC_EXCEPTION
    failure = failures.get(each.name or "", code)
    if failure == Code.TOPIC_ALREADY_EXISTS:  # created by another agent, not applied here yet
        failure = Code.LEADER_NOT_AVAILABLE
    return MetadataResponseTopic(error_code=failure, name=each.name, topic_id=each.topic_id)


def _topic(
    topic: Topic, count: int, named: Callable[[int], tuple[int, ...]], flavour: Flavour
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _partition(partition.index, list(named(partition.handle)), flavour.leader_epoch)
            for partition in topic.partitions[:count]
        ],
        topic_authorized_operations=flavour.operations,
    )


def _partition(index: int, replicas: list[int], epoch: int) -> MetadataResponsePartition:
    if not replicas:
        return MetadataResponsePartition(Code.LEADER_NOT_AVAILABLE, index, NO_BROKER, epoch)
    return MetadataResponsePartition(Code.NONE, index, replicas[0], epoch, replicas, replicas)
