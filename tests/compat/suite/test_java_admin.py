"""Java's admin client: topics, configs, records, the cluster. Groups: test_java_admin_groups.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import JAVA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import WAIT_S_MAX, Java, Sent, by_partition, failed, numbered

pytestmark = pytest.mark.client(JAVA)


@pytest.fixture
def admin(java: Java) -> Iterator[Any]:
    """An admin client of the broker's."""
    with java.admin() as opened:
        yield opened


@pytest.fixture
def api(java: Java) -> Any:
    """org.apache.kafka.clients.admin."""
    return java.jvm.kafka.clients.admin


def ids(java: Java, nodes: Any) -> set[int]:
    """The nodes' ids."""
    return {node.id() for node in java.jvm.java.util.ArrayList(nodes)}


def new_topic(java: Java, name: str, partitions: int) -> Any:
    """NewTopic with the broker's default replication factor."""
    count = java.jvm.java.util.Optional.of(partitions)
    return java.jvm.kafka.clients.admin.NewTopic(name, count, java.jvm.java.util.Optional.empty())


def test_topics(broker: Broker, java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Creates (tried first), grows, describes by name and id, lists and deletes topics."""
    one, two = broker.fresh("one"), broker.fresh("two")
    only_try = api.CreateTopicsOptions().validateOnly(True)
    admin.createTopics([new_topic(java, one, 2)], only_try).all().get()
    assert one not in admin.listTopics().names().get()
    made = admin.createTopics([new_topic(java, one, 2).configs({"retention.ms": "5000"})])
    saw("made", (made.numPartitions(one).get(), made.replicationFactor(one).get()))
    saw("config told", made.config(one).get().get("retention.ms").value())
    mixed = admin.createTopics([new_topic(java, one, 1), new_topic(java, two, 1)]).values()
    saw("again", failed(mixed[one].get))
    saw("beside it", failed(mixed[two].get))
    saw("shrunk", failed(lambda: _grow(admin, api, one, 1)))
    _grow(admin, api, one, 4)
    _until(
        lambda: broker.led(AdminClient({"bootstrap.servers": broker.bootstrap}), one, 4), "four partitions"
    )
    described = admin.describeTopics([one]).allTopicNames().get()[one]
    assert [part.partition() for part in described.partitions()] == [0, 1, 2, 3]
    assert all(part.leader().id() in ids(java, part.isr()) for part in described.partitions())
    saw("internal", described.isInternal())
    collection = java.jvm.kafka.common.TopicCollection
    by_id = admin.describeTopics(collection.ofTopicIds([described.topicId()])).allTopicIds().get()
    assert [each.name() for each in by_id.values()] == [one]
    listed = {each.name(): each for each in java.jvm.java.util.ArrayList(admin.listTopics().listings().get())}
    assert listed[one].topicId() == described.topicId()
    saw("no such id", failed(lambda: _delete_by_id(java, admin, java.jvm.kafka.common.Uuid(7, 7))))
    _delete_by_id(java, admin, described.topicId())
    admin.deleteTopics([two]).all().get()
    saw("deleted again", failed(lambda: admin.deleteTopics([two]).all().get()))
    _until(lambda: not {one, two} & set(admin.listTopics().names().get()), "both are gone")


def _until(reached: Callable[[], bool], what: str) -> None:
    """A broker may know of a change a moment after the answer."""
    end = time.monotonic() + WAIT_S_MAX
    while not reached():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def _grow(admin: Any, api: Any, topic: str, total: int) -> None:
    admin.createPartitions({topic: api.NewPartitions.increaseTo(total)}).all().get()


def _delete_by_id(java: Java, admin: Any, topic_id: Any) -> None:
    ids = java.jvm.kafka.common.TopicCollection.ofTopicIds([topic_id])
    admin.deleteTopics(ids).all().get()


def resource(java: Java, kind: str, name: str) -> Any:
    """ConfigResource."""
    config = java.jvm.kafka.common.config
    return config.ConfigResource(getattr(java.jvm.kafka.common.config.ConfigResource.Type, kind), name)


def test_configs_of_topics(broker: Broker, java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Sets, appends, subtracts and deletes configs; values, sources, synonyms and types are told."""
    of = resource(java, "TOPIC", broker.topic(cleanup_policy="compact"))

    def alter(name: str, value: str | None, operation: str) -> None:
        kind = getattr(api.AlterConfigOp.OpType, operation)
        changes = [api.AlterConfigOp(api.ConfigEntry(name, value), kind)]
        admin.incrementalAlterConfigs({of: changes}).all().get()

    def entry(name: str) -> Any:
        options = api.DescribeConfigsOptions().includeSynonyms(True).includeDocumentation(True)
        return admin.describeConfigs([of], options).all().get()[of].get(name)

    alter("cleanup.policy", "delete", "APPEND")
    saw("appended", entry("cleanup.policy").value())
    alter("cleanup.policy", "compact", "SUBTRACT")
    saw("subtracted", entry("cleanup.policy").value())
    alter("retention.ms", "5000", "SET")
    found = entry("retention.ms")
    saw("set", (found.value(), found.source().name(), found.type().name(), found.isDefault()))
    saw("synonyms", [(each.name(), each.value(), each.source().name()) for each in found.synonyms()])
    assert found.documentation()
    alter("retention.ms", None, "DELETE")
    saw("deleted", (entry("retention.ms").value(), entry("retention.ms").source().name()))
    saw("bad value", failed(lambda: alter("retention.ms", "soon", "SET")))
    saw("bad name", failed(lambda: alter("no.such", "1", "SET")))
    saw("append to a number", failed(lambda: alter("retention.ms", "1", "APPEND")))
    absent = resource(java, "TOPIC", broker.fresh("absent"))
    saw("of no topic", failed(lambda: admin.describeConfigs([absent]).all().get()))


def test_configs_of_the_cluster(java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Sets a default for all brokers, which every broker then shows; lists resources with configs."""
    every = resource(java, "BROKER", "")
    operations = api.AlterConfigOp.OpType

    def alter(value: str | None, operation: Any) -> None:
        change = api.AlterConfigOp(api.ConfigEntry("log.message.timestamp.after.max.ms", value), operation)
        admin.incrementalAlterConfigs({every: [change]}).all().get()

    def shown() -> set[str]:
        nodes = sorted(ids(java, admin.describeCluster().nodes().get()))
        found = admin.describeConfigs([resource(java, "BROKER", str(node)) for node in nodes]).all().get()
        return {each.get("log.message.timestamp.after.max.ms").value() for each in found.values()}

    assert shown() == {"3600000"}
    alter("7200000", operations.SET)
    try:
        _until(lambda: shown() == {"7200000"}, "set")
        saw("bad value", failed(lambda: alter("soon", operations.SET)))
    finally:
        alter(None, operations.DELETE)
    _until(lambda: shown() == {"3600000"}, "deleted")


def test_offsets(broker: Broker, java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Lists offsets: earliest, latest, by time, newest, of tiers and local ones."""
    topic, spec = broker.topic(partitions=2), api.OffsetSpec
    times = [Sent(b"v", timestamp=BASE_TIME + (n * 7) % 10) for n in range(10)]
    java.produce(topic, times, linger_ms=100)
    for name, wanted in {
        "earliest": spec.earliest(),
        "latest": spec.latest(),
        "newest": spec.maxTimestamp(),
        "by time": spec.forTimestamp(BASE_TIME + 5),
        "later": spec.forTimestamp(BASE_TIME + 50),
        "earliest local": spec.earliestLocal(),
        "latest tiered": spec.latestTiered(),
        "earliest pending upload": spec.earliestPendingUpload(),
    }.items():
        parts = [java.part(topic), java.part(topic, 1)]
        answers = by_partition(admin.listOffsets(dict.fromkeys(parts, wanted)).all().get())
        saw(name, [(each.offset(), max(-1, each.timestamp() - BASE_TIME)) for each in answers.values()])


def before(java: Java, offset: int) -> Any:
    """RecordsToDelete.beforeOffset(offset): py4j does not find it beside the getter of the same name."""
    found = java.jvm.java.lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete").getMethods()
    (made,) = (each for each in found if each.getName() == "beforeOffset" and each.getParameterCount() == 1)
    return made.invoke(None, java.jvm.array("java.lang.Object", [offset]))


def test_delete_records(broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Deletes records up to an offset and up to the end; readers begin after them."""
    topic = broker.topic(partitions=2)
    java.produce(topic, numbered(20, 2))
    wanted = {java.part(topic): before(java, 4), java.part(topic, 1): before(java, -1)}
    low = admin.deleteRecords(wanted).lowWatermarks()
    saw("low watermarks", {key: each.get().lowWatermark() for key, each in by_partition(low).items()})
    with java.consumer() as consumer:
        consumer.assign([java.part(topic), java.part(topic, 1)])
        assert [(each.partition, each.offset) for each in java.read(consumer, 6)] == [
            (0, offset) for offset in range(4, 10)
        ]
    past = {java.part(topic): before(java, 99)}
    saw("past the end", failed(lambda: admin.deleteRecords(past).all().get()))


def test_the_cluster(java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Describes the cluster, its features and its metadata quorum."""
    options = api.DescribeClusterOptions().includeAuthorizedOperations(True)
    cluster = admin.describeCluster(options)
    nodes = ids(java, cluster.nodes().get())
    assert cluster.controller().get().id() in nodes
    assert cluster.clusterId().get()
    saw("operations", sorted(each.name() for each in java.jvm.java.util.ArrayList(_operations(cluster))))
    features = admin.describeFeatures().featureMetadata().get()
    group = features.finalizedFeatures()["group.version"]
    saw("group.version", (group.minVersionLevel(), group.maxVersionLevel()))
    assert "group.version" in features.supportedFeatures()
    update = {"group.version": api.FeatureUpdate(99, api.FeatureUpdate.UpgradeType.UPGRADE)}
    saw(
        "unknown level", failed(lambda: admin.updateFeatures(update, api.UpdateFeaturesOptions()).all().get())
    )
    quorum = admin.describeMetadataQuorum().quorumInfo().get()
    assert quorum.leaderId() in {voter.replicaId() for voter in quorum.voters()}
    assert quorum.highWatermark() > 0


def _operations(cluster: Any) -> Any:
    return cluster.authorizedOperations().get()


def test_replicas(broker: Broker, java: Java, admin: Any, api: Any, saw: Saw) -> None:
    """Folders with each partition's size, reassignments and elections: truthful with one replica each."""
    topic = broker.topic(partitions=2)
    java.produce(topic, numbered(20, 2))
    nodes = sorted(ids(java, admin.describeCluster().nodes().get()))
    sizes: dict[int, list[bool]] = {}
    for folders in admin.describeLogDirs(nodes).allDescriptions().get().values():
        for folder in folders.values():
            for part, replica in folder.replicaInfos().items():
                if part.topic() == topic:
                    sizes.setdefault(part.partition(), []).append(replica.size() > 20)
    assert sizes == {0: [True], 1: [True]}
    assert len(admin.listPartitionReassignments().reassignments().get()) == 0
    part, optional = java.part(topic), java.jvm.java.util.Optional
    leader = admin.describeTopics([topic]).allTopicNames().get()[topic].partitions()[0].leader().id()

    def reassign(*replicas: int) -> None:
        target = optional.of(api.NewPartitionReassignment(list(replicas)))
        admin.alterPartitionReassignments({part: target}).all().get()

    saw("to where it is", failed(lambda: reassign(leader)))
    saw("to an unknown broker", failed(lambda: reassign(4711)).partition(":")[0])
    saw("to none", failed(lambda: admin.alterPartitionReassignments({part: optional.empty()}).all().get()))
    for kind in ("PREFERRED", "UNCLEAN"):
        election = getattr(java.jvm.kafka.common.ElectionType, kind)
        found = admin.electLeaders(election, {part}).partitions().get()[part]
        saw(f"elected {kind}", found.get().getClass().getSimpleName() if found.isPresent() else None)


def test_producers(broker: Broker, java: Java, admin: Any, saw: Saw) -> None:
    """Describes the idempotent producers of a partition."""
    topic = broker.topic()
    java.produce(topic, numbered(10))
    (found,) = admin.describeProducers([java.part(topic)]).all().get()[java.part(topic)].activeProducers()
    assert found.producerId() >= 0
    assert (found.producerEpoch(), found.lastSequence()) == (0, 9)
    saw(
        "last timestamp", "the record's" if found.lastTimestamp() == BASE_TIME + 9 else "when it was appended"
    )
