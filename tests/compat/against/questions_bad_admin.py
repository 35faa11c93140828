"""Bad input to administration: configs that cannot be, assignments, cursors, kinds of resources, ACLs."""

from __future__ import annotations

from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import describe_acls as des
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import describe_user_scram_credentials as dus
from agent.net.wire.generated import incremental_alter_configs as iac
from agent.net.wire.generated import metadata as m
from tests.compat.against.questions_bad import errors
from tests.compat.against.side import Answers, Question, Side, code

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

TOPIC_VALUES: dict[str, tuple[str, ...]] = {
    "retention.ms": (
        "-2",
        "9223372036854775807",
        "9223372036854775808",
        "1.5",
        "1_0",
        "0x10",
        " 7 ",
        "+7",
        "7L",
        "",
    ),
    "retention.bytes": ("-2", "-1"),
    "max.message.bytes": ("-1", "0", "2147483648"),
    "cleanup.policy": ("delete,burn", "Delete", " compact , delete ", "delete,delete", "delete,,compact", ""),
    "compression.type": ("brotli", "none", "ZSTD"),
    "compression.gzip.level": ("0", "10", "-1"),
    "compression.lz4.level": ("0", "18"),
    "compression.zstd.level": ("23", "-131073"),
    "min.cleanable.dirty.ratio": ("1.1", "-0.1", "x", "NaN", "1e-3"),
    "min.insync.replicas": ("0",),
    "message.timestamp.type": ("Never", "createtime"),
    "preallocate": ("maybe", "TRUE", "1"),
    "segment.bytes": ("1", "1048575"),
    "segment.ms": ("0",),
    "delete.retention.ms": ("-1",),
    "max.compaction.lag.ms": ("0",),
    "min.compaction.lag.ms": ("-1",),
    "flush.messages": ("0",),
    "index.interval.bytes": ("-1",),
    "leader.replication.throttled.replicas": ("x", "0:0", "*"),
}

PAIRS: dict[str, dict[str, str]] = {
    "lags that cross": {"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "7"},
    "an empty name": {"": "1"},
    "a name with blanks": {" retention.ms": "1"},
    "a broker's name": {"log.retention.ms": "1"},
}

BROKER_VALUES: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("-2", "x"),
    "log.retention.bytes": ("x",),
    "message.max.bytes": ("-1", "2147483648"),
    "log.cleaner.threads": ("-1", "x"),
    "log.cleaner.backoff.ms": ("-1",),
    "log.cleaner.min.cleanable.ratio": ("1.1", "-1"),
    "log.cleanup.policy": ("burn", ""),
    "log.message.timestamp.type": ("Never",),
    "num.io.threads": ("0", "9"),
    "min.insync.replicas": ("0",),
    "unclean.leader.election.enable": ("maybe",),
    "producer.id.expiration.ms": ("0",),
    "max.connections": ("x",),
}


async def _set(side: Side, kind: int, resource: str, configs: dict[str, str]) -> str:
    changes = [iac.AlterableConfig(name, SET, value) for name, value in configs.items()]
    asked = iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(kind, resource, changes)], True)
    return errors(await side.ask("IncrementalAlterConfigs", asked, 1))


async def configs(side: Side) -> Answers:
    """Values out of range and of no sense; tried only, so that nothing stays."""
    topic = await side.topic("known")
    found: Answers = {}
    for name, values in TOPIC_VALUES.items():
        for value in values:
            found[f"{name}={value!r}".replace(", ", ",")] = await _set(side, TOPIC, topic, {name: value})
    for label, pair in PAIRS.items():
        found[label] = await _set(side, TOPIC, topic, pair)
        entries = [ct.CreatableTopicConfig(name, value) for name, value in pair.items()]
        new = ct.CreatableTopic(f"{side.prefix}new", 1, 1, configs=entries)
        answer = await side.ask("CreateTopics", ct.CreateTopicsRequest([new], 9_000, True), 7)
        found[f"{label} (created)"] = errors(answer)
    for name, values in BROKER_VALUES.items():
        for value in values:
            found[f"broker {name}={value!r}"] = await _set(side, BROKER, "", {name: value})
    return found


async def old_alter(side: Side) -> Answers:
    """AlterConfigs of other kinds of resources, with nothing, twice."""
    topic = await side.topic("known")
    one = [ac.AlterableConfig("retention.ms", "5")]
    cases = {
        "unknown kind": [ac.AlterConfigsResource(3, "x", one)],
        "unknown topic": [ac.AlterConfigsResource(TOPIC, "not-there", one)],
        "invalid topic": [ac.AlterConfigsResource(TOPIC, "a/b", one)],
        "no topic": [ac.AlterConfigsResource(TOPIC, "", one)],
        "no group": [ac.AlterConfigsResource(GROUP, "", one)],
        "a topic's config of a group": [ac.AlterConfigsResource(GROUP, "g", one)],
        "broker by word": [ac.AlterConfigsResource(BROKER, "one", one)],
        "unknown broker": [ac.AlterConfigsResource(BROKER, "99", one)],
        "no resources": [],
        "a resource twice": [ac.AlterConfigsResource(TOPIC, topic, one)] * 2,
        "nothing": [ac.AlterConfigsResource(TOPIC, topic, [])],
    }
    found: Answers = {}
    for label, resources in cases.items():
        found[label] = errors(await side.ask("AlterConfigs", ac.AlterConfigsRequest(resources, True), 2))
    return found


async def topics(side: Side) -> Answers:
    """Creations that cannot be: assignments, numbers, names that collide."""
    known = await side.topic("known.one", 2)
    node = (await side.ask("Metadata", m.MetadataRequest([], False), 12)).brokers[0].node_id

    def assigned(
        label: str, *rows: tuple[int, list[int]], count: int = -1, factor: int = -1
    ) -> ct.CreatableTopic:
        each = [ct.CreatableReplicaAssignment(index, brokers) for index, brokers in rows]
        return ct.CreatableTopic(f"{side.prefix}{label}", count, factor, each)

    cases = {
        "collides": ct.CreatableTopic(known.replace(".", "_"), 1, 1),
        "no brokers": assigned("a", (0, [])),
        "unknown broker": assigned("b", (0, [77])),
        "negative broker": assigned("c", (0, [-1])),
        "a broker twice": assigned("d", (0, [node, node])),
        "a partition twice": assigned("e", (0, [node]), (0, [node])),
        "negative partition": assigned("f", (-1, [node])),
        "assignment and factor": assigned("g", (0, [node]), factor=1),
        "not equally many": assigned("h", (0, [node]), (1, [node, 77])),
        "a million partitions": ct.CreatableTopic(f"{side.prefix}i", 1_000_000, 1),
        "as many as can be said": ct.CreatableTopic(f"{side.prefix}j", 2**31 - 1, 1),
        "factor 32767": ct.CreatableTopic(f"{side.prefix}k", 1, 32_767),
    }
    found: Answers = {}
    for label, topic in cases.items():
        found[label] = errors(await side.ask("CreateTopics", ct.CreateTopicsRequest([topic], 9_000, True), 7))
    found["no topics"] = errors(await side.ask("CreateTopics", ct.CreateTopicsRequest([], 9_000), 7))
    for label, count, brokers in (
        ("unknown broker", 3, [[77]]),
        ("no brokers", 3, [[]]),
        ("too many assignments", 3, [[node], [node]]),
        ("a million", 1_000_000, None),
        ("as many as can be said", 2**31 - 1, None),
    ):
        rows = None if brokers is None else [cp.CreatePartitionsAssignment(each) for each in brokers]
        request = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(known, count, rows)], 9_000, True)
        found[f"partitions: {label}"] = errors(await side.ask("CreatePartitions", request, 3))
    return found


async def cursors(side: Side) -> Answers:
    """DescribeTopicPartitions from where nothing is, in pages of no size; DeleteRecords named twice."""
    known = await side.topic("known", 3)
    wanted = [dtp.TopicRequest(known)]
    cases = {
        "unknown topic": (wanted, 2, dtp.Cursor("zzz", 0)),
        "before it": (wanted, 2, dtp.Cursor("A", 0)),
        "negative partition": (wanted, 2, dtp.Cursor(known, -1)),
        "past the last": (wanted, 2, dtp.Cursor(known, 3)),
        "far past": (wanted, 2, dtp.Cursor(known, 99)),
        "no name": (wanted, 2, dtp.Cursor("", 0)),
        "page of 0": (wanted, 0, None),
        "page of -1": (wanted, -1, None),
        "named twice": (wanted * 2, 9, None),
        "cursor is not asked for": ([dtp.TopicRequest("zzzz")], 2, dtp.Cursor(known, 1)),
    }
    found: Answers = {}
    for label, case in cases.items():
        answer = await side.ask("DescribeTopicPartitions", dtp.DescribeTopicPartitionsRequest(*case), 0)
        if answer is None:
            found[label] = "no answer"
            continue
        rows = [
            (str(t.name), code(t.error_code), [p.partition_index for p in t.partitions])
            for t in answer.topics
        ]
        found[label] = f"{rows} {answer.next_cursor}"
    parts = [
        dr.DeleteRecordsPartition(0, 0),
        dr.DeleteRecordsPartition(0, -3),
        dr.DeleteRecordsPartition(0, 2**62),
    ]
    request = dr.DeleteRecordsRequest([dr.DeleteRecordsTopic(known, parts)], 5_000)
    found["records: a partition three times"] = errors(await side.ask("DeleteRecords", request, 2))
    return found


async def security(side: Side) -> Answers:
    """ACLs without an authoriser, SCRAM users that are not, quotas of nobody."""
    acl = ca.AclCreation(2, "t", 3, "User:x", "*", 2, 3)
    any_ = da.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    users = {"all": None, "none": [], "unknown": ["who"], "empty": [""], "twice": ["who", "who"]}
    found: Answers = {
        "describe acls": errors(
            await side.ask("DescribeAcls", des.DescribeAclsRequest(2, "t", 3, None, None, 1, 1), 3)
        ),
        "create acls": errors(await side.ask("CreateAcls", ca.CreateAclsRequest([acl, acl]), 3)),
        "create no acls": errors(await side.ask("CreateAcls", ca.CreateAclsRequest([]), 3)),
        "delete acls": errors(await side.ask("DeleteAcls", da.DeleteAclsRequest([any_]), 3)),
    }
    for label, names in users.items():
        rows = None if names is None else [dus.UserName(name) for name in names]
        asked = dus.DescribeUserScramCredentialsRequest(rows)
        found[f"scram, {label}"] = errors(await side.ask("DescribeUserScramCredentials", asked, 0))
    components = {
        "twice": [("user", 0, "a"), ("user", 0, "b")],
        "match 7": [("user", 7, "a")],
        "exact without a name": [("user", 0, None)],
        "default with a name": [("user", 1, "a")],
        "empty type": [("", 2, None)],
        "ip and user": [("ip", 0, "1.2.3.4"), ("user", 0, "a")],
        "ip by word": [("ip", 0, "nowhere")],
    }
    for label, each in components.items():
        parts = [dcq.ComponentData(*one) for one in each]
        request = dcq.DescribeClientQuotasRequest(parts, True)
        found[f"quotas, {label}"] = errors(await side.ask("DescribeClientQuotas", request, 1))
    return found


QUESTIONS: dict[str, Question] = {
    "Bad.configs": configs,
    "Bad.alter": old_alter,
    "Bad.topics": topics,
    "Bad.cursors": cursors,
    "Bad.security": security,
}
