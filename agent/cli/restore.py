"""`floe restore …`: a cluster whose log was lost, from its bucket into a new etcd; a topic as it was."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.failures import EPILOG, Status, refused, usage
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
from agent.cli.output import print_json, print_table, progress, remarks, results
from agent.cli.restoring.point import END, GRAMMAR, point_of
from objectstore.late import without_collections

if TYPE_CHECKING:
    from agent.config import Config
    from coordination.restore.report import Report, TableFound, TableMoved, TopicBack
    from coordination.restore.run import RestoreOptions

app = typer.Typer(help="After a disaster.", epilog=EPILOG)
SETTLE_S = 20.0


@app.command()
def cluster(
    bucket: Annotated[
        str, typer.Option("--from", metavar="BUCKET", help="The cluster's bucket and prefix, as store.url.")
    ],
    etcd: Annotated[
        str,
        typer.Option("--to", metavar="ETCD", help="A new etcd: etcd://host:port[,…]/cluster, as log.url."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")
    ] = False,
    log_is_lost: Annotated[
        bool, typer.Option("--log-is-lost", help="Go on although agents wrote to the bucket a moment ago.")
    ] = False,
    replace_log: Annotated[
        bool, typer.Option("--replace-log", help="Delete the log that the new etcd has of this cluster.")
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Wait for agents of the lost log to stop; less only where none runs.",
        ),
    ] = SETTLE_S,
    tables_from: Annotated[
        str | None,
        typer.Option(
            "--tables-from",
            metavar="BUCKET",
            help="As what tables' metadata knows the bucket, where it was not copied by floe copy.",
        ),
    ] = None,
    config: ConfigFile = None,
    assign: Assignments = None,
    output: Output = Form.TABLE,
) -> None:
    """Begin a new log from snapshots, the archived log and chunks; bind the bucket to it.

    Tables of a copy are told its own URL. Keys and certificates are those of --config. When it is
    interrupted, the same command goes on. Status 1: a table could not be told.
    """
    from agent.config import load
    from coordination.restore.run import RestoreOptions

    if not etcd.startswith("etcd:"):
        raise usage(f"--to {etcd!r} is no etcd: a log is restored into etcd://host:port/cluster only")
    # Where tables lie says each table itself; the file's warehouse may be that of another bucket.
    places = [*(assign or ()), f"store.url={bucket}", f"log.url={etcd}", "tables.warehouse="]
    given = load(config, places, advertises=False).config
    options = RestoreOptions(dry_run, settle, replace_log, log_is_lost, given.store.url.rstrip("/"))
    with without_collections():  # millions of batches are looked at, and none of them is garbage
        report = asyncio.run(_restored(given, options, tables_from or ""))
    if output is Form.JSON:
        print_json(report.plain())
    else:
        _say(report)
    if any(each.error for each in report.moved):
        raise typer.Exit(Status.FAILED)


@app.command()
def topic(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Its name, that of a deleted topic, or an id.")
    ],
    name: Annotated[str, typer.Option("--as", metavar="NEW", help="The topic that is made.")],
    at: Annotated[str, typer.Option("--at", metavar="POINT", help=f"Up to where: {GRAMMAR}.")] = END,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="CONFIG", help="A config that NEW shall not have; repeat for more."
        ),
    ] = None,
    with_table: Annotated[
        bool,
        typer.Option(
            "--with-table", help="Also rows of TOPIC's table whose records retention or DeleteRecords took."
        ),
    ] = False,
    with_held: Annotated[
        bool,
        typer.Option(
            "--with-held", help="Also records that these took and that are held (floe.records.grace.ms)."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and say what would be done; change nothing.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    http: Http = HTTP_DEFAULT,
    output: Output = Form.TABLE,
) -> None:
    """Make NEW of what TOPIC had at a point, committed by then; then compare both.

    NEW has the config floe.restoring until it is whole. When this is interrupted, the same command goes on.
    """
    from agent.cli.restoring.report import plain, say
    from agent.cli.restoring.run import Restoring, restored

    point_of(at)  # a wrong one is told before anything is asked
    given = Restoring(topic, name, at, bootstrap, http, dry_run, without or (), with_table, with_held)
    with progress() as bar:
        task = bar.add_task(f"restoring {topic}", total=None)
        report = asyncio.run(restored(given, lambda more: bar.advance(task, more)))
    if output is Form.JSON:
        print_json(plain(given, report))
    else:
        say(given, report)
    if not dry_run and not report.equal:
        raise typer.Exit(Status.FAILED)


async def _restored(config: Config, options: RestoreOptions, tables_from: str) -> Report:
    from agent.dependencies import log_of, store_of
    from coordination.clock import SystemClock
    from coordination.etcd.beginning import LogInTheWay
    from coordination.etcd.rebased import RebasedLog
    from coordination.restore.run import restore
    from coordination.restore.source import CannotRestore
    from iceberg.moving.run import mover_of
    from objectstore.copied import NotOurCopy

    clock = SystemClock()
    store, log = store_of(config, clock), log_of(config, clock)
    assert isinstance(log, RebasedLog), "an etcd"
    try:
        tables = await mover_of(store, config.store.url, tables_from)
        return await restore(store, log, clock, options, tables)
    except (CannotRestore, LogInTheWay, NotOurCopy) as error:
        raise refused(f"nothing is restored: {error}") from None
    finally:
        await log.close()
        await store.close()


def _say(report: Report) -> None:
    """For people: first what is certain, last what is to be looked at."""
    would = "would begin" if report.dry_run else "begins"
    begun = report.snapshot or "no snapshot"
    results().print(
        f"cluster {report.cluster}: the new log {would} above revision {report.base} with {begun}, "
        f"{report.entries} archived entries (certain through revision {report.certain}) and what "
        f"{report.chunks_found} chunks have that these do not know"
    )
    if report.partitions:
        print_table(
            ("topic", "partition", "certain below", "ends at", "found", "maybe twice", "repeats", "no end"),
            [
                (
                    p.topic,
                    p.partition,
                    p.certain_end,
                    p.end,
                    p.found,
                    p.plain + p.unsequenced,
                    p.repeated,
                    p.unended,
                )
                for p in report.partitions
            ],
        )
        results().print(
            'offsets from "certain below" on may differ from those that clients saw: restart consumers'
        )
    for line in _remarks(report):
        results().print(line)
    took = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report.seconds.items())
    remarks().print(f"seconds: {took}", style="dim")
    if report.dry_run:
        remarks().print("nothing was changed", style="dim")
    else:
        results().print(f"the bucket belongs to log {report.new_log}: start the agents with this log.url")


def _remarks(report: Report) -> list[str]:
    told = [f"DAMAGED: {key}: {error}" for key, error in report.damaged]
    told += [
        f"MISSING: revisions {first} to {last} are in no good piece"
        for first, last in report.missing_revisions
    ]
    if report.chunks_found:
        told.append(
            f"the newest of these chunks was stored {report.behind_s:.0f} s after what is certain: where "
            "that is much more than log_archive.interval_ms the archive's newest pieces are missing; they "
            "are best brought back from the bucket's versions before the real run"
        )
    told += _lost(report)
    if report.rescued_topic:
        told.append(
            f"{report.rescued_records} records are of topics whose creation is not archived: they are in "
            f"{report.rescued_topic}"
        )
    told += map(_undeleted, report.undeleted)
    if report.deleted_records:
        told.append(f"{report.deleted_records} records were of topics that are deleted: left out")
    if report.unended:
        told.append(f"{report.unended} records are of transactions without an archived end: aborted")
    told += [f"transactional id {name}: what was ongoing is aborted" for name in report.aborted]
    told += [
        f"group {p.group}: position {p.offset} of {p.topic}-{p.partition} lay beyond its end, now {p.end}"
        for p in report.positions
    ]
    told += [_of_table(each) for each in report.tables]
    for each in report.moved:
        told += _moved(each, "would be" if report.dry_run else "is")
    return told


def _lost(report: Report) -> list[str]:
    """What is named and not there."""
    told = [
        f"LOST: {key} is referred to and not in the bucket"
        for key in (*report.missing_chunks, *report.missing_merged)
    ]
    told += [
        f"LOST: {where} is a table's current metadata and not in the bucket: bring it back, or drop the table"
        for where in report.missing_metadata
    ]
    if report.manifests_unread:
        told.append(
            f"of {report.manifests_unread} partitions it was not looked at whether all their segments are "
            "there: `floe bucket scrub` does that"
        )
    return told


def _undeleted(one: TopicBack) -> str:
    """Of a topic that somebody may have brought back behind the archive."""
    what = f"{one.records} records of topic {one.topic} were found that came after it was deleted"
    if one.error:
        return f"LOST: {what}, and it cannot come back: {one.error}"
    named = f", as {one.name}" if one.name != one.topic else ""
    return f"{what}: it is back{named}; if nobody had undeleted it, delete it again"


def _moved(table: TableMoved, verb: str) -> list[str]:
    """Of a table whose files had another URL."""
    title = f"table {table.namespace}.{table.name}"
    if table.error:
        return [f"NOT MOVED: {title} stays at {table.former}, nothing is committed to it: {table.error}"]
    deletes = f", {table.delete_files} delete files" if table.delete_files else ""
    told = [
        f"{title} {verb} at {table.metadata}: {table.snapshots} snapshots{deletes}, {table.written} files "
        "that name others"
    ]
    told += [f"LOST: {each}: {title} names it, the copy has it not as it was written" for each in table.lost]
    if table.lost_count > len(table.lost):
        told.append(f"LOST: {table.lost_count - len(table.lost)} more of {title}")
    return told


def _of_table(one: TableFound) -> str:
    """What became of a table's commits behind the archive."""
    name = f"{one.namespace}.{one.name}"
    if one.topic:
        return f"table {name}: {one.newer} commits went with the log; their rows come again from it"
    return (
        f"LOST: table {name} is no topic's, and {one.newer} commits went with the log: {one.newest} is what "
        "it was last, or was to be; drop the table without purge and register that, if it is right"
    )
