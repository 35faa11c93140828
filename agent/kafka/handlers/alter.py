"""What AlterConfigs and IncrementalAlterConfigs share: a resource and its changes become one command.

All resources of a request are altered at one point of the log, however many they are (rule 12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agent.kafka.context import Context
from agent.kafka.handlers.configs import Resource, no_broker
from agent.kafka.handlers.frames import frames_refusal
from agent.kafka.handlers.own_rules import unusable
from agent.kafka.handlers.rehearse import rehearse_all
from agent.kafka.propose import propose
from agent.rules.quarantine import new_quarantine
from coordination.broker_configs import BROKER_CONFIGS
from coordination.commands import AlterClusterConfigs, AlterGroupConfigs, AlterTopicConfigs
from coordination.config_types import NAME_SHOWN_MAX
from coordination.kafka_codes import Code
from coordination.state.configs import cluster_altered
from coordination.state.quarantine_names import asked_for
from coordination.state.state import State
from coordination.state.topics import name_refusal
from coordination.state.types import Done, Refused, Result
from coordination.topic_configs import contradiction

Change = AlterTopicConfigs.Change
Changes = Sequence[tuple[str, int, str | None]]
AlterConfigs = AlterTopicConfigs | AlterClusterConfigs | AlterGroupConfigs
OPERATIONS = (Change.SET, Change.DELETE, Change.APPEND, Change.SUBTRACT)  # IncrementalAlterConfigs' numbers


async def alter(
    ctx: Context,
    resources: Sequence[tuple[int, str, Changes]],
    *,
    replace_all: bool = False,
    validate_only: bool = False,
) -> list[Result]:
    """Apply (config name, operation, value) changes to resources (kind, name), or say what would happen.

    One result per resource, in their order; all or none of a resource's changes. One that is named twice is
    INVALID_REQUEST. A live broker's id stands for the whole cluster, whose configs are the same on every
    agent: librdkafka and kafka-python cannot name the cluster itself.
    """
    named = Counter((kind, name) for kind, name, _ in resources)
    prepared: list[AlterConfigs | Result] = []
    for kind, name, changes in resources:
        if named[kind, name] > 1:
            prepared.append(Refused(Code.INVALID_REQUEST, "Each resource must appear at most once."))
        else:
            prepared.append(await _tried(ctx, _prepared(ctx, kind, name, changes, replace_all)))
    if any(isinstance(each, AlterClusterConfigs) for each in prepared):
        await ctx.barrier()
        prepared = list(_that_topics_can_have(ctx.state, prepared))
    commands = [each for each in prepared if isinstance(each, AlterConfigs)]
    if validate_only:
        await ctx.barrier()
        decided = iter(rehearse_all(ctx.state, commands))
    else:
        decided = iter(await propose(ctx, commands))
    return [next(decided) if isinstance(each, AlterConfigs) else each for each in prepared]


def _that_topics_can_have(
    state: State, prepared: Iterable[AlterConfigs | Result]
) -> Iterator[AlterConfigs | Result]:
    """Each, unless it would give topics defaults that contradict each other: no topic could be made any more.

    Apply takes such defaults, as it always did. A contradiction that is there already keeps nobody from
    changing something else.
    """
    configs = state.cluster_configs
    for each in prepared:
        if not isinstance(each, AlterClusterConfigs):
            yield each
            continue
        after = cluster_altered(configs, each, state.feature_level)
        problem = None if isinstance(after, Refused) else contradiction({}, after)
        if problem is not None and problem != contradiction({}, configs):
            yield Refused(Code.INVALID_REQUEST, f"no topic could have these defaults: {problem}")
            continue
        configs = configs if isinstance(after, Refused) else after
        yield each


async def _tried(ctx: Context, prepared: AlterConfigs | Result) -> AlterConfigs | Result:
    """Itself, unless it sets rules or frames that cannot be used."""
    if not isinstance(prepared, AlterTopicConfigs):
        return prepared
    return await unusable(ctx, prepared) or await frames_refusal(ctx, prepared) or prepared


def _prepared(
    ctx: Context, kind: int, name: str, changes: Changes, replace_all: bool
) -> AlterConfigs | Result:
    """The command for one resource, or what is known without one."""
    if _is_one_broker(ctx, kind, name):
        # A broker has nothing of its own that could be replaced or, if it has no meaning here, be taken away:
        # kafka-reassign-partitions --verify deletes throttles of each broker so, set or not.
        delete = OPERATIONS.index(Change.DELETE)
        kept = [each for each in changes if each[1] != delete or each[0] in BROKER_CONFIGS]
        if changes and not kept:
            return Done()
        return _command(ctx, kind, name, kept, replace_all=False)
    return _command(ctx, kind, name, changes, replace_all)


def _command(
    ctx: Context, kind: int, name: str, changes: Changes, replace_all: bool
) -> AlterConfigs | Refused:
    refused = _resource_refusal(ctx, kind, name)
    if refused is not None:
        return refused
    translated = _translated(changes)
    if isinstance(translated, Refused):
        return translated
    match kind:
        case Resource.TOPIC:
            altered = AlterTopicConfigs(topic=name, changes=translated, replace_all=replace_all)
            if asked_for((change.name, change.value) for change in translated):
                altered.quarantine.CopyFrom(new_quarantine(ctx.services.clock))
            return altered
        case Resource.GROUP:
            return AlterGroupConfigs(group=name, changes=translated, replace_all=replace_all)
    return AlterClusterConfigs(changes=translated, replace_all=replace_all)


def _translated(changes: Changes) -> list[AlterTopicConfigs.Change] | Refused:
    names = [config for config, _, _ in changes]
    if len(names) != len(frozenset(names)):
        return Refused(Code.INVALID_REQUEST, "Error due to duplicate config keys")
    translated: list[AlterTopicConfigs.Change] = []
    for config, operation, value in changes:
        shown = config[:NAME_SHOWN_MAX]
        if operation not in range(len(OPERATIONS)):
            return Refused(Code.INVALID_REQUEST, f"{shown}: operation {operation} is unknown")
        if value is None and OPERATIONS[operation] != Change.DELETE:
            return Refused(Code.INVALID_REQUEST, f"Null value not supported for : {shown}")
        translated.append(Change(name=config, operation=OPERATIONS[operation], value=value or ""))
    return translated


def _is_one_broker(ctx: Context, kind: int, name: str) -> bool:
    return kind == Resource.BROKER and name in map(str, ctx.state.brokers)


def _resource_refusal(ctx: Context, kind: int, name: str) -> Refused | None:
    """Why nothing can be set on the resource; None when something can."""
    if kind in (Resource.TOPIC, Resource.GROUP) and not name:
        return Refused(
            Code.INVALID_REQUEST, f"Default {Resource(kind).name.lower()} resources are not allowed."
        )
    if kind == Resource.TOPIC and (refusal := name_refusal(name)):
        return Refused(Code.INVALID_TOPIC_EXCEPTION, refusal)
    if kind in (Resource.TOPIC, Resource.GROUP) or (kind == Resource.BROKER and not name):
        return None
    if _is_one_broker(ctx, kind, name):
        return None
    if kind == Resource.BROKER or (kind == Resource.BROKER_LOGGER and not name.isdecimal()):
        why = no_broker(name, "Node id")
    elif kind == Resource.BROKER_LOGGER:
        why = "an agent's log level is its setting `logging.level`: its file or environment changes it"
    elif kind == Resource.CLIENT_METRICS:
        why = "client telemetry is not offered, so there are no subscriptions to it"
    else:
        why = f"Unknown resource type {kind}"
    return Refused(Code.INVALID_REQUEST, why)
