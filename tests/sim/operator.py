"""Somebody who looks at everything and changes what can be changed while it runs: configs, features, groups.

Every API that nobody else of the simulation uses is asked here. What is asked has one judge of its own: no
answer may say UNKNOWN_SERVER_ERROR, whatever is broken meanwhile. What the operator's own groups have is
known to nobody else, so what was deleted must be gone for whoever asks next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from agent.net.wire.generated import alter_partition_reassignments as reassign
from agent.net.wire.generated import alter_replica_log_dirs as move
from agent.net.wire.generated import consumer_group_describe as consumers
from agent.net.wire.generated import create_acls, delete_acls, describe_acls
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import describe_client_quotas as quotas
from agent.net.wire.generated import describe_cluster as cluster
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_groups as groups
from agent.net.wire.generated import describe_log_dirs as dirs
from agent.net.wire.generated import describe_producers as producers
from agent.net.wire.generated import describe_quorum as quorum
from agent.net.wire.generated import describe_topic_partitions as topics
from agent.net.wire.generated import describe_transactions as transactions
from agent.net.wire.generated import describe_user_scram_credentials as scram
from agent.net.wire.generated import elect_leaders as elect
from agent.net.wire.generated import incremental_alter_configs as ac
from agent.net.wire.generated import list_config_resources as resources
from agent.net.wire.generated import list_groups as listing
from agent.net.wire.generated import list_partition_reassignments as reassigned
from agent.net.wire.generated import list_transactions as open_transactions
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import offset_for_leader_epoch as epochs
from agent.net.wire.generated import update_features as uf
from agent.net.wire.generated import write_txn_markers as markers
from coordination.kafka_codes import Code
from tests.checker.findings import Finding
from tests.equipment.transactional_client import Connection
from tests.sim.clients import RETRY_S, Surroundings

TOPIC, MEMBERS = "sim", "members"
ANSWER_S_MAX = 3.0
PAUSE_S = 0.25
CHANGED_OF = 0.4
TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE, SET = 2, 4, 32, 0
UPGRADE, DOWNGRADE = 1, 2
ERRORS = (OSError, EOFError, TimeoutError)
NOBODY = 1 << 40
"""A producer id that no producer has."""
QUESTIONS: Mapping[str, tuple[int, Callable[[], Any]]] = {
    "DescribeGroups": (5, lambda: groups.DescribeGroupsRequest([MEMBERS, "solo"])),
    "ListGroups": (5, listing.ListGroupsRequest),
    "OffsetForLeaderEpoch": (4, lambda: epochs.OffsetForLeaderEpochRequest(-1, [
        epochs.OffsetForLeaderTopic(TOPIC, [epochs.OffsetForLeaderPartition(0, -1, 0)])
    ])),
    "WriteTxnMarkers": (1, lambda: markers.WriteTxnMarkersRequest([
        markers.WritableTxnMarker(NOBODY, 0, False, [markers.WritableTxnMarkerTopic(TOPIC, [0])])
    ])),
    "DescribeAcls": (2, lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)),
    "CreateAcls": (2, lambda: create_acls.CreateAclsRequest([
        create_acls.AclCreation(2, TOPIC, 3, "User:x", "*", 3, 3)
    ])),
    "DeleteAcls": (2, lambda: delete_acls.DeleteAclsRequest([
        delete_acls.DeleteAclsFilter(2, "nobody", 3, None, None, 1, 1)
    ])),
    "DescribeConfigs": (4, lambda: dc.DescribeConfigsRequest([
        dc.DescribeConfigsResource(TOPIC_RESOURCE, TOPIC, None)
    ])),
    "AlterReplicaLogDirs": (2, lambda: move.AlterReplicaLogDirsRequest([
        move.AlterReplicaLogDir("/x", [move.AlterReplicaLogDirTopic(TOPIC, [0])])
    ])),
    "DescribeLogDirs": (4, lambda: dirs.DescribeLogDirsRequest(None)),
    "ElectLeaders": (2, lambda: elect.ElectLeadersRequest(0, [elect.TopicPartitions(TOPIC, [0])], 1000)),
    "AlterPartitionReassignments": (0, lambda: reassign.AlterPartitionReassignmentsRequest(
        1000, topics=[reassign.ReassignableTopic(TOPIC, [reassign.ReassignablePartition(0, [0])])]
    )),
    "ListPartitionReassignments": (0, lambda: reassigned.ListPartitionReassignmentsRequest(1000, None)),
    "DescribeClientQuotas": (1, quotas.DescribeClientQuotasRequest),
    "DescribeUserScramCredentials": (0, lambda: scram.DescribeUserScramCredentialsRequest(None)),
    "DescribeQuorum": (1, lambda: quorum.DescribeQuorumRequest([
        quorum.TopicData("__cluster_metadata", [quorum.PartitionData(0)])
    ])),
    "DescribeCluster": (1, cluster.DescribeClusterRequest),
    "DescribeProducers": (0, lambda: producers.DescribeProducersRequest([
        producers.TopicRequest(TOPIC, [0])
    ])),
    "DescribeTransactions": (0, lambda: transactions.DescribeTransactionsRequest(["t0", "nobody"])),
    "ListTransactions": (1, open_transactions.ListTransactionsRequest),
    "ConsumerGroupDescribe": (1, lambda: consumers.ConsumerGroupDescribeRequest([MEMBERS, "modern"])),
    "ListConfigResources": (1, resources.ListConfigResourcesRequest),
    "DescribeTopicPartitions": (0, lambda: topics.DescribeTopicPartitionsRequest([
        topics.TopicRequest(TOPIC)
    ], 100)),
}  # fmt: skip
"""By API the version and the request."""
CONFIGS = (
    (TOPIC_RESOURCE, TOPIC, "max.message.bytes", ("1048588", "2000000")),
    (TOPIC_RESOURCE, TOPIC, "retention.ms", ("3600000", "7200000")),
    (BROKER_RESOURCE, "", "log.retention.check.interval.ms", ("500", "700")),
    (BROKER_RESOURCE, "", "offsets.retention.minutes", ("10080", "20160")),
    (GROUP_RESOURCE, "modern", "consumer.heartbeat.interval.ms", ("5000", "6000")),
)
"""Kind of resource, its name, and a config with values that change nothing for those who are judged."""
FEATURES = (("transaction.version", 1, 2), ("group.version", 0, 1))
"""Names with a level that does less, and the one that does all."""


class Operator:
    """One client."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._connection: Connection | None = None

    async def live(self) -> None:
        """Until told to stop."""
        random = self._around.loop.random
        changes = (self._configured, self._configured, self._featured, self._positions)
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            try:
                if random.random() < CHANGED_OF:
                    await random.choice(changes)()
                else:
                    api = random.choice(list(QUESTIONS))
                    version, request = QUESTIONS[api]
                    await self._asked(api, request(), version)
            except ERRORS:
                self._connection = None  # stays open: what is under way on it still arrives
                await asyncio.sleep(RETRY_S)
        await self._all_on()

    async def _asked(self, api: str, request: Any, version: int) -> Any:
        async with asyncio.timeout(ANSWER_S_MAX):
            if self._connection is None:
                self._connection = await Connection.open(
                    self._around.loop.random.choice(self._around.bootstrap)
                )
            answer = await self._connection.call(api, request, version)
        codes = list(_codes(answer))
        self._around.counts[f"operator {api}"] += 1
        if Code.UNKNOWN_SERVER_ERROR in codes:
            self._around.findings.append(Finding("unexplained", api, f"{request}: {answer}"[:2000], ()))
        return answer

    async def _configured(self) -> None:
        kind, name, config, values = self._around.loop.random.choice(CONFIGS)
        change = ac.AlterableConfig(config, SET, self._around.loop.random.choice(values))
        resource = ac.AlterConfigsResource(kind, name, [change])
        await self._asked("IncrementalAlterConfigs", ac.IncrementalAlterConfigsRequest([resource]), 1)

    async def _featured(self) -> None:
        """Which protocols clients may speak: down, and up again. They are fenced or refused, never wrong."""
        random = self._around.loop.random
        name, low, high = random.choice(FEATURES)
        level, kind = random.choice(((high, UPGRADE), (high, UPGRADE), (low, DOWNGRADE)))
        update = uf.FeatureUpdateKey(name, level, upgrade_type=kind)
        await self._asked("UpdateFeatures", uf.UpdateFeaturesRequest(1000, [update]), 1)

    async def _all_on(self) -> None:
        """Groups of KIP-848 must come to their end when nothing disturbs them any more."""
        updates = [uf.FeatureUpdateKey(name, high, upgrade_type=UPGRADE) for name, _, high in FEATURES]
        while True:
            try:
                if not any(
                    _codes(await self._asked("UpdateFeatures", uf.UpdateFeaturesRequest(1000, updates), 1))
                ):
                    return
            except ERRORS:
                self._connection = None
            await asyncio.sleep(RETRY_S)

    async def _positions(self) -> None:
        """A group of one's own: positions are there once committed, and gone when they are deleted."""
        random, key = self._around.loop.random, self._around.keys.every[0]
        self._around.names += 1
        group, position = f"operator-{self._around.names}", self._around.names
        rows = [
            oc.OffsetCommitRequestTopic(key.topic, partitions=[oc.OffsetCommitRequestPartition(0, position)])
        ]
        done = await self._asked("OffsetCommit", oc.OffsetCommitRequest(group, topics=rows), 8)
        if any(_codes(done)):
            return
        if random.random() < 0.5:
            wanted = [od.OffsetDeleteRequestTopic(key.topic, [od.OffsetDeleteRequestPartition(0)])]
            done = await self._asked("OffsetDelete", od.OffsetDeleteRequest(group, wanted), 0)
        else:
            done = await self._asked("DeleteGroups", dg.DeleteGroupsRequest([group]), 2)
        allowed = ([-1], [position]) if any(_codes(done)) else ([-1],)  # what an error says may come true
        asked = of.OffsetFetchRequest(group, [of.OffsetFetchRequestTopic(key.topic, [0])])
        told = await self._asked("OffsetFetch", asked, 5)
        found = [row.committed_offset for topic in told.topics for row in topic.partitions]
        if not any(_codes(told)) and found not in allowed:
            self._around.findings.append(Finding("position-deleted", group, f"{found}, not {allowed}", ()))


def _codes(answer: Any) -> Iterator[int]:
    """Every error code of an answer."""
    if is_dataclass(answer):
        for each in fields(answer):
            value = getattr(answer, each.name)
            if each.name == "error_code":
                yield int(value)
            elif isinstance(value, list) or is_dataclass(value):
                yield from _codes(value)
    elif isinstance(answer, list):
        for one in answer:
            yield from _codes(one)
