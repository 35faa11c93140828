"""What AlterConfigs and IncrementalAlterConfigs share: a resource and its changes become one command."""

from __future__ import annotations

from collections.abc import Sequence

from agent.context import Context
from agent.handlers.configs import TOPIC_NAME_BY_BROKER_NAME, Resource
from agent.handlers.propose import propose_one
from agent.handlers.rehearse import rehearse
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result

Change = AlterTopicConfigs.Change
OPERATIONS = (Change.SET, Change.DELETE, Change.APPEND, Change.SUBTRACT)  # IncrementalAlterConfigs' numbers


async def alter(
    ctx: Context,
    kind: int,
    name: str,
    changes: Sequence[tuple[str, int, str | None]],
    replace_all: bool,
    validate_only: bool,
) -> Result:
    """Apply (config name, operation, value) changes to a resource, all or none, or say what would happen."""
    command = _command(kind, name, changes, replace_all)
    if isinstance(command, Refused):
        return command
    if validate_only:
        await ctx.barrier()
        return rehearse(ctx.state, command)
    return await propose_one(ctx, command)


def _command(
    kind: int, name: str, changes: Sequence[tuple[str, int, str | None]], replace_all: bool
) -> AlterTopicConfigs | AlterClusterConfigs | Refused:
    names = [config for config, _, _ in changes]
    if len(names) != len(frozenset(names)):
        return Refused(Code.INVALID_REQUEST, "a config is named twice")
    translated: list[AlterTopicConfigs.Change] = []
    for config, operation, value in changes:
        if operation not in range(len(OPERATIONS)):
            return Refused(Code.INVALID_REQUEST, f"{config}: operation {operation} is unknown")
        if value is None and OPERATIONS[operation] != Change.DELETE:
            return Refused(Code.INVALID_REQUEST, f"{config}: a value is needed")
        own_name = config if kind == Resource.TOPIC else TOPIC_NAME_BY_BROKER_NAME.get(config, config)
        translated.append(Change(name=own_name, operation=OPERATIONS[operation], value=value or ""))
    if kind == Resource.TOPIC:
        return AlterTopicConfigs(topic=name, changes=translated, replace_all=replace_all)
    if kind == Resource.BROKER and not name:
        return AlterClusterConfigs(changes=translated, replace_all=replace_all)
    if kind == Resource.BROKER:
        return Refused(
            Code.INVALID_REQUEST,
            "an agent's own settings come from its file and environment; an empty broker name sets "
            "defaults for all",
        )
    return Refused(Code.INVALID_REQUEST, f"resource type {kind} has no configs here")
