"""`floe table …`: the Iceberg tables, and the proof that one equals its topic."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import agent_http
from agent.cli.failures import EPILOG, Failure, Status
from agent.cli.options import (
    BOOTSTRAP_DEFAULT,
    HTTP_DEFAULT,
    Assignments,
    Bootstrap,
    ConfigFile,
    Form,
    Http,
    Output,
    TopicName,
)
from agent.cli.output import print_json, print_table
from agent.config import load

if TYPE_CHECKING:
    from iceberg.spark.verdict import Verdict

app = typer.Typer(help="Tables: list them, audit one against its topic.", epilog=EPILOG)


@app.command("list")
def list_tables(http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """List the tables, made or not, with the topic that each follows and how far it is behind it.

    Files, bytes, snapshots, the last commit and compaction, the last error and problems are known to the
    agent that commits the table (committed by), its entries in other catalogs (published) to the one that
    publishes there (`catalogs` in /status): ask that one with --http.
    """
    found = agent_http.ask(http, "/status.json")
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
    START = "start"


@app.command("audit")
def audit_table(
    topic: TopicName,
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
            help="last: compare only what lies beyond the last equal audit with this option. start: all. "
            "Either keeps the outcome, for the next one and for the agents' metrics."
        ),
    ] = None,
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
    """
    from agent.cli.audit import Auditing, audit, require_spark, s3_access

    found = require_spark(jars)
    settings = load(config, assign or ()).config if config or assign else None
    given = Auditing(
        topic,
        bootstrap,
        http,
        found,
        java_home,
        wait_s,
        s3_access(settings),
        keep=since is not None,
        since_last=since is Since.LAST,
        connector=sorted(kafka_jars.glob("*.jar")),
        cores=cores,
        memory_mib=memory_mib,
        scratch=scratch,
    )
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
    for each in verdict.latest:
        of_them += f" · {each.table}: {each.rows:,}"
    kinds = " · ".join(f"{kind} {count}" for kind, count in verdict.counts.items())
    print(f"verdict: {'equal' if verdict.equal else 'UNEQUAL'} · rows {rows:,}{of_them} · {kinds}")
