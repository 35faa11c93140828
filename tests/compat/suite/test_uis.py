"""The calls that Kafka UIs make, by Java's admin client, in their order.

None of the UIs is published as a library, so their calls are replayed. Read from their sources: kafbat-ui of
July 2026 (ReactiveAdminClient, StatisticsService, ScrapedClusterState: any failure shows the cluster as
offline), AKHQ of February 2025 (AbstractKafkaWrapper), Redpanda
Console of August 2026 (pkg/console over franz-go; asked here through Java's client).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.compat.suite.broker import BASE_TIME, WAIT_S_MAX, Broker
from tests.compat.suite.clients import UIS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import failed

pytestmark = pytest.mark.client(UIS)


@dataclass
class Shown:
    """What a UI works on: an admin client, a topic with three records and a group that has read two."""

    jvm: Jvm
    admin: Any
    topic: str
    group: str

    @property
    def api(self) -> Any:
        """org.apache.kafka.clients.admin."""
        return self.jvm.kafka.clients.admin

    @property
    def partitions(self) -> list[Any]:
        """The topic's two partitions."""
        return [self.jvm.kafka.common.TopicPartition(self.topic, index) for index in range(2)]

    def every(self, collection: Any) -> list[Any]:
        """A java.util.Collection of any kind."""
        return list(self.jvm.java.util.ArrayList(collection))

    def broker_ids(self) -> list[int]:
        """All brokers."""
        return sorted(node.id() for node in self.every(self.admin.describeCluster().nodes().get()))


@pytest.fixture
def shown(broker: Broker, jvm: Jvm) -> Iterator[Shown]:
    """A cluster with something in it."""
    topic, group = broker.topic(partitions=2, retention_ms="86400000"), broker.fresh("group")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for index in range(3):
        producer.produce(topic, b"x", partition=index % 2, timestamp=BASE_TIME + index)
    assert producer.flush(WAIT_S_MAX) == 0
    settings = jvm.properties({"bootstrap.servers": broker.bootstrap})
    admin = jvm.kafka.clients.admin.Admin.create(settings)
    made = Shown(jvm, admin, topic, group)
    position = jvm.kafka.clients.consumer.OffsetAndMetadata(1)
    admin.alterConsumerGroupOffsets(group, dict.fromkeys(made.partitions, position)).all().get()
    try:
        yield made
    finally:
        admin.close()


def describe_cluster(ui: Shown) -> str:
    """Nodes, the controller among them, and an id."""
    found = ui.admin.describeCluster()
    listed = {node.id() for node in ui.every(found.nodes().get())}
    return f"controller listed {found.controller().get().id() in listed}, id {bool(found.clusterId().get())}"


def describe_cluster_authorized(ui: Shown) -> str:
    """What the asker may do."""
    options = ui.api.DescribeClusterOptions().includeAuthorizedOperations(True)
    allowed = ui.admin.describeCluster(options).authorizedOperations().get()
    return str(sorted(each.name() for each in ui.every(allowed)))


def broker_configs(ui: Shown) -> str:
    """The one config that kafbat-ui looks for."""
    resource = _resource(ui, "BROKER", str(ui.broker_ids()[0]))
    (found,) = ui.admin.describeConfigs([resource]).all().get().values()
    return str(found.get("delete.topic.enable").value())


def topic_configs(ui: Shown) -> str:
    """Configs that were set, with synonyms and documentation."""
    options = ui.api.DescribeConfigsOptions().includeSynonyms(True).includeDocumentation(True)
    (found,) = ui.admin.describeConfigs([_resource(ui, "TOPIC", ui.topic)], options).all().get().values()
    entry = found.get("retention.ms")
    documented = all(
        each.documentation() for each in ui.every(found.entries()) if not each.name().startswith("floe.")
    )
    return f"{entry.value()} {entry.source().name()} {len(entry.synonyms()) > 0} {documented}"


def describe_features(ui: Shown) -> str:
    """The finalized feature that clients act on."""
    found = ui.admin.describeFeatures().featureMetadata().get().finalizedFeatures()
    return str(found.get("group.version"))


def version_from_features(ui: Shown) -> str:
    """What kafbat-ui takes the version from; without it, it shows "Unknown"."""
    found = ui.admin.describeFeatures().featureMetadata().get().finalizedFeatures()
    return "there" if "metadata.version" in found else "not there"


def describe_acls(ui: Shown) -> str:
    """Without an authorizer there is nothing to tell."""
    everything = ui.jvm.kafka.common.acl.AclBindingFilter.ANY
    return str(ui.admin.describeAcls(everything).values().get())


def create_acls(ui: Shown) -> str:
    """An ACL for nobody in particular."""
    acl = ui.jvm.kafka.common.acl
    pattern = ui.jvm.kafka.common.resource.ResourcePattern(
        ui.jvm.kafka.common.resource.ResourceType.TOPIC,
        ui.topic,
        ui.jvm.kafka.common.resource.PatternType.LITERAL,
    )
    entry = acl.AccessControlEntry("User:a", "*", acl.AclOperation.READ, acl.AclPermissionType.ALLOW)
    return str(ui.admin.createAcls([acl.AclBinding(pattern, entry)]).all().get())


def delete_acls(ui: Shown) -> str:
    """All of them."""
    return str(ui.admin.deleteAcls([ui.jvm.kafka.common.acl.AclBindingFilter.ANY]).all().get())


def describe_log_dirs(ui: Shown) -> str:
    """Every partition's size, once in the cluster."""
    sizes: dict[str, list[int]] = {}
    for folders in ui.admin.describeLogDirs(ui.broker_ids()).allDescriptions().get().values():
        for folder in folders.values():
            assert folder.error() is None
            for partition, replica in folder.replicaInfos().items():
                if partition.topic() == ui.topic:
                    sizes.setdefault(partition.toString(), []).append(replica.size())
    return str({name: [size > 0 for size in found] for name, found in sorted(sizes.items())})


def list_topics(ui: Shown) -> str:
    """With internal ones."""
    options = ui.api.ListTopicsOptions().listInternal(True)
    return str(ui.topic in ui.admin.listTopics(options).names().get())


def describe_topics(ui: Shown) -> str:
    """Leaders and replicas of each partition."""
    found = ui.admin.describeTopics([ui.topic]).allTopicNames().get()[ui.topic]
    ids = set(ui.broker_ids())
    rows = [
        (part.partition(), part.leader().id() in ids, len(part.replicas()), len(part.isr()))
        for part in found.partitions()
    ]
    return f"{found.isInternal()} {rows}"


def list_offsets(ui: Shown) -> str:
    """Earliest, latest, newest and by time."""
    spec = ui.api.OffsetSpec
    found = {}
    for name, wanted in {
        "earliest": spec.earliest(),
        "latest": spec.latest(),
        "newest": spec.maxTimestamp(),
        "by time": spec.forTimestamp(BASE_TIME + 1),
    }.items():
        answers = ui.admin.listOffsets(dict.fromkeys(ui.partitions, wanted)).all().get()
        found[name] = sorted(
            (partition.partition(), answer.offset()) for partition, answer in answers.items()
        )
    return str(found)


def list_groups(ui: Shown) -> str:
    """The group's row, as older and newer clients ask for it."""
    old = {each.groupId(): each for each in ui.every(ui.admin.listConsumerGroups().all().get())}
    new = {each.groupId(): each for each in ui.every(ui.admin.listGroups().all().get())}
    kind = new[ui.group]
    return f"{ui.group in old} {kind.type().get().name()} {kind.protocol()} {kind.groupState().get().name()}"


def describe_groups(ui: Shown) -> str:
    """State, members, coordinator."""
    found = ui.admin.describeConsumerGroups([ui.group]).all().get()[ui.group]
    known = found.coordinator().id() in ui.broker_ids()
    return f"{found.groupState().name()} {found.members().size()} {known} {found.type().name()}"


def list_group_offsets(ui: Shown) -> str:
    """Positions of several groups in one call."""
    spec = ui.api.ListConsumerGroupOffsetsSpec()
    found = ui.admin.listConsumerGroupOffsets({ui.group: spec, f"{ui.group}-none": spec}).all().get()
    rows = {partition.partition(): each.offset() for partition, each in found[ui.group].items()}
    return f"{sorted(rows.items())} {len(found[f'{ui.group}-none'])}"


def describe_quorum(ui: Shown) -> str:
    """Who leads the metadata."""
    found = ui.admin.describeMetadataQuorum().quorumInfo().get()
    return f"{found.leaderId() in [voter.replicaId() for voter in found.voters()]}"


def client_quotas(ui: Shown) -> str:
    """All quotas."""
    everything = ui.jvm.kafka.common.quota.ClientQuotaFilter.all()
    return str(len(ui.admin.describeClientQuotas(everything).entities().get()))


def scram_users(ui: Shown) -> str:
    """All users, and one that is not there."""
    everybody = ui.admin.describeUserScramCredentials().all().get()
    named = ui.admin.describeUserScramCredentials(["nobody"])
    return f"{len(everybody)} {failed(lambda: named.description('nobody').get())}"


def reassignments(ui: Shown) -> str:
    """Under way."""
    return str(len(ui.admin.listPartitionReassignments().reassignments().get()))


def elect_leaders(ui: Shown) -> str:
    """Preferred ones, of our topic."""
    preferred = ui.jvm.kafka.common.ElectionType.PREFERRED
    partitions = ui.jvm.java.util.HashSet(ui.partitions)
    found = ui.admin.electLeaders(preferred, partitions).partitions().get()
    return str(
        {
            partition.partition(): error.get().getClass().getSimpleName() if error.isPresent() else None
            for partition, error in sorted(found.items(), key=lambda item: item[0].partition())
        }
    )


def producers(ui: Shown) -> str:
    """Of each partition."""
    found = ui.admin.describeProducers(ui.partitions).all().get()
    return str([found[partition].activeProducers().size() for partition in ui.partitions])


def alter_configs(ui: Shown) -> str:
    """One value set by an incremental change, and seen."""
    change = ui.api.AlterConfigOp(
        ui.api.ConfigEntry("max.message.bytes", "5000"), ui.api.AlterConfigOp.OpType.SET
    )
    resource = _resource(ui, "TOPIC", ui.topic)
    ui.admin.incrementalAlterConfigs({resource: [change]}).all().get()
    (found,) = ui.admin.describeConfigs([resource]).all().get().values()
    return str(found.get("max.message.bytes").value())


Call = Callable[[Shown], str]
SHARED: tuple[Call, ...] = (describe_topics, list_offsets, list_groups, describe_groups, list_group_offsets)
KAFBAT: tuple[Call, ...] = (
    describe_cluster,
    broker_configs,
    describe_features,
    version_from_features,
    describe_acls,
    describe_cluster_authorized,
    describe_log_dirs,
    list_topics,
    topic_configs,
    *SHARED,
    describe_quorum,
    client_quotas,
    producers,
    create_acls,
    delete_acls,
    alter_configs,
)
AKHQ: tuple[Call, ...] = (
    describe_cluster,
    list_topics,
    *SHARED,
    describe_log_dirs,
    topic_configs,
    broker_configs,
    describe_acls,
)
CONSOLE: tuple[Call, ...] = (
    describe_cluster,
    describe_log_dirs,
    broker_configs,
    topic_configs,
    *SHARED,
    describe_acls,
    scram_users,
    client_quotas,
    reassignments,
    elect_leaders,
    alter_configs,
)


def _resource(ui: Shown, kind: str, name: str) -> Any:
    types = ui.jvm.kafka.common.config.ConfigResource.Type
    return ui.jvm.kafka.common.config.ConfigResource(getattr(types, kind), name)


@pytest.mark.parametrize("calls", [KAFBAT, AKHQ, CONSOLE], ids=["kafbat-ui", "AKHQ", "Redpanda Console"])
def test_a_ui_finds_the_cluster_online(calls: tuple[Call, ...], shown: Shown, saw: Saw) -> None:
    """Every call of the UI's start page, brokers, topics, groups and ACLs is answered as by Apache Kafka."""
    for call in calls:
        saw(call.__name__, failed(lambda call=call: call(shown)))
