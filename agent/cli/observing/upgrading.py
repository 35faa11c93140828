"""`floe upgrade check`: whether a cluster is fit for agents of the version that asks.

Run it with the new version's `floe`, before its first agent starts: what that version would refuse is judged
by its own tables (feature levels, configs, formats), not by those of the agents that run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import typer

from agent.cli.failures import EPILOG, Status
from agent.cli.observing.cluster import look
from agent.cli.options import BOOTSTRAP_DEFAULT, HTTP_DEFAULT, Bootstrap, ConfigFile, Form, Http, Output
from agent.cli.output import print_json, print_table
from agent.health.ailments import PAGE, Ailment, Grade, status_of
from agent.health.told import Told
from agent.version import VERSION
from coordination import broker_configs, topic_configs
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN

if TYPE_CHECKING:
    from agent.cli.session import Session

app = typer.Typer(help="From one version to the next.", epilog=EPILOG, no_args_is_help=True)

UPGRADE = f"{PAGE}#upgrade"
FEATURES = "docs/administration.md#features-and-upgrades"
TABLE_FORMAT_MAX = 3
"""The newest Iceberg format version that this version commits to (iceberg/rest_commit.py)."""
TOPICS_AT_ONCE = 500
"""Topics whose configs one request asks for."""
SHOWN = 5
"""Of many of one kind."""
SET_ON_TOPIC, SET_FOR_CLUSTER = 1, 3  # ConfigSource


class Levels(NamedTuple):
    """The feature levels that a version applies."""

    least: int
    most: int


class Assigned(NamedTuple):
    """A config that somebody set. `topic`: empty where it is the whole cluster's."""

    topic: str
    name: str
    value: str


@app.callback()
def _group() -> None:
    """Keeps `check` a command of its own name."""


@app.command("check")
def check(
    http: Http = HTTP_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    config: ConfigFile = None,
    output: Output = Form.TABLE,
) -> None:
    """Say what keeps a cluster from being upgraded to this version of floe, and what to do. Status 1 when
    something does.

    Reads all agents, and the configs of cluster and topics; with --config also whether this version takes an
    agent's file. Changes nothing.
    """
    agents = look(http)
    assigned = asyncio.run(_assigned(bootstrap))
    levels = Levels(FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX)
    found = [*hindrances(agents, assigned, VERSION, levels), *_of_file(config)]
    found.sort(key=lambda each: (list(Grade).index(each.grade), each.where, each.what))
    _show(agents, found, output)
    if any(each.grade is Grade.WRONG for each in found):
        raise typer.Exit(Status.FAILED)


def _show(agents: Sequence[Told], found: Sequence[Ailment], output: Form) -> None:
    answered = [status_of(each) for each in agents if each.status is not None]
    level, versions = answered[0]["feature_level"], sorted({str(each["version"]) for each in answered})
    if output is Form.JSON:
        facts = {"agents": len(agents), "answered": len(answered), "versions": versions}
        levels = {"feature_level": level, "to": VERSION, "to_levels": [FEATURE_LEVEL_MIN, FEATURE_LEVEL_MAX]}
        print_json({**facts, **levels, "found": [asdict(each) for each in found]})
        return
    print(
        f"{len(answered)} of {len(agents)} agents answer, of version {', '.join(versions)}, at feature level "
        f"{level}; this floe is {VERSION} and knows levels {FEATURE_LEVEL_MIN} to {FEATURE_LEVEL_MAX}; "
        f"{len(found) or 'nothing'} in the way or odd"
    )
    if found:
        rows = [(each.grade, each.where, each.what, each.remedy, each.page) for each in found]
        print_table(("", "where", "what", "remedy", "read"), rows)


def hindrances(
    agents: Sequence[Told], assigned: Sequence[Assigned], version: str, levels: Levels
) -> list[Ailment]:
    """What keeps agents of `version`, which applies `levels`, from replacing these."""
    answered = [each for each in agents if each.status is not None]
    found = [*_agents(agents), *_levels(answered, levels), *_versions(answered, version)]
    found += [*_configs(answered, assigned), *_tables(answered)]
    return found


def _agents(agents: Sequence[Told]) -> Iterator[Ailment]:
    """Each is replaced while the others serve: they have to."""
    for each in agents:
        if each.status is None:
            what = f"does not answer here ({each.error}): its version is not known"
            yield Ailment(Grade.ODD, each.name, what, "run this where agents reach each other", UPGRADE)
            continue
        status = status_of(each)
        if not status["ready"]:
            what = f"is not ready: {'; '.join(status['reasons'])}"
            remedy = "first have every agent ready (floe doctor): its clients need the others meanwhile"
            yield Ailment(Grade.WRONG, each.name, what, remedy, UPGRADE)
        for job in status["failing_jobs"]:
            if job["job"] == "snapshot":
                what = f"snapshots fail since {job['since']}: {job['error']}"
                remedy = (
                    "mend that first: a new agent starts from the newest snapshot and reads all behind it"
                )
                yield Ailment(Grade.WRONG, each.name, what, remedy, UPGRADE)
    if len(agents) == 1:
        remedy = "start a second one first, or accept that clients wait for the time of the restart"
        yield Ailment(Grade.ODD, agents[0].name, "is the only agent", remedy, UPGRADE)


def _levels(answered: Sequence[Told], levels: Levels) -> Iterator[Ailment]:
    status = status_of(answered[0])
    level = int(status["feature_level"])
    known = [int(each["feature_max"]) for each in status["brokers"] if "feature_max" in each]
    if level < levels.least:
        what = f"is at feature level {level}, which this version applies no more"
        remedy = f"kafka-features.sh upgrade --feature floe.level={levels.least}, with the version that runs"
        yield Ailment(Grade.WRONG, "cluster", what, remedy, FEATURES)
    elif level > levels.most:
        what = f"is at feature level {level}, this version knows {levels.most} at most"
        yield Ailment(Grade.WRONG, "cluster", what, "this floe is older than the cluster: use a newer one")
    elif known and min(known) > level:
        what = f"is at feature level {level}, though all agents know {min(known)}"
        remedy = f"once you will not go back: kafka-features.sh upgrade --feature floe.level={min(known)}"
        yield Ailment(Grade.ODD, "cluster", what, remedy, FEATURES)


def _versions(answered: Sequence[Told], version: str) -> Iterator[Ailment]:
    versions = sorted({str(status_of(each)["version"]) for each in answered})
    if len(versions) > 1:
        what = f"agents of several versions: {', '.join(versions)}"
        remedy = f"an upgrade is under way: go on until all are of {version}"
        yield Ailment(Grade.ODD, "cluster", what, remedy, UPGRADE)


def _configs(answered: Sequence[Told], assigned: Sequence[Assigned]) -> Iterator[Ailment]:
    """What this version would refuse to set; and what has no effect."""
    level = int(status_of(answered[0])["feature_level"])
    idle: dict[str, list[str]] = {}
    for topic, name, value in assigned:
        where = f"topic {topic}" if topic else "cluster"
        if topic:
            problem = topic_configs.refusal(name, value, level)
            acts = name not in topic_configs.TOPIC_CONFIGS or topic_configs.TOPIC_CONFIGS[name].in_effect
        else:
            problem = broker_configs.refusal(name, value)
            acts = name not in broker_configs.BROKER_CONFIGS or broker_configs.BROKER_CONFIGS[name].in_effect
        if problem is not None:
            remedy = f"set it to what this version takes, or take it away ({where})"
            yield Ailment(Grade.WRONG, where, f"{name}={value} is refused: {problem}", remedy)
        elif not acts:
            idle.setdefault(name, []).append(where)
    for name, places in sorted(idle.items()):
        shown = ", ".join(places[:SHOWN]) + (f" and {len(places) - SHOWN} more" if places[SHOWN:] else "")
        what = f"{name} is set ({shown}), and has no effect in Floe"
        yield Ailment(Grade.ODD, "configs", what, "take it away where nobody needs to see it", FEATURES)


def _tables(answered: Sequence[Told]) -> Iterator[Ailment]:
    """Formats, as whoever commits a table knows them."""
    formats: dict[str, int] = {}
    for each in answered:
        for table in status_of(each)["tables"]:
            if table.get("format_version"):
                formats[table["table"]] = int(table["format_version"])
    for name, version in sorted(formats.items()):
        if version > TABLE_FORMAT_MAX:
            what = f"has Iceberg's format version {version}; this version commits up to {TABLE_FORMAT_MAX}"
            yield Ailment(Grade.WRONG, f"table {name}", what, "use a newer floe", "docs/tables.md")


def _of_file(config: ConfigFile) -> Iterator[Ailment]:
    """Whether this version takes an agent's file and environment."""
    if config is None:
        return
    from agent.config import load
    from agent.config.errors import ConfigError

    try:
        load(config, [])
    except ConfigError as error:
        remedy = "correct it before the new version starts with it"
        yield Ailment(Grade.WRONG, str(config), f"is refused: {error}", remedy, "docs/configuration.md")


async def _assigned(bootstrap: str) -> list[Assigned]:
    """All configs that somebody set, of the cluster and of topics."""
    from agent.cli import requests
    from agent.cli.cluster import configs
    from agent.cli.session import session

    async with session(bootstrap) as kafka:
        found = [
            Assigned("", each.name, each.value or "")
            for each in await configs(kafka)
            if each.config_source == SET_FOR_CLUSTER
        ]
        names = sorted(str(each.name) for each in await requests.topics(kafka))
        for start in range(0, len(names), TOPICS_AT_ONCE):
            found += await _of_topics(kafka, names[start : start + TOPICS_AT_ONCE])
    return found


async def _of_topics(kafka: Session, names: Sequence[str]) -> list[Assigned]:
    from agent.cli.requests import TOPIC_RESOURCE
    from agent.cli.session import check_code
    from agent.net.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from coordination.kafka_codes import Code

    asked = DescribeConfigsRequest([DescribeConfigsResource(TOPIC_RESOURCE, name, None) for name in names])
    found = []
    for result in (await kafka.call("DescribeConfigs", asked)).results:
        if result.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            continue  # deleted meanwhile
        check_code(result.error_code, result.error_message, f"configs of topic {result.resource_name!r}")
        found += [
            Assigned(result.resource_name, each.name, each.value or "")
            for each in result.configs
            if each.config_source == SET_ON_TOPIC
        ]
    return found
