"""`floe table audit`: the topic, read through a Kafka client, against its table, read through Spark.

The topic is read over TCP, from each partition's start to the end that it had when the audit began: by
Spark's tasks with Apache Kafka's client, a range of offsets each, where its connector is there, else by one
aiokafka consumer in this process. The table is read through Floe's own REST catalog. By which schema a record
was judged is asked of the admin API; nothing else is taken from Floe's memory of itself.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agent.cli import agent_http, opening, requests
from agent.cli.audit_latest import with_latest
from agent.cli.command_config import command_config
from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.cli.holes import Range, holes
from agent.cli.output import progress, remarks
from agent.cli.requests import Bounds
from agent.cli.session import Session, session
from agent.cli.stalls import Stalls
from agent.config import Config
from objectstore.offset_ranges import joined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from iceberg.spark.audits import Last
    from iceberg.spark.consumed import Ranges
    from iceberg.spark.digested import Digested
    from iceberg.spark.given import AuditInput, Leaving
    from iceberg.spark.schemas import TopicSchemas
    from iceberg.spark.session import S3Access
    from iceberg.spark.tables import Digest
    from iceberg.spark.verdict import Verdict

POLL_S = 0.5
FETCH_MS = 500
COMPARISONS_MAX = 3
"""Of one audit by Spark, when records leave the topic while it is compared."""


@dataclass(frozen=True, slots=True)
class Auditing:
    """What to audit and with what. `wait_s`: how long the table may take to catch up, seconds.

    `since_last`: only what the last kept audit has not compared. `by_digests`: what earlier ones have kept
    digests of is compared with these, and only the rest with the topic. `keep`: the outcome is kept, for the
    next.
    `connector`: jars by which Spark reads topics; none: one consumer reads. `memory_mib`: of Spark's JVM.
    `upto`: by partition the offset below which is compared; None: the topic's ends as the audit begins.
    """

    topic: str
    bootstrap: str
    http: str
    jars: Sequence[Path]
    java_home: Path | None
    wait_s: float
    s3: S3Access | None
    since_last: bool = False
    by_digests: bool = False
    keep: bool = False
    connector: Sequence[Path] = ()
    cores: int = 2
    memory_mib: int = 4_096
    scratch: Path | None = None
    upto: Mapping[int, int] | None = None


def s3_access(config: Config | None) -> S3Access | None:
    """How Spark reaches an S3 store; None for a local folder."""
    if config is None or not config.store.url.startswith("s3:"):
        return None
    from agent.dependencies import keys_of_store
    from coordination.clock import SystemClock
    from iceberg.spark.session import S3Access
    from objectstore.credentials import Keys

    store = config.store
    endpoint = store.endpoint or f"https://s3.{store.region}.amazonaws.com"
    keys = keys_of_store(config, SystemClock())() or Keys("", "")
    return S3Access(endpoint, keys.access, keys.secret, store.region, keys.token)


def require_spark(jars: Path) -> list[Path]:
    """The Iceberg jars for Spark. Raises Failure when Spark or they are missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise usage(
            "the audit needs PySpark, which is not installed: "
            "install Floe with its extra, `uv tool install '.[spark]'`"
        )
    found = sorted(jars.glob("*.jar"))
    if not found:
        raise usage(f"--jars {jars}: no jars there; bring them with `python -m deploy.setup.jars iceberg`")
    return found


async def readable(given: Auditing, since: Mapping[int, int]) -> list[Bounds]:
    """What is to be read, by partition: from `since` up to the present end, or that which is given."""
    async with session(given.bootstrap) as kafka:
        bounds = await requests.bounds(kafka, await requests.topic(kafka, given.topic))
    if given.upto is not None:  # a partition that came meanwhile has its turn with the next audit
        bounds = [
            replace(each, end=_end(each, max(given.upto[each.partition], since.get(each.partition, 0))))
            for each in bounds
            if each.partition in given.upto
        ]
    return [replace(each, start=_first(each, since)) for each in bounds]


async def consume(given: Auditing, history: Path, bounds: Sequence[Bounds]) -> None:
    """Write the topic's committed records between these bounds as a history."""
    from iceberg.audited import CLIENT_ID

    try:
        async with AsyncExitStack() as stack:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=given.bootstrap,
                **command_config().aiokafka(),
                client_id=CLIENT_ID,
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="earliest",  # should the log start pass the reader
            )
            stack.push_async_callback(consumer.stop)
            await consumer.start()
            await _copy(consumer, given.topic, bounds, history, Stalls(given.bootstrap))
    except KafkaError as error:
        raise unreachable(f"{given.topic!r} cannot be read: {type(error).__name__}: {error}") from None


async def without_records(given: Auditing, partition: int, stretches: Sequence[Range]) -> list[Range]:
    """The offsets in these stretches of a partition that hold no committed record; none of a compacted topic,
    where they tell nothing.
    """
    async with session(given.bootstrap) as kafka:
        if (await _leaving(kafka, given.topic)).compacted:
            return []
        bounds = await requests.bounds(kafka, await requests.topic(kafka, given.topic))
        found: list[Range] = []
        for own in (each for each in bounds if each.partition == partition):
            for first, end in stretches:
                bound = replace(own, start=max(first, own.start), end=end)  # retention goes on
                found += (await holes(kafka, given.topic, [bound]))[partition]
    return found


def _end(bound: Bounds, upto: int) -> int:
    """Where to end: `upto`, which an agent may know late, as far as the partition has it."""
    return max(bound.start, min(bound.end, upto))


def _first(bound: Bounds, since: Mapping[int, int]) -> int:
    """Where to begin. What an audit had compared beyond the end is lost: then all is compared again."""
    known = since.get(bound.partition, 0)
    return max(bound.start, known) if known <= bound.end else bound.start


async def topic_id(given: Auditing) -> str:
    """The topic's id in hexadecimal."""
    async with session(given.bootstrap) as kafka:
        return (await requests.topic(kafka, given.topic)).topic_id.hex()


async def _leaving(kafka: Session, topic: str) -> Leaving:
    from iceberg.spark.given import Leaving

    configs = {row.name: row.value or "" for row in await requests.configs(kafka, topic)}
    return Leaving(
        compacted="compact" in configs["cleanup.policy"].split(","),
        table_follows=configs["floe.table.retention"] == "follow",
    )


async def departed(given: Auditing) -> tuple[dict[tuple[str, int], int], Leaving]:
    """The log starts as they are now, at which a table that follows may be already, and how records leave."""
    async with session(given.bootstrap) as kafka:
        bounds = await requests.bounds(kafka, await requests.topic(kafka, given.topic))
        return {(given.topic, b.partition): b.start for b in bounds}, await _leaving(kafka, given.topic)


async def high_watermarks(given: Auditing) -> dict[tuple[str, int], int]:
    """Where the topic's partitions end now."""
    async with session(given.bootstrap) as kafka:
        bounds = await requests.bounds(kafka, await requests.topic(kafka, given.topic))
        return {(given.topic, b.partition): b.end for b in bounds}


def schemas(http: str, topic: str) -> TopicSchemas:
    """The schemas that the topic ever had, and by which of them its records were judged. Raises Failure."""
    from iceberg.spark.schemas import Schema, TopicSchemas
    from schema.followed import PROTOBUF

    bound = [
        Schema(
            each["schema_id"],
            each["role"],
            each["message"],
            base64.b64decode(each["descriptor_set"]),
            bool(each.get("naming")),
        )
        for answer in _bindings(http, topic, "descriptors=true&after", "next_after")
        for each in answer["history"]
    ]
    spans = {
        each["partition"]: [
            (span["first_offset"], span["key_schema_id"] or 0, span["value_schema_id"] or 0)
            for span in each["spans"]
        ]
        for answer in _bindings(http, topic, "spans=true&from_partition", "next_partition")
        for each in answer["spans"]
    }
    told = [
        each
        for answer in _bindings(http, topic, "registered_after", "next_registered")
        for each in answer["registered"]
        if each["schema_type"] == PROTOBUF  # rows of other types are compared by their bytes alone
    ]
    registered = {each["schema_id"]: base64.b64decode(each["descriptor_set"]) for each in told}
    guids = {bytes.fromhex(each["guid"].replace("-", "")): each["schema_id"] for each in told}
    return TopicSchemas(bound, spans, registered, guids)


def _bindings(http: str, topic: str, query: str, following: str) -> Iterator[Mapping[str, Any]]:
    """All answers to a query that says where each begins; `following` says where the next one does."""
    begin: int | None = 0
    while begin is not None:
        answer = agent_http.ask(http, f"/admin/topics/{topic}/schema?{query}={begin}")
        yield answer
        begin = answer.get(following)


def skipped(given: Auditing) -> dict[int, list[Range]]:
    """By partition the offsets of which damaged records are passed over, side by side ones joined."""
    by_partition: dict[int, list[Range]] = {}
    for each in agent_http.ask(given.http, f"/admin/topics/{given.topic}/skipped")["skipped"]:
        by_partition.setdefault(each["partition"], []).append((each["from_offset"], each["to_offset"]))
    return {partition: joined(ranges) for partition, ranges in by_partition.items()}


async def _copy(
    consumer: AIOKafkaConsumer, topic: str, bounds: Sequence[Bounds], history: Path, stalls: Stalls
) -> None:
    from iceberg.spark.history import HistoryRow, HistoryWriter, bytes_hash, headers_hash

    left = {TopicPartition(topic, b.partition): b for b in bounds if b.end > b.start}
    consumer.assign(list(left))
    for where, bound in left.items():
        consumer.seek(where, bound.start)
    with HistoryWriter(history) as writer, progress() as bar:
        task = bar.add_task(f"reading {topic}", total=sum(b.end - b.start for b in bounds))
        while left:
            for where, records in (await consumer.getmany(*left, timeout_ms=FETCH_MS)).items():
                for record in records:
                    if record.offset < left[where].end:
                        key, value = bytes_hash(record.key), bytes_hash(record.value)
                        headers = headers_hash(record.headers)
                        row = (topic, record.partition, record.offset, key, value, headers, record.timestamp)
                        writer.add(HistoryRow(*row, timestamp_type=record.timestamp_type))
                bar.advance(task, len(records))
            # Not by the last record: a marker may stand behind it.
            for where, at in (await stalls.positions(consumer, list(left))).items():
                if at >= left[where].end:
                    del left[where]


async def caught_up(given: Auditing, bounds: Sequence[Bounds]) -> str:
    """The topic's table once it holds everything below `bounds`. Raises Failure when that takes too long."""
    loop = asyncio.get_running_loop()
    until = loop.time() + given.wait_s
    while True:
        tables = (await asyncio.to_thread(agent_http.ask, given.http, "/status.json"))["tables"]
        own = (t for t in tables if t["topic"] == given.topic and t["records_behind"] is not None)
        own = (t for t in own if not t["latest"])
        table = next(own, None)  # not that of a deleted topic of this name
        behind = _behind(table, bounds)
        if table is not None and not behind:
            return str(table["table"])
        if loop.time() >= until:
            state = "does not exist" if table is None else f"is {behind} records behind"
            raise refused(
                f"the table of {given.topic!r} {state} after {given.wait_s:.0f} s; is a committer running?"
            )
        await asyncio.sleep(POLL_S)


def _behind(table: Mapping[str, Any] | None, bounds: Sequence[Bounds]) -> int:
    done = dict(enumerate(table["next_offsets"])) if table is not None else {}
    return sum(max(0, b.end - max(b.start, done.get(b.partition, 0))) for b in bounds)


def audit(given: Auditing) -> Verdict:
    """Run the whole audit. Raises Failure when it cannot be made; its verdict may be unequal."""
    own = asyncio.run(topic_id(given))  # before Spark takes its time: there may be no such topic
    with tempfile.TemporaryDirectory(prefix="floe-audit-", dir=given.scratch) as folder:
        spark = started(given, Path(folder))
        try:
            return audited(given, spark, own, Path(folder))
        finally:
            spark.stop()


def audited(given: Auditing, spark: SparkSession, own: str, folder: Path) -> Verdict:
    """One audit by a Spark that runs. `own`: the topic's id, hexadecimal. Raises Failure."""
    try:
        return _audited(given, spark, own, folder / "consumed" / "records.parquet")
    except Failure:
        raise
    except Exception as error:  # what Spark raises has no class of its own
        text = str(error).strip().partition("\n")[0]
        raise Failure(Status.FAILED, f"the audit could not be made: {text}") from error


def started(given: Auditing, scratch: Path, *, stays: bool = False) -> SparkSession:
    """A Spark with Floe's catalog; one that `stays` is for many audits. Raises Failure."""
    from iceberg.spark.session import CATALOG
    from iceberg.spark.session import session as spark_session
    from iceberg.spark.steady import STAYING

    remarks().print("starting Spark …", style="dim")
    who = opening.header(given.http)
    asking = {f"spark.sql.catalog.{CATALOG}.header.Authorization": who} if who else {}
    try:
        return spark_session(
            f"{given.http.rstrip('/')}/iceberg",
            [*given.jars, *given.connector],
            scratch=scratch,
            java_home=given.java_home,
            s3=given.s3,
            cores=given.cores,
            driver_memory_mib=given.memory_mib,
            settings={**(STAYING if stays else {}), **asking},
        )
    except Exception as error:  # pyspark tells a missing Java in many ways
        raise Failure(Status.FAILED, f"Spark does not start: {error}; give --java-home of a JDK 17") from None


def _audited(given: Auditing, spark: SparkSession, own: str, history: Path) -> Verdict:
    from iceberg.spark import audits
    from iceberg.spark.consumed import untold

    before = audits.last(spark, own) if given.since_last else audits.Last({})
    bounds, topic = asyncio.run(readable(given, before.offsets)), given.topic
    compared = _gathered(given, bounds, before)
    files: dict[str, DataFrame] = {}
    if len(compared.since) == len(before.offsets):  # else a partition lost what was compared: all is anew
        known = audits.files_seen(spark, own, before)
        if known is not None and before.snapshot is not None:
            compared = replace(compared, seen={topic: known}, seen_at={topic: before.snapshot})
    sums: dict[int, Sequence[Digested]] = {}
    compared = replace(compared, tell=files.__setitem__, tell_digests=sums.update if given.keep else None)
    by_digests = given.by_digests or before.by_digests
    if by_digests:
        compared = _with_digests(compared, topic, audits.digests(spark, own))
    try:
        verdict = (_by_spark if given.connector else _by_client)(given, spark, compared, bounds, history)
    except Exception as error:
        if not (given.connector and untold(error)):
            raise
        remarks().print("a timestamp that Spark cannot read: one consumer reads the topic", style="dim")
        verdict = _by_client(given, spark, compared, bounds, history)
    verdict = with_latest(
        spark, verdict, given.http, topic, compared.tables[topic], lambda: _left_by_table(given)
    )
    if given.keep:
        done = {place[1]: (compared.since.get(place, 0), end) for place, end in compared.ends.items()}
        looked_at, found = verdict.snapshots.get(topic), sum(verdict.counts.values())
        outcome = audits.Outcome(done, found, looked_at, files.get(topic), sums, by_digests)
        audits.keep(spark, topic, own, outcome)
    return verdict


def _with_digests(compared: AuditInput, topic: str, kept: Mapping[int, Sequence[Digested]]) -> AuditInput:
    """With those of the digests that count as the topic stands."""
    from iceberg.spark.digested import Digested, usable

    how, found = compared.leaving[topic], dict[tuple[str, int], Sequence[Digested]]()
    for place, end in compared.ends.items():
        start, own = compared.log_start.get(place, 0), kept.get(place[1], ())
        found[place] = usable(own, start, end, follows=how.table_follows, compacted=how.compacted)
    return replace(compared, digests=found)


def _left_by_table(given: Auditing) -> dict[int, int]:
    """By partition the log start, where rows below it leave the table too."""
    starts, leaving = asyncio.run(departed(given))
    return {partition: start for (_, partition), start in starts.items()} if leaving.table_follows else {}


def _by_spark(
    given: Auditing, spark: SparkSession, compared: AuditInput, bounds: Sequence[Bounds], history: Path
) -> Verdict:
    """The verdict, the topic read by Spark's tasks while the comparison goes on.

    Records may leave the topic meanwhile. What is found may be that: then it is compared again, and when that
    goes on, one consumer reads first, and what leaves behind it is known.
    """
    from iceberg.spark.audit import audit as compare
    from iceberg.spark.consumed import consumed_history

    def reading(spark: SparkSession, digest: Digest, due: Ranges) -> DataFrame:
        return consumed_history(spark, given.bootstrap, given.topic, due, digest, command_config().java)

    for _ in range(COMPARISONS_MAX):
        remarks().print("reading and comparing in Spark …", style="dim")
        verdict = replace(compare(spark, replace(compared, consumed=reading)), read_by="spark")
        starts, _leaving = asyncio.run(departed(given))
        if verdict.equal or starts == compared.log_start:
            return verdict
        compared = replace(compared, log_start=starts)
        compared = _with_digests(compared, given.topic, _by_partition(compared.digests))
    remarks().print("records keep leaving the topic meanwhile: one consumer reads it first", style="dim")
    return _by_client(given, spark, compared, bounds, history)


def _by_partition(digests: Mapping[tuple[str, int], Sequence[Digested]]) -> dict[int, Sequence[Digested]]:
    return {partition: own for (_, partition), own in digests.items()}


def _by_client(
    given: Auditing, spark: SparkSession, compared: AuditInput, bounds: Sequence[Bounds], history: Path
) -> Verdict:
    """The verdict, once one consumer has written the topic to `history`."""
    from iceberg.spark.audit import audit as compare

    if not given.connector:
        remedy = (
            "bring Spark's jars for Kafka with `python -m deploy.setup.jars sparkkafka`, see --kafka-jars"
        )
        remarks().print(f"one consumer reads the topic; to have Spark read it, {remedy}", style="dim")
    asyncio.run(consume(given, history, bounds))
    starts, _leaving = asyncio.run(departed(given))
    remarks().print("comparing in Spark …", style="dim")
    given_all = replace(compared, consumed=history.parent, log_start=starts)
    return replace(compare(spark, given_all), read_by="client")


def _gathered(given: Auditing, bounds: Sequence[Bounds], before: Last) -> AuditInput:
    """All that the table is compared with but the records, once it holds all up to these bounds."""
    from iceberg.spark.given import AuditInput
    from iceberg.spark.session import CATALOG

    topic, since = given.topic, before.offsets
    table = asyncio.run(caught_up(given, bounds))
    starts, leaving = asyncio.run(departed(given))
    return AuditInput(
        tables={topic: f"{CATALOG}.{table}"},
        log_start=starts,
        ends={(topic, b.partition): b.end for b in bounds},
        holes=lambda place, due: asyncio.run(without_records(given, place[1], due)),
        skipped={(topic, partition): found for partition, found in skipped(given).items()},
        leaving={topic: leaving},
        schemas={topic: schemas(given.http, topic)},
        high_watermarks=lambda: asyncio.run(high_watermarks(given)),
        since={
            (topic, each.partition): since[each.partition]
            for each in bounds
            if each.partition in since and since[each.partition] <= each.end
        },
    )
