"""`floe cluster config …`: the broker configs, which all agents of a cluster share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.failures import EPILOG, usage
from agent.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, Form, Output
from agent.cli.output import print_json, print_table

if TYPE_CHECKING:
    from agent.cli.session import Session
    from agent.net.wire.generated.describe_configs import DescribeConfigsResourceResult

app = typer.Typer(help="What holds for the whole cluster.", epilog=EPILOG)
config = typer.Typer(
    help="Kafka's broker configs, which all agents share: num.partitions, message.max.bytes, group.* …",
    epilog=EPILOG,
)
app.add_typer(config, name="config")

BROKER_RESOURCE = 4
WHOLE_CLUSTER = ""  # the name of the resource that stands for all brokers
SET, DELETE = 0, 1
SET_FOR_THE_CLUSTER = 3  # ConfigSource: dynamic default broker config

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Names of configs; none: all.")]


@config.command("get")
def show(names: Names = None, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Show the cluster's configs with their values and whether somebody set them."""
    found = asyncio.run(_changed(bootstrap, {}, []))
    unknown = [name for name in names or () if all(each.name != name for each in found)]
    if unknown:
        raise usage(f"config {unknown[0]!r} is not known; `floe cluster config get` shows what is")
    rows = [
        (each.name, each.value or "", "set" if each.config_source == SET_FOR_THE_CLUSTER else "default")
        for each in found
        if not names or each.name in names
    ]
    if output is Form.JSON:
        meanings = {each.name: each.documentation or "" for each in found}
        print_json(
            [{"name": n, "value": v, "source": source, "meaning": meanings[n]} for n, v, source in rows]
        )
    else:
        print_table(("config", "value", "from"), rows)


@config.command("set")
def assign(
    assignments: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE…", help="Configs and their values.")
    ],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Set configs of the cluster, all or none; they count at once, on every agent.

    floe cluster config set auto.create.topics.enable=false
    """
    pairs = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise usage(f"{assignment!r} is not NAME=VALUE")
        pairs[name] = value
    _print(asyncio.run(_changed(bootstrap, pairs, [])), list(pairs), output)


@config.command("unset")
def unset(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names of configs.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Return configs of the cluster to their defaults, all or none."""
    _print(asyncio.run(_changed(bootstrap, {}, names)), names, output)


def _print(found: Sequence[DescribeConfigsResourceResult], names: Sequence[str], output: Form) -> None:
    rows = [(each.name, each.value or "") for each in found if each.name in names]
    if output is Form.JSON:
        print_json([{"name": name, "value": value} for name, value in rows])
    else:
        print_table(("config", "value"), rows)


async def _changed(
    bootstrap: str, changes: Mapping[str, str], gone: Sequence[str]
) -> list[DescribeConfigsResourceResult]:
    """All configs of the cluster by name, after these changes."""
    from agent.cli.session import session

    async with session(bootstrap) as kafka:
        if changes or gone:
            await _alter(kafka, changes, gone)
        return await configs(kafka)


async def _alter(kafka: Session, changes: Mapping[str, str], gone: Sequence[str]) -> None:
    from agent.cli.session import check_code
    from agent.net.wire.generated.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    rows = [AlterableConfig(name, SET, value) for name, value in changes.items()]
    rows += [AlterableConfig(name, DELETE, None) for name in gone]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, WHOLE_CLUSTER, rows)])
    result = (await kafka.call("IncrementalAlterConfigs", request)).responses[0]
    check_code(result.error_code, result.error_message, "the cluster's configs are not changed")


async def configs(kafka: Session) -> list[DescribeConfigsResourceResult]:
    """What every agent goes by: those of any broker that are not its own settings."""
    from agent.cli.session import check_code
    from agent.net.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from agent.net.wire.generated.metadata import MetadataRequest
    from coordination.kafka_codes import Code

    brokers = (await kafka.call("Metadata", MetadataRequest(topics=[]))).brokers
    if not brokers:
        check_code(Code.BROKER_NOT_AVAILABLE, None, "the cluster's configs")
    asked = DescribeConfigsResource(BROKER_RESOURCE, str(brokers[0].node_id), None)
    answer = await kafka.call("DescribeConfigs", DescribeConfigsRequest([asked], include_documentation=True))
    result = answer.results[0]
    check_code(result.error_code, result.error_message, "the cluster's configs")
    shared = [each for each in result.configs if not each.read_only]
    return sorted(shared, key=lambda each: each.name)
