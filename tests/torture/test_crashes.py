"""A process killed before every step of flush, snapshot, trim, tables and collection [rules 1, 3, 9].

Two agents write, commit and collect under load; one step is armed; whichever agent reaches it first dies
there, the other carries on, the dead one comes back. Then topic, table and chunks are judged. `make test`
takes one step in sixteen, `make torture` all; the simulation kills at steps as well.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from agent.net.wire.generated import incremental_alter_configs as ia
from tests.compat.raw import call
from tests.equipment.thorough import one_in
from tests.torture.cluster import Cluster, Member
from tests.torture.crashing_agent import ALL_STEPS, Armed, CrashingAgent
from tests.torture.inside import inspect
from tests.torture.run import create_topic, latest_differs, open_catalog, table_differs, unexplained
from tests.torture.verdict import Finding, Place, judge, superseded
from tests.torture.workload import BASE, Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

REACHED_SECONDS_MAX = 180
TOLD_LINES = 200
PARTITIONS = (0, 1)
BUSY = {
    "snapshots": {"interval_s": 1, "entries_max": 50},
    "collection": {"interval_s": 1, "grace_s": 0},
    "compaction": {"dirty_bytes_min": 4096},
    "replica": {"heartbeat_ms": 300},
    "scrub": {"begin_s": 0, "round_s": 5},
    "merging": {"interval_ms": 200, "min_slices": 8, "keep_slices": 2, "segment_bytes": 65_536},
    "tables": {
        "interval_ms": 300, "manifests_merged_at": 3, "orphan_interval_s": 1, "orphan_grace_s": 0,
        "compacted_at_files": 3, "compaction_busy_percent": 100,
        "latest_age_s": 1, "latest_busy_percent": 100,
    },
}  # fmt: skip

ONCE = "table/create-namespace"  # done for the first table only: comes first
BEGINNINGS = (
    ONCE,
    "table/claim",
    "table/set-old-table-aside",
    "table/store-first-metadata",
    "table/create-table",
    "table/find-old-files",
    "latest/claim",
    "latest/store-first-metadata",
    "latest/create-table",
)
"""Steps at the beginning of a topic's table."""

CHANGES = "change/"  # steps of a request too large for one entry: test_large_changes_killed.py dies there
LATE = (
    "table/store-base",
    "latest/rename-table",
    "latest/set-old-table-aside",
    "latest/create-namespace",
    "latest/merge-manifests",
    "scrub/spare",
    "scrub/put",
    "scrub/written",
    "scrub/drop-spare",
)
"""By a topic's 160th commit at the earliest, or by a story of its own: test_tables_history.py and
test_latest_tables.py of tests/unit/iceberg die there, and where something is mended
tests/unit/agent/background/test_scrub.py does.
"""
DIED_AT = sorted(
    (step for step in ALL_STEPS if not step.startswith((CHANGES, *LATE))), key=lambda step: step != ONCE
)
TOPICS, BROKERS = 2, 4  # as kinds of resources
DELETE = 1  # as an operation on a config
KEYS = 10  # of each partition of a compacted topic
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
FOLLOWED = {"floe.table.retention": "follow"}
UPSERT = {"floe.table.mode": "upsert"}


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Armed:
    return Armed(tmp_path_factory.mktemp("crash") / "armed")


@pytest.fixture(scope="module")
def cluster(armed: Armed) -> Iterator[Cluster]:
    class Agent(CrashingAgent):
        """Knows where the armed step is written."""

    Agent.armed = armed.path
    with Cluster(2, BUSY, agent=Agent) as made:
        yield made


@pytest.mark.parametrize("step", one_in(16, DIED_AT))
def test_killed_before(cluster: Cluster, armed: Armed, step: str) -> None:
    topic = "t-" + step.replace("/", "-")
    if step == "table/set-old-table-aside":
        _leave_a_table(cluster, topic)
    if step in BEGINNINGS:
        armed.arm(step)
    writer = _begin(cluster, topic, _config(cluster, step))
    _arm(cluster, armed, step, topic)
    dead = _dead(cluster, step)
    back = threading.Thread(target=_bring_back, args=[cluster])
    back.start()
    time.sleep(1)
    writer.stop()
    final = read_all(cluster.bootstrap, topic, PARTITIONS)
    back.join()
    compacted = step.startswith("compact/")
    if compacted:
        final = _compacted(cluster, topic, writer)
    verdict = judge(writer.sent, final, [], compacted=compacted)
    verdict.findings += unexplained([writer])
    if step == "table/set-old-table-aside":
        _until(lambda: _has_own_table(cluster, topic), "the new topic has a table of its own")
    verdict.findings += _table_findings(cluster, dead, topic, writer, final)
    verdict.findings += inspect(cluster, topic)
    print(f"\nkilled before {step}: {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged == len(writer.sent) > 0
    _delete(cluster, topic)  # else each step's topic and table are looked after through all later ones


def _arm(cluster: Cluster, armed: Armed, step: str, topic: str) -> None:
    """Arm the step, and see to it that an agent comes by."""
    if step.startswith("collect/"):
        _make_garbage(cluster, topic, lambda: armed.arm(step))
    elif step in ("table/delete-orphans", "table/rename-table"):
        (_rename if "rename" in step else _make_orphan)(cluster, topic, lambda: armed.arm(step))
    elif step == "table/load-table":
        _until(lambda: _has_table(cluster, topic))
        _holder(cluster, f"committer/{topic}").agent.kill()
        armed.arm(step)
    elif step == "merge/claim":
        holder = _holder(cluster, "merging/0")
        armed.arm(step)
        holder.agent.kill()
    elif step not in BEGINNINGS:
        armed.arm(step)


def _table_findings(
    cluster: Cluster, dead: Member, topic: str, writer: Writer, final: dict[Place, list[tuple[int, bytes]]]
) -> list[Finding]:
    """How the table differs from the topic, as the agent that came back tells of it."""
    catalog = open_catalog(dead.agent.http, cluster.s3_properties)
    if topic.startswith("t-latest-"):
        return table_differs(catalog, topic, final) + latest_differs(catalog, topic, writer.sent, final)
    if not topic.startswith("t-compact-"):
        return table_differs(catalog, topic, final)
    unknown = frozenset(send.value for send in writer.sent if send.outcome != "ok")
    return table_differs(catalog, topic, final, superseded(writer.sent, final), unknown)


def _config(cluster: Cluster, step: str) -> dict[str, str]:
    """What a topic needs so that the step is reached."""
    if step.startswith("compact/"):
        often = ia.AlterableConfig("log.cleaner.backoff.ms", 0, "500")  # librdkafka cannot name all brokers
        request = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(BROKERS, "", [often])])
        answer = asyncio.run(call(cluster.bootstrap, "IncrementalAlterConfigs", request, 1))
        assert answer.responses[0].error_code == 0, answer
        return COMPACTED
    if step.startswith("latest/"):
        return UPSERT
    if step == "table/rename-table":
        return {"floe.table.name": "renamed"}
    return FOLLOWED if step == "table/find-old-files" else {}


def _begin(cluster: Cluster, topic: str, config: dict[str, str] | None = None) -> Writer:
    """A new topic that is being written to."""
    create_topic(cluster.bootstrap, topic, len(PARTITIONS), config)
    keys = KEYS if config in (COMPACTED, UPSERT) else 0
    writer = Writer("w", cluster.bootstrap, topic, PARTITIONS, rate=40, keys=keys)
    writer.start()
    _until(lambda: len(writer.sent) > 0)
    return writer


def _compacted(cluster: Cluster, topic: str, writer: Writer) -> dict[Place, list[tuple[int, bytes]]]:
    """The topic once compaction has taken something, whoever did it: else the run shows nothing of it."""
    final: dict[Place, list[tuple[int, bytes]]] = {}

    def bitten() -> bool:
        nonlocal final
        final = read_all(cluster.bootstrap, topic, PARTITIONS)
        return sum(map(len, final.values())) < sum(send.outcome == "ok" for send in writer.sent)

    _until(bitten, "compaction took something")
    return final


def _dead(cluster: Cluster, step: str) -> Member:
    """The agent that died at the step. A step that nobody reaches is no step."""
    try:
        _until(
            lambda: any(m.agent.ended_by_itself is not None for m in cluster.members), f"{step} was reached"
        )
    except AssertionError as error:
        error.add_note("\n".join(_told(member) for member in cluster.members))
        raise
    (dead,) = [member for member in cluster.members if member.agent.ended_by_itself is not None]
    assert dead.agent.ended_by_itself == -signal.SIGKILL, dead.agent.log_tail()
    return dead


def _told(member: Member) -> str:
    """What an agent says of itself and has said, for whoever must find out why."""
    status = member.status()
    return f"{member.agent.name}: {status}\n{member.agent.log_tail(TOLD_LINES)}"


def _until(condition: Callable[[], bool], what: str = "it came true") -> None:
    deadline = time.monotonic() + REACHED_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not before {REACHED_SECONDS_MAX} s were over: {what}"
        time.sleep(0.05)


def _delete(cluster: Cluster, topic: str) -> None:
    """Ask until the topic is gone: the agent that was asked may die before it did so, or with its answer."""
    admin = AdminClient({**BASE, "bootstrap.servers": cluster.bootstrap})

    def gone() -> bool:
        try:
            admin.delete_topics([topic], request_timeout=10)[topic].result(15)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
        return True

    _until(gone, f"{topic} was deleted")


def _has_table(cluster: Cluster, topic: str) -> bool:
    tables = cluster.members[0].status()["tables"]
    return any(each["topic"] == topic and sum(each["next_offsets"]) > 0 for each in tables)


def _has_own_table(cluster: Cluster, topic: str) -> bool:
    """Not only one that an older topic of that name has left."""
    tables = cluster.members[0].status()["tables"]
    return any(each["topic"] == topic and each["records_behind"] is not None for each in tables)


def _leave_a_table(cluster: Cluster, topic: str) -> None:
    """A topic of that name was there before: its table still is."""
    writer = _begin(cluster, topic)
    _until(lambda: _has_table(cluster, topic))
    writer.stop()
    _delete(cluster, topic)


def _rename(cluster: Cluster, topic: str, arm: Callable[[], None]) -> None:
    """Give the topic's table the name that all others have."""
    _until(lambda: _has_table(cluster, topic))
    arm()
    plain = ia.AlterableConfig("floe.table.name", DELETE, None)
    request = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(TOPICS, topic, [plain])])
    answer = asyncio.run(call(cluster.bootstrap, "IncrementalAlterConfigs", request, 1))
    assert answer.responses[0].error_code == 0, answer


def _bring_back(cluster: Cluster) -> None:
    """Start again whoever is dead."""
    for member in cluster.members:
        if not member.agent.running:
            member.agent.restart()


def _holder(cluster: Cluster, claim: str) -> Member:
    """The agent that has a job. When it is killed, the other takes the job over once that one is fenced."""
    _until(lambda: claim in cluster.members[0].status()["claims"], f"{claim} was taken")
    holder = cluster.members[0].status()["claims"][claim]
    (member,) = [each for each in cluster.members if each.status()["incarnation"] == holder]
    return member


def _make_garbage(cluster: Cluster, topic: str, arm: Callable[[], None]) -> None:
    """A topic that is deleted leaves chunks that nothing refers to.

    `arm` comes before: a collection may pass at once, and finds nothing the next time.
    """
    scratch = f"{topic}-scratch"
    writer = _begin(cluster, scratch)
    writer.stop()
    arm()
    _delete(cluster, scratch)


def _make_orphan(cluster: Cluster, topic: str, arm: Callable[[], None]) -> None:
    """A file that no snapshot names, where a dead committer would have left it. `arm` comes before."""
    _until(lambda: _has_table(cluster, topic))
    catalog = open_catalog(cluster.members[0].agent.http, cluster.s3_properties)
    location = catalog.load_table(("floe", topic.replace("-", "_"))).location()
    bucket, _, key = location.removeprefix("s3://").partition("/")
    arm()
    cluster.store.client().put_object(Bucket=bucket, Key=f"{key}/data/orphan.parquet", Body=b"left behind")
