"""CreateTopics: create topics with partitions and configs.

Versions 2 to 7.
Behaviour: one answer per topic; validate_only applies the same rules without effect; a topic named twice is
INVALID_REQUEST. After the answer every agent that reads with a barrier sees the topic.
All topics of a request are created by one entry of the log, however many they are (rule 12). A name that
differs from another topic's only by '.' and '_' is refused; those of one request are not compared.
Deviations: there are no replicas: any replication factor of at least 1 (or -1) is accepted and reported as 1;
a manual assignment is checked as Kafka checks it and counts partitions, its brokers are not remembered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agent.kafka.context import Context
from agent.kafka.handlers.assignment import refusal_of_all
from agent.kafka.handlers.configs import topic_source
from agent.kafka.handlers.own_rules import unusable
from agent.kafka.handlers.rehearse import rehearse_all
from agent.kafka.propose import propose
from agent.net.wire.api import Encoded
from agent.net.wire.generated import create_topics
from agent.net.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from agent.net.wire.steps import Pace, encoded
from agent.rules.quarantine import new_quarantine
from coordination import broker_configs
from coordination.commands import CreateTopic, config_entries
from coordination.kafka_codes import Code
from coordination.state.quarantine_names import asked_for
from coordination.state.types import Refused, Result
from coordination.topic_configs import TOPIC_CONFIGS, effective

KEY = 19
VERSIONS = (2, 7)
UNSET = -1
STRICT_SINCE = 6  # KIP-599: what is beyond the quota is refused
COMMAND_COST, ROW_COST = 10, 4  # what making them costs, in rows that are only encoded


async def handle(ctx: Context, request: CreateTopicsRequest, version: int) -> Encoded:
    """One answer per topic, in the request's order."""
    if any(topic.num_partitions == UNSET for topic in request.topics):
        await ctx.barrier()  # the cluster's default, and the brokers of an assignment
    named = Counter(topic.name for topic in request.topics)
    commands: dict[str, CreateTopic | Refused] = {}
    pace = Pace()
    for topic in request.topics:
        await pace.row(COMMAND_COST)
        if named[topic.name] > 1:
            commands[topic.name] = Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
        else:
            wanted = _command(ctx, topic)
            refused = await unusable(ctx, wanted) if isinstance(wanted, CreateTopic) else None
            commands[topic.name] = wanted if refused is None else refused
    _mark_twins([each for each in commands.values() if isinstance(each, CreateTopic)])
    _charge(ctx, commands, version)
    results = await _decide(ctx, request, commands)
    rows = _ConfigRows(ctx)
    response = CreateTopicsResponse()
    for name, result in results.items():
        made = rows.made
        response.topics.append(_answer(name, commands[name], result, rows))
        await pace.row(1 + ROW_COST * (rows.made - made))
    return await encoded(create_topics, response, version, "topics", "configs")


def _charge(ctx: Context, commands: dict[str, CreateTopic | Refused], version: int) -> None:
    """Take the partitions of new topics from the client's quota, as Kafka before it makes them."""
    if ctx.charge is None:
        return
    for name, each in commands.items():
        if isinstance(each, CreateTopic) and name not in ctx.state.topics:
            refused = ctx.charge.mutate(each.partitions, strict=version >= STRICT_SINCE)
            commands[name] = refused or each


async def _decide(
    ctx: Context, request: CreateTopicsRequest, commands: dict[str, CreateTopic | Refused]
) -> dict[str, Result]:
    """What became of each topic, or would have."""
    sound = {name: each for name, each in commands.items() if isinstance(each, CreateTopic)}
    results: dict[str, Result] = {name: each for name, each in commands.items() if isinstance(each, Refused)}
    if request.validate_only:
        await ctx.barrier()
        decided = rehearse_all(ctx.state, list(sound.values()))
    else:
        decided = await propose(ctx, list(sound.values()), request.timeout_ms)
    results.update(zip(sound, decided, strict=True))
    return {name: results[name] for name in commands}


def _mark_twins(commands: Sequence[CreateTopic]) -> None:
    """Names that differ only by '.' and '_' are no obstacle to each other in one request, as in Kafka."""
    twins: dict[str, list[CreateTopic]] = {}
    for each in commands:
        twins.setdefault(each.name.replace(".", "_"), []).append(each)
    for family in twins.values():
        if len(family) > 1:
            for each in family:
                each.request = family[0].topic_id  # random: no other request has it


def _command(ctx: Context, topic: CreatableTopic) -> CreateTopic | Refused:
    """The command for one topic, or why its request contradicts itself."""
    count = topic.num_partitions
    if topic.assignments:
        for unset, given in (("replication factor", topic.replication_factor), ("numPartitions", count)):
            if given != UNSET:
                why = f"A manual partition assignment was specified, but {unset} was not set to -1."
                return Refused(Code.INVALID_REQUEST, why)
        count = len(topic.assignments)
        refused = _assignment_refusal(ctx, topic)
        if refused is not None:
            return refused
    elif topic.replication_factor < 1 and topic.replication_factor != UNSET:
        return Refused(
            Code.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count == UNSET:
        count = broker_configs.integer(ctx.state.cluster_configs, "num.partitions")
    if count <= 0:
        why = "Number of partitions was set to an invalid non-positive value."
        return Refused(Code.INVALID_PARTITIONS, why)
    absent = next((config.name for config in topic.configs if config.value is None), None)
    if absent is not None:
        return Refused(Code.INVALID_CONFIG, f"Null value not supported for topic configs: {absent}")
    configs = {config.name: config.value or "" for config in topic.configs}
    return CreateTopic(
        name=topic.name,
        topic_id=ctx.services.clock.random_bytes(16),
        partitions=count,
        configs=config_entries(configs),
        quarantine=new_quarantine(ctx.services.clock) if asked_for(configs.items()) else None,
    )


def _assignment_refusal(ctx: Context, topic: CreatableTopic) -> Refused | None:
    indexes = sorted(each.partition_index for each in topic.assignments)
    twice = next((index for index, count in Counter(indexes).items() if count > 1), None)
    if twice is not None:
        why = f"Found multiple manual partition assignments for partition {twice}"
        return Refused(Code.INVALID_REPLICA_ASSIGNMENT, why)
    if indexes != list(range(len(indexes))):
        return Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return refusal_of_all((each.broker_ids for each in topic.assignments), ctx.state.brokers)


def _answer(
    name: str, command: CreateTopic | Refused, result: Result, rows: _ConfigRows
) -> CreatableTopicResult:
    if isinstance(result, Refused) or isinstance(command, Refused):
        refused = result if isinstance(result, Refused) else command
        assert isinstance(refused, Refused)
        return CreatableTopicResult(name=name, error_code=refused.code, error_message=refused.message or None)
    return CreatableTopicResult(
        name=name,
        error_message=None,
        topic_id=command.topic_id,
        num_partitions=command.partitions,
        replication_factor=1,
        configs=rows.of(command),
    )


class _ConfigRows:
    """The configs of new topics; topics that set the same ones share the rows, as thousands may."""

    def __init__(self, ctx: Context) -> None:
        self._cluster = ctx.state.cluster_configs
        self._shared: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
        self.made = 0
        """How many rows were made."""

    def of(self, command: CreateTopic) -> list[CreatableTopicConfigs]:
        """Every config with its value and where it comes from."""
        own = {entry.name: entry.value for entry in command.configs}
        rows = self._shared.get(tuple(own.items()))
        if rows is None:
            rows = self._shared[tuple(own.items())] = [
                CreatableTopicConfigs(
                    name=name,
                    value=effective(name, own, self._cluster),
                    config_source=topic_source(name, own, self._cluster),
                )
                for name in sorted(TOPIC_CONFIGS)
            ]
            self.made += len(rows)
        return rows
