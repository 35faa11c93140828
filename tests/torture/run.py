"""One torture run: a workload through faults, then heal, final reads, verdict of topic and table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.checker.operations import History
from tests.checker.tables import Logged
from tests.torture.broker_log import read_log
from tests.torture.cluster import Cluster
from tests.torture.faults import Step, act
from tests.torture.history import history_of
from tests.torture.inside import inspect
from tests.torture.verdict import Finding, Place, Sent, Verdict, is_unplaced, judge
from tests.torture.workload import BASE, Reader, Writer, read_all

TABLE_SECONDS_MAX = 90
READERS_SECONDS_MAX = 60


def create_topic(
    bootstrap: str, topic: str, partitions: int, config: dict[str, str] | None = None, **settings: str
) -> None:
    """Create the topic and wait until a client, with such settings of its own, sees it."""
    admin = AdminClient({**BASE, "bootstrap.servers": bootstrap, **settings})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})], request_timeout=30)
    made[topic].result(30)


def torture(
    cluster: Cluster,
    steps: Iterable[Step],
    *,
    keep: Callable[[History, Sequence[Logged]], None] | None = None,
    topic: str = "torture",
    partitions: int = 6,
    writers: int = 2,
    rate: float = 400,
) -> Verdict:
    """Idempotent writers and readers run through all steps; afterwards everything is judged.

    `keep` gets the clients' history and what the log holds in the end, for the checker.
    """
    create_topic(cluster.bootstrap, topic, partitions)
    places = range(partitions)
    writing = [Writer(f"w{n}", cluster.bootstrap, topic, places, rate=rate / writers) for n in range(writers)]
    reading = [Reader(f"r{n}", cluster.bootstrap, topic, places) for n in range(2)]
    for thread in (*writing, *reading):
        thread.start()
    _through(cluster, steps, [*writing, *reading])
    for writer in writing:
        writer.stop()
    final = read_all(cluster.bootstrap, topic, places)
    _wait_for_readers(reading, final)
    sent = [send for writer in writing for send in writer.sent]
    seen = [record for reader in reading for record in reader.seen]
    if keep is not None:
        keep(history_of(sent, seen, final), read_log(*cluster.opened, topic))
    verdict = judge(sent, final, seen)
    if len(sent) != sum(writer.attempted for writer in writing):
        verdict.findings.append(Finding("stuck", topic, "a client never answered for some of its records"))
    verdict.findings += unexplained(writing)
    catalog = open_catalog(cluster.members[0].agent.http, cluster.s3_properties)
    verdict.findings += table_differs(catalog, topic, final)
    verdict.findings += inspect(cluster)
    for writer in writing if verdict.findings else ():
        print(*(f"  {writer.name}: {line}" for line in writer.told), sep="\n", flush=True)
    return verdict


def _through(cluster: Cluster, steps: Iterable[Step], clients: Sequence[Writer | Reader]) -> None:
    """All steps, and healed. Where one raises the clients end: runs behind it would have their load."""
    try:
        for step in steps:
            print(f"  {time.strftime('%H:%M:%S')} {step}", flush=True)
            act(cluster, step)
    except BaseException:
        cluster.heal()
        for client in clients:
            client.stop()
        raise
    cluster.heal()


def unexplained(writers: Iterable[Writer]) -> list[Finding]:
    """Records that a writer was told are stored without being told where, and its client does not say why."""
    return [
        Finding("no-offset", writer.name, f"{count} records, of which its client explains {writer.explained}")
        for writer in writers
        if (count := sum(map(is_unplaced, writer.sent))) > writer.explained
    ]


def _wait_for_readers(readers: Sequence[Reader], final: dict[Place, list[tuple[int, bytes]]]) -> None:
    """Let readers that lived through the faults reach the end: one that cannot is stuck."""
    total = sum(len(records) for records in final.values())
    deadline = time.monotonic() + READERS_SECONDS_MAX
    while time.monotonic() < deadline and any(len(reader.seen) < total for reader in readers):
        time.sleep(0.2)
    for reader in readers:
        reader.stop()
        assert len(reader.seen) >= total, f"stuck: {reader.name} saw {len(reader.seen)} of {total}"


def open_catalog(http: str, properties: dict[str, str]) -> RestCatalog:
    """An agent's catalog; it hands out no credentials, so the reader brings its own as `properties`."""
    return RestCatalog("floe", uri=f"{http}/iceberg", **properties)


def table_differs(
    catalog: RestCatalog,
    topic: str,
    final: dict[Place, list[tuple[int, bytes]]],
    gone: Sequence[Sent] = (),
    unknown: frozenset[bytes] = frozenset(),
) -> list[Finding]:
    """How the topic's Iceberg table differs from the topic, once it has had time to catch up.

    The table also has what compaction took from the topic: the records `gone`, and of those whose outcome is
    `unknown` any that were written.
    """
    expected = {(p, offset): value for (_, p), records in final.items() for offset, value in records}
    expected |= {(send.partition, send.offset): send.value for send in gone if not is_unplaced(send)}
    unknown |= {send.value for send in gone if is_unplaced(send)}
    deadline = time.monotonic() + TABLE_SECONDS_MAX
    rows = _table(catalog, topic)
    while len(rows) < len(expected) and time.monotonic() < deadline:
        time.sleep(1)
        rows = _table(catalog, topic)
    held: dict[tuple[int, int], bytes] = {}
    findings = []
    for place, value in rows:
        if place in held:
            findings.append(Finding("table-doubled", f"{topic}-{place[0]}", f"offset {place[1]}"))
        held[place] = value
    for place in expected.keys() - held.keys():
        findings.append(Finding("table-missing", f"{topic}-{place[0]}", f"offset {place[1]}"))
    for place in held.keys() - expected.keys():
        if held[place] in unknown:
            continue
        findings.append(Finding("table-extra", f"{topic}-{place[0]}", f"offset {place[1]}"))
    for place in expected.keys() & held.keys():
        if expected[place] != held[place]:
            findings.append(Finding("table-changed", f"{topic}-{place[0]}", f"offset {place[1]}"))
    return findings


def latest_differs(
    catalog: RestCatalog, topic: str, sent: Sequence[Sent], final: Mapping[Place, Sequence[tuple[int, bytes]]]
) -> list[Finding]:
    """How the table of the topic's newest rows differs from a dictionary of what was read of the topic, once
    it has had time to catch up. A record's key is what its writer gave it.
    """
    keys = {send.value: send.key for send in sent}
    newest = {
        (p, keys[value]): ((p, offset), value) for (_, p), rows in final.items() for offset, value in rows
    }
    due = sorted(newest.values())
    deadline = time.monotonic() + TABLE_SECONDS_MAX
    while (rows := sorted(_table(catalog, f"{topic}__latest"))) != due and time.monotonic() < deadline:
        time.sleep(1)
    return [
        Finding(
            "latest-differs", f"{topic}-{place[0]}", f"offset {place[1]}, of {len(rows)} rows, {len(due)} due"
        )
        for place, _ in [
            *(each for each in rows if each not in due),
            *(each for each in due if each not in rows),
        ]
    ] or [Finding("latest-doubled", topic, f"{len(rows)} rows, {len(due)} due")] * (len(rows) != len(due))


def _table(catalog: RestCatalog, topic: str) -> list[tuple[tuple[int, int], bytes]]:
    identifier = ("floe", topic.replace("-", "_").replace(".", "_"))
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:  # not yet, or not yet again: an older topic's table is set aside first
        return []
    rows = table.scan().to_arrow().to_pylist()
    return [((row["kafka"]["partition"], row["kafka"]["offset"]), row["value"]["__raw__"]) for row in rows]
