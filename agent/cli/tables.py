"""`floe table …`: the Iceberg tables, and the proof that one equals its topic."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import agent_http
from agent.cli.failures import EPILOG, Failure, Status, usage
from agent.cli.options import (
    BOOTSTRAP_DEFAULT,
    HTTP_DEFAULT,
    Assignments,
    Bootstrap,
    ConfigFile,
    Form,
    Http,
    Output,
)
from agent.cli.output import print_json, print_table
from agent.config import load

if TYPE_CHECKING:
    from agent.cli.audit import Auditing
    from iceberg.spark.verdict import Verdict

AUDITS_EVERY_S = 900.0
"""A round has its own cost, whatever is new: ten seconds of a core."""

app = typer.Typer(help="Tables: list them, audit one against its topic.", epilog=EPILOG)


@app.command("list")
def list_tables(http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """List the tables, made or not, with the topic that each follows and how far it is behind it.

    Files, bytes, snapshots, the last commit and compaction, the last error and problems are known to the
    agent that commits the table (committed by), its entries in other catalogs (published) to the one that
    publishes there (`catalogs` in /status): ask that one with --http.
    """
    _, found, _ = agent_http.status_at(http)
    rows = [{**row, "made": True} for row in found["tables"]]
    rows += [{**row, "made": False} for row in found["tables_not_made"]]
    if output is Form.JSON:
        print_json(rows)
        return
    shown = (
        "files",
        "bytes",
        "snapshots",
        "last_commit",
        "last_compaction",
        "committed_by",
        "last_error",
        "failing_since",
        "audited_equal",
        "audit_findings",
    )
    titles = ("records behind", "seconds behind", "published", *(name.replace("_", " ") for name in shown))
    print_table(
        ("table", "topic", *titles, "problems"),
        [
            (
                row["table"] if row["made"] else f"{row['table']} (not made)",
                row["topic"],
                row["records_behind"],
                row["seconds_behind"],
                "; ".join(_published(each) for each in row.get("published", ())),
                *(row.get(name) for name in shown),
                "; ".join(row["problems"]),
            )
            for row in rows
        ],
    )


def _published(entry: dict[str, Any]) -> str:
    """How a table's entry in another catalog is, in a few words."""
    if entry["error"]:
        return f"{entry['catalog']}: {entry['error']}"
    late = f"{entry['seconds_behind']} s behind" if entry["seconds_behind"] else "up to date"
    return f"{entry['catalog']}: {late}"


class Since(StrEnum):
    """From where an audit compares."""

    LAST = "last"
    DIGESTS = "digests"
    START = "start"


@app.command("audit")
def audit_table(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC...",
            help="Name of the topic; with --continuous any number, none for all that have a table.",
        ),
    ] = None,
    jars: Annotated[
        Path, typer.Option(envvar="FLOE_JARS", help="Folder of Iceberg's jars for Spark.")
    ] = Path("build/jars/iceberg"),
    kafka_jars: Annotated[
        Path,
        typer.Option(
            envvar="FLOE_KAFKA_JARS",
            help="Folder of the jars by which Spark reads topics; without them one consumer does, slowly.",
        ),
    ] = Path("build/jars/sparkkafka"),
    java_home: Annotated[
        Path | None, typer.Option(envvar="JAVA_HOME", help="Java 17 or newer; else the one on the path.")
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds the table may take to catch up.")
    ] = 60.0,
    since: Annotated[
        Since | None,
        typer.Option(
            help="last: compare only what lies beyond the last equal audit with this option. digests: all, "
            "but what equal audits have kept digests of with these and not with the topic. start: all. "
            "Each keeps the outcome, for the next one and for the agents' metrics."
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(help="Audit what is new again and again, by one Spark, until SIGTERM; each is kept."),
    ] = False,
    every_s: Annotated[
        float, typer.Option("--every", min=1, max=86_400, help="Seconds between rounds of --continuous.")
    ] = AUDITS_EVERY_S,
    rounds: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="End --continuous after so many rounds; 0: never.")
    ] = 0,
    cores: Annotated[int, typer.Option(min=1, max=256, help="Tasks of Spark at a time.")] = 2,
    memory_mib: Annotated[
        int,
        typer.Option(
            "--memory-mib", min=1_024, help="MiB of Spark's JVM; each core's Python takes 300 more."
        ),
    ] = 4_096,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for what does not fit into memory; else the system's.")
    ] = None,
    config: ConfigFile = None,
    assign: Assignments = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Prove that a topic and its table hold the same records; status 1 and the places when they do not.

    The topic is read through Apache Kafka's client over TCP by Spark's tasks (without --kafka-jars by one
    consumer of this process), the table through Spark and the REST catalog;
    both are joined on (partition, offset) and key, value, headers and timestamp compared. Each row's
    bytes are decoded anew by the row's own schema, and compared with every column of the table.
    A table of the topic's newest rows (floe.table.mode=upsert) is compared with what Spark works out from the
    topic's own table.
    Rows of records that retention or compaction took from the topic are right where the table keeps them.
    For tables in S3 give the agent's --config: Spark needs the same credentials.
    With --continuous each audit is told as it ends; the status is that of the last one of each topic. It ends
    by itself when no topic could be audited for long, as keys are read at its start.
    """
    from agent.cli.audit import Auditing, require_spark, s3_access

    if not continuous and len(topics or ()) != 1:
        raise usage(f"{len(topics or ())} topics: name one, or give --continuous")
    found = require_spark(jars)
    settings = load(config, assign or (), advertises=False).config if config or assign else None
    given = Auditing(
        (topics or [""])[0],
        bootstrap,
        http,
        found,
        java_home,
        wait_s,
        s3_access(settings),
        keep=since is not None,
        since_last=since is Since.LAST or (continuous and since is None),
        by_digests=since is Since.DIGESTS,
        connector=sorted(kafka_jars.glob("*.jar")),
        cores=cores,
        memory_mib=memory_mib,
        scratch=scratch,
    )
    if continuous:
        _audit_on_and_on(given, topics or (), every_s, rounds, output)
    else:
        _audit_once(given, output)


def _audit_on_and_on(
    given: Auditing, topics: Sequence[str], every_s: float, rounds: int, output: Form
) -> None:
    from agent.cli.audit_continuous import Continuous, Pace, as_json

    def tell(topic: str, found: Verdict | Failure) -> None:
        if output is Form.JSON:
            print_json(as_json(topic, found))
        elif isinstance(found, Failure):
            print(f"{topic}: not audited: {found}", flush=True)
        else:
            print(f"{topic}:", flush=True)
            _tell(found)

    if not Continuous(given, topics, Pace(every_s, rounds), tell).run():
        raise typer.Exit(Status.FAILED)


def _audit_once(given: Auditing, output: Form) -> None:
    from agent.cli.audit import audit

    try:
        verdict = audit(given)
    except Failure as failure:
        if output is Form.JSON:
            print_json({"equal": None, "error": str(failure)})
        raise
    if output is Form.JSON:
        print(verdict.to_json())
    else:
        _tell(verdict)
    if not verdict.equal:
        raise typer.Exit(Status.FAILED)


def _tell(verdict: Verdict) -> None:
    """Everything that was found, and a last line with the outcome."""
    for line in (*verdict.skipped, *verdict.findings):
        print(line)
    rows = sum(count.table for count in verdict.topics)
    history = sum(count.history for count in verdict.topics)
    of_them = f", {history:,} of them gone from the topic" if history else ""
    later = sum(count.later for count in verdict.topics)
    of_them += f", {later:,} newer ones not judged" if later else ""
    for known in verdict.digests:
        of_them += f" · by {known.ranges:,} digests {known.rows:,}, the oldest of {known.oldest}"
    for each in verdict.latest:
        of_them += f" · {each.table}: {each.rows:,}"
    kinds = " · ".join(f"{kind} {count}" for kind, count in verdict.counts.items())
    outcome = "equal" if verdict.equal else "UNEQUAL"
    print(f"verdict: {outcome} · rows {rows:,}{of_them} · {kinds}", flush=True)
