"""Questions about the cluster as a whole: configs, features, and the replicas that Floe has none of."""

from __future__ import annotations

from agent.net.wire.generated import alter_partition_reassignments as apr
from agent.net.wire.generated import alter_replica_log_dirs as arl
from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_cluster as dcl
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_log_dirs as dld
from agent.net.wire.generated import describe_quorum as dq
from agent.net.wire.generated import elect_leaders as el
from agent.net.wire.generated import incremental_alter_configs as iac
from agent.net.wire.generated import list_config_resources as lcr
from agent.net.wire.generated import list_partition_reassignments as lpr
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import update_features as uf
from coordination.broker_configs import BROKER_CONFIGS
from tests.compat.against.side import Answers, Question, Side, code, told

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
UPGRADE, SAFE, UNSAFE = 1, 2, 3
GROUP_VERSION = "group.version"
LONG = "x" * 1_000_000
Change = tuple[str, int, str | None]

CLUSTER_CHANGES: dict[str, tuple[int, str, Change]] = {
    "unknown config": (BROKER, "", ("no.such", SET, "1")),
    "static in Kafka": (BROKER, "", ("num.partitions", SET, "1")),
    "read-only": (BROKER, "", ("node.id", SET, "3")),
    "another type": (BROKER, "", ("message.max.bytes", SET, "x")),
    "out of range": (BROKER, "", ("message.max.bytes", SET, "-1")),
    "not of the list": (BROKER, "", ("log.cleanup.policy", SET, "burn")),
    "good": (BROKER, "", ("log.cleaner.delete.retention.ms", SET, "86400001")),
    "deleted": (BROKER, "", ("log.cleaner.delete.retention.ms", DELETE, None)),
    "one broker": (BROKER, "1", ("message.max.bytes", SET, "1048588")),
    "one broker deleted": (BROKER, "1", ("message.max.bytes", DELETE, None)),
    "broker by word": (BROKER, "one", ("log.cleaner.threads", SET, "2")),
    "unknown broker": (BROKER, "99", ("log.cleaner.threads", SET, "2")),
    "default topic": (TOPIC, "", ("retention.ms", SET, "1")),
    "invalid topic": (TOPIC, "a/b", ("retention.ms", SET, "1")),
    "metrics": (METRICS, "m", ("interval.ms", DELETE, None)),
    "metrics unknown": (METRICS, "m", ("no.such", SET, "1")),
    "metrics nameless": (METRICS, "", ("interval.ms", SET, "1000")),
    "logger": (LOGGER, "1", ("root", SET, "ERROR")),
    "logger of another": (LOGGER, "99", ("root", SET, "ERROR")),
    "logger nameless": (LOGGER, "", ("root", SET, "ERROR")),
    "unknown type": (0, "x", ("a", SET, "1")),
}

GROUP_CHANGES: dict[str, tuple[str, Change]] = {
    "unknown config": ("g", ("no.such", SET, "1")),
    "delete an unknown config": ("g", ("no.such", DELETE, None)),
    "another type": ("g", ("consumer.session.timeout.ms", SET, "x")),
    "below the least": ("g", ("consumer.session.timeout.ms", SET, "44999")),
    "above the most": ("g", ("consumer.session.timeout.ms", SET, "60001")),
    "good": ("g", ("consumer.session.timeout.ms", SET, "50000")),
    "heartbeat too often": ("g", ("consumer.heartbeat.interval.ms", SET, "4999")),
    "heartbeat": ("g", ("consumer.heartbeat.interval.ms", SET, "6000")),
    "append to no list": ("g", ("consumer.session.timeout.ms", APPEND, "1")),
    "no name": ("", ("consumer.session.timeout.ms", SET, "50000")),
    "no such reset": ("g", ("share.auto.offset.reset", SET, "never")),
    "reset": ("g", ("share.auto.offset.reset", SET, "by_duration:PT1H")),
    "no such isolation": ("g", ("share.isolation.level", SET, "x")),
}

FEATURES: dict[str, list[tuple[str, int, int]]] = {
    "unknown": [("no.such", 1, UPGRADE)],
    "unknown, off": [("no.such", 0, SAFE)],
    "same": [(GROUP_VERSION, 1, UPGRADE)],
    "same, down": [(GROUP_VERSION, 1, SAFE)],
    "too high": [(GROUP_VERSION, 9, UPGRADE)],
    "down as upgrade": [(GROUP_VERSION, 0, UPGRADE)],
    "down": [(GROUP_VERSION, 0, SAFE)],
    "down unsafely": [(GROUP_VERSION, 0, UNSAFE)],
    "unknown kind": [(GROUP_VERSION, 0, 9)],
    "negative": [(GROUP_VERSION, -1, SAFE)],
    "twice": [(GROUP_VERSION, 1, UPGRADE)] * 2,
    "no name": [("", 1, UPGRADE)],
    "none": [],
    "one good one bad": [(GROUP_VERSION, 0, SAFE), ("no.such", 1, UPGRADE)],
}


async def _alter(side: Side, kind: int, name: str, change: Change) -> str:
    resource = iac.AlterConfigsResource(kind, name, [iac.AlterableConfig(*change)])
    answer = await side.ask(
        "IncrementalAlterConfigs", iac.IncrementalAlterConfigsRequest([resource], False), 1
    )
    if answer is None:
        return "no answer"
    return "; ".join(told(row.error_code, row.error_message) for row in answer.responses)


async def alter_cluster(side: Side) -> Answers:
    """Configs of the whole cluster, of one broker, of loggers and subscriptions."""
    return {label: await _alter(side, *case) for label, case in CLUSTER_CHANGES.items()}


async def alter_groups(side: Side) -> Answers:
    """Configs of a group that does not exist, and what is left of them."""
    found = {}
    for label, (group, change) in GROUP_CHANGES.items():
        found[label] = await _alter(side, GROUP, f"{side.prefix}{group}" if group else "", change)
    request = dc.DescribeConfigsRequest(
        [dc.DescribeConfigsResource(GROUP, f"{side.prefix}g", None)], True, False
    )
    (result,) = (await side.ask("DescribeConfigs", request, 4)).results
    for row in result.configs:
        synonyms = " < ".join(f"{each.name}={each.value} ({each.source})" for each in row.synonyms)
        found[f"left: {row.name}"] = f"{row.value}, type {row.config_type}, {synonyms}"
    listed = await side.ask("ListConfigResources", lcr.ListConfigResourcesRequest([GROUP]), 1)
    found["listed"] = str(f"{side.prefix}g" in {row.resource_name for row in listed.config_resources})
    return found


async def broker_configs(side: Side) -> Answers:
    """Every broker config that Floe shows: its type and its default."""
    known = (await side.ask("Metadata", m.MetadataRequest([], False), 12)).brokers[0].node_id
    wanted = dc.DescribeConfigsResource(BROKER, str(known), sorted(BROKER_CONFIGS))
    (result,) = (
        await side.ask("DescribeConfigs", dc.DescribeConfigsRequest([wanted], True, False), 4)
    ).results
    found = {}
    for row in result.configs:
        default = [each.value for each in row.synonyms if each.name == row.name and each.source == 5]
        found[row.name] = f"type {row.config_type}, default {default[0] if default else None}"
    return found


async def nameless(side: Side) -> Answers:
    """Resources that need a name, and subscriptions and loggers as they are."""
    found = {}
    for kind in (LOGGER, METRICS, GROUP):
        request = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(kind, "", None)])
        found[str(kind)] = code((await side.ask("DescribeConfigs", request, 4)).results[0].error_code)
    request = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(METRICS, "m", None)])
    rows = (await side.ask("DescribeConfigs", request, 4)).results[0].configs
    found |= {f"metrics: {row.name}": f"{row.value}, type {row.config_type}" for row in rows}
    for types in ([0], [3], [99], [METRICS]):
        answer = await side.ask("ListConfigResources", lcr.ListConfigResourcesRequest(types), 1)
        found[f"list {types}"] = code(answer.error_code)
    answer = await side.ask("ListConfigResources", lcr.ListConfigResourcesRequest([BROKER, LOGGER]), 1)
    found["listed brokers and loggers"] = str(sorted({row.resource_type for row in answer.config_resources}))
    return found


async def update_features(side: Side) -> Answers:
    """Tried only, so that other questions find the features as they were; then an update to what is."""
    found = {}
    for version in (1, 2):
        for label, updates in FEATURES.items():
            rows = [uf.FeatureUpdateKey(name, level, False, kind) for name, level, kind in updates]
            answer = await side.ask("UpdateFeatures", uf.UpdateFeaturesRequest(10_000, rows, True), version)
            results = [f"{row.feature} {told(row.error_code, row.error_message)}" for row in answer.results]
            found[f"{label} (version {version})"] = (
                f"{told(answer.error_code, answer.error_message)} {results}"
            )
    rows = [uf.FeatureUpdateKey(GROUP_VERSION, 1, False, UPGRADE)]
    answer = await side.ask("UpdateFeatures", uf.UpdateFeaturesRequest(10_000, rows, False), 1)
    found["made"] = code(answer.error_code)
    versions = await side.ask("ApiVersions", av.ApiVersionsRequest("floe-tests", "1"), 4)
    supported = {row.name: f"{row.min_version} to {row.max_version}" for row in versions.supported_features}
    found["supported"] = supported[GROUP_VERSION]
    older = await side.ask("ApiVersions", av.ApiVersionsRequest("floe-tests", "1"), 3)
    found["supported, to older clients"] = str(
        GROUP_VERSION in {row.name for row in older.supported_features}
    )
    found["epoch"] = str(versions.finalized_features_epoch >= 0)
    return found


async def elect_leaders(side: Side) -> Answers:
    """Where none is needed, and what is not there."""
    known = await side.topic("known", 3)
    one = [el.TopicPartitions(known, [0, 1])]
    cases = {
        "preferred": el.ElectLeadersRequest(0, one),
        "unclean": el.ElectLeadersRequest(1, one),
        "unknown type": el.ElectLeadersRequest(9, one),
        "unknown": el.ElectLeadersRequest(
            0, [el.TopicPartitions("nope", [0]), el.TopicPartitions(known, [77])]
        ),
        "twice": el.ElectLeadersRequest(0, [el.TopicPartitions(known, [0, 0])]),
        "none": el.ElectLeadersRequest(0, []),
    }
    found = {}
    for label, request in cases.items():
        answer = await side.ask("ElectLeaders", request, 2)
        rows = [
            told(row.error_code, row.error_message)
            for t in answer.replica_election_results
            for row in t.partition_result
        ]
        found[label] = f"{code(answer.error_code)} {rows}"
    everything = await side.ask("ElectLeaders", el.ElectLeadersRequest(0, None), 2)
    mine = [row for row in everything.replica_election_results if row.topic == known]
    found["all"] = f"{code(everything.error_code)} {[row.partition_result for row in mine]}"
    return found


async def reassignments(side: Side) -> Answers:
    """To where it is, to where nothing is, and cancelled."""
    known = await side.topic("known", 3)
    node = (await side.ask("Metadata", m.MetadataRequest([], False), 12)).brokers[0].node_id
    cases: dict[str, tuple[str, int, list[int] | None]] = {
        "where it is": (known, 0, [node]),
        "cancelled": (known, 0, None),
        "unknown broker": (known, 0, [77]),
        "nowhere": (known, 0, []),
        "twice there": (known, 0, [node, node]),
        "negative": (known, 0, [-1]),
        "unknown topic": ("nope", 0, [node]),
        "unknown partition": (known, 9, [node]),
        "cancelled, unknown": ("nope", 0, None),
    }
    found = {}
    for label, (topic, index, replicas) in cases.items():
        wanted = apr.ReassignableTopic(topic, [apr.ReassignablePartition(index, replicas)])
        request = apr.AlterPartitionReassignmentsRequest(10_000, True, [wanted])
        answer = await side.ask("AlterPartitionReassignments", request, 1)
        (row,) = answer.responses[0].partitions
        found[label] = f"{code(answer.error_code)} {told(row.error_code, row.error_message)}"
    for label, topics in (("all", None), ("unknown", [lpr.ListPartitionReassignmentsTopics("nope", [0])])):
        request_ = lpr.ListPartitionReassignmentsRequest(10_000, topics)
        listed = await side.ask("ListPartitionReassignments", request_, 0)
        found[f"listed, {label}"] = f"{code(listed.error_code)} {listed.topics}"
    return found


async def cluster(side: Side) -> Answers:
    """DescribeCluster, DescribeQuorum, DescribeLogDirs, DescribeClientQuotas: what tools look at."""
    found = {}
    for label, version, kind, fenced in (
        ("brokers", 2, 1, False), ("fenced too", 2, 1, True), ("controllers", 1, 2, False),
        ("unknown", 1, 3, False), ("old", 0, 1, False),
    ):  # fmt: skip
        answer = await side.ask("DescribeCluster", dcl.DescribeClusterRequest(True, kind, fenced), version)
        fenced_ones = [row.is_fenced for row in answer.brokers[:1]]
        listed = answer.controller_id in {row.broker_id for row in answer.brokers}
        allowed = answer.cluster_authorized_operations
        found[f"cluster: {label}"] = f"{code(answer.error_code)} {fenced_ones} {allowed} {listed}"
    for label, topic, partition in (
        ("log", "__cluster_metadata", 0),
        ("other", "x", 0),
        ("gap", "__cluster_metadata", 1),
    ):
        wanted = dq.TopicData(topic, [dq.PartitionData(partition)])
        quorum = await side.ask("DescribeQuorum", dq.DescribeQuorumRequest([wanted]), 2)
        (part,) = quorum.topics[0].partitions
        leads = part.leader_id in {voter.replica_id for voter in part.current_voters}
        found[f"quorum: {label}"] = (
            f"{code(quorum.error_code)} {code(part.error_code)} {leads} {bool(quorum.nodes)}"
        )
    wanted_dirs = [dld.DescribableLogDirTopic("nope", [0])]
    dirs = await side.ask("DescribeLogDirs", dld.DescribeLogDirsRequest(wanted_dirs), 4)
    found["log dirs: unknown"] = f"{code(dirs.error_code)} {[each.topics for each in dirs.results]}"
    for label, kinds in (("all", []), ("user", ["user"]), ("unknown", ["x"])):
        components = [dcq.ComponentData(kind, 2, None) for kind in kinds]
        quotas = await side.ask("DescribeClientQuotas", dcq.DescribeClientQuotasRequest(components, False), 1)
        found[f"quotas: {label}"] = f"{code(quotas.error_code)} {quotas.entries}"
    return found


async def log_dirs(side: Side) -> Answers:
    """AlterReplicaLogDirs: where a replica is, elsewhere, and what is not there."""
    topic = await side.topic("moved")
    answer = await side.ask("DescribeLogDirs", dld.DescribeLogDirsRequest(None), 4)
    here = answer.results[0].log_dir
    found = {}
    for label, path, name, partition in (
        ("where it is", here, topic, 0),
        ("elsewhere", "/nowhere", topic, 0),
        ("nowhere", "", topic, 0),
        ("unknown topic", here, "nope", 0),
        ("unknown partition", here, topic, 7),
        ("both unknown", "/nowhere", "nope", 0),
    ):
        wanted = arl.AlterReplicaLogDir(path, [arl.AlterReplicaLogDirTopic(name, [partition])])
        moved = await side.ask("AlterReplicaLogDirs", arl.AlterReplicaLogDirsRequest([wanted]), 2)
        found[label] = code(moved.results[0].partitions[0].error_code)
    nothing = await side.ask("AlterReplicaLogDirs", arl.AlterReplicaLogDirsRequest([]), 1)
    found["nothing"] = str(nothing.results)
    return found


async def long_names(side: Side) -> Answers:
    """Topic names of a megabyte."""
    found = {}
    created = await side.ask(
        "CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic(LONG, 1, 1)], 10_000), 7
    )
    found["create"] = "no answer"
    if created:
        found["create"] = told(created.topics[0].error_code, created.topics[0].error_message)
    deleted = await side.ask(
        "DeleteTopics", dt.DeleteTopicsRequest([dt.DeleteTopicState(LONG)], [], 10_000), 6
    )
    found["delete"] = code(deleted.responses[0].error_code) if deleted else "no answer"
    shown = await side.ask("Metadata", m.MetadataRequest([m.MetadataRequestTopic(name=LONG)], True), 12)
    found["metadata"] = code(shown.topics[0].error_code) if shown else "no answer"
    described = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(TOPIC, LONG, None)])
    answer = await side.ask("DescribeConfigs", described, 4)
    row = answer.results[0] if answer else None
    found["describe configs"] = told(row.error_code, row.error_message) if row else "no answer"
    found["alter configs"] = await _alter(side, TOPIC, LONG, ("retention.ms", SET, "1"))
    found["config name"] = await _alter(side, TOPIC, await side.topic("known"), (LONG, SET, "1"))
    return found


QUESTIONS: dict[str, Question] = {
    "IncrementalAlterConfigs.cluster": alter_cluster,
    "IncrementalAlterConfigs.group": alter_groups,
    "DescribeConfigs.broker": broker_configs,
    "DescribeConfigs.others": nameless,
    "UpdateFeatures": update_features,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": reassignments,
    "Cluster": cluster,
    "AlterReplicaLogDirs": log_dirs,
    "LongNames": long_names,
}
