"""A request of each API that can be refused, with what it asks for and where its answer has its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from agent.net.wire.generated import add_offsets_to_txn as ao
from agent.net.wire.generated import add_partitions_to_txn as ap
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import alter_partition_reassignments as apr
from agent.net.wire.generated import alter_replica_log_dirs as arl
from agent.net.wire.generated import alter_user_scram_credentials as aus
from agent.net.wire.generated import consumer_group_describe as cgd
from agent.net.wire.generated import consumer_group_heartbeat as cgh
from agent.net.wire.generated import create_acls, delete_acls, describe_acls
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import delete_records as dr
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import describe_log_dirs as dld
from agent.net.wire.generated import describe_producers as dp
from agent.net.wire.generated import describe_quorum as dq
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import describe_transactions as dtx
from agent.net.wire.generated import describe_user_scram_credentials as dus
from agent.net.wire.generated import elect_leaders as el
from agent.net.wire.generated import end_txn as et
from agent.net.wire.generated import fetch as fe
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import incremental_alter_configs as iac
from agent.net.wire.generated import init_producer_id as ip
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import leave_group as lv
from agent.net.wire.generated import list_config_resources as lcr
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import list_partition_reassignments as lpr
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import offset_for_leader_epoch as ole
from agent.net.wire.generated import produce as pr
from agent.net.wire.generated import sync_group as sg
from agent.net.wire.generated import txn_offset_commit as toc
from agent.net.wire.generated import update_features as uf
from agent.net.wire.generated import write_txn_markers as wtm
from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME, Operation, ResourceType
from tests.unit.agent.kafka.guards_rig import (
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    GROUP,
    ID,
    READ,
    TOPIC,
    WRITE,
)
from tests.unit.agent.rig import batch

Allowed = tuple[Operation, ResourceType, str]
NO_TOPIC, NO_GROUP = Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER, NO_ID = Code.CLUSTER_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSALS = {NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_ID}
OF_CLUSTER = CLUSTER_NAME


@dataclass(frozen=True)
class Case:
    """A request about `seen`, group `g` and transactional id `x`.

    `codes`: where an answer has its errors. `needs`: what is asked for, in this order, each with its error.
    """

    api: str
    version: int
    request: Callable[[], Any]
    codes: Callable[[Any], Iterable[int]]
    needs: tuple[tuple[Allowed, Code], ...]


def cluster(operation: Operation) -> tuple[tuple[Allowed, Code], ...]:
    return (((operation, CLUSTER, OF_CLUSTER), NO_CLUSTER),)


def on_topic(operation: Operation) -> tuple[tuple[Allowed, Code], ...]:
    return (((operation, TOPIC, "seen"), NO_TOPIC),)


def on_group(operation: Operation) -> tuple[tuple[Allowed, Code], ...]:
    return (((operation, GROUP, "g"), NO_GROUP),)


def on_id(operation: Operation) -> tuple[tuple[Allowed, Code], ...]:
    return (((operation, ID, "x"), NO_ID),)


def top(answer: Any) -> list[int]:
    return [answer.error_code]


def partitions(answer: Any) -> list[int]:
    return [part.error_code for row in answer.topics for part in row.partitions]


def rows(name: str) -> Callable[[Any], list[int]]:
    return lambda answer: [row.error_code for row in getattr(answer, name)]


def produce(transactional_id: str | None = None) -> pr.ProduceRequest:
    of_producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    sent = batch(b"v") if transactional_id is None else batch(b"v", **of_producer)
    data = pr.TopicProduceData("seen", partition_data=[pr.PartitionProduceData(0, sent)])
    return pr.ProduceRequest(transactional_id, -1, 5000, [data])


def fetch() -> fe.FetchRequest:
    part = fe.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return fe.FetchRequest(topics=[fe.FetchTopic("seen", partitions=[part])], max_bytes=1 << 20)


CASES = (
    Case(
        "Produce",
        9,
        produce,
        lambda a: [p.error_code for t in a.responses for p in t.partition_responses],
        on_topic(WRITE),
    ),
    Case(
        "Produce",
        9,
        lambda: produce("x"),
        lambda a: [p.error_code for t in a.responses for p in t.partition_responses],
        on_id(WRITE) + on_topic(WRITE),
    ),
    Case(
        "Fetch",
        12,
        fetch,
        lambda a: [p.error_code for t in a.responses for p in t.partitions],
        on_topic(READ),
    ),
    Case(
        "ListOffsets",
        9,
        lambda: lo.ListOffsetsRequest(
            -1, 0, [lo.ListOffsetsTopic("seen", [lo.ListOffsetsPartition(0, -1, -1)])]
        ),
        partitions,
        on_topic(DESCRIBE),
    ),
    Case(
        "Metadata",
        12,
        lambda: md.MetadataRequest([md.MetadataRequestTopic(name="seen")], False),
        rows("topics"),
        on_topic(DESCRIBE),
    ),
    Case(
        "OffsetCommit",
        8,
        lambda: oc.OffsetCommitRequest(
            "g",
            -1,
            "",
            topics=[oc.OffsetCommitRequestTopic("seen", partitions=[oc.OffsetCommitRequestPartition(0, 5)])],
        ),
        partitions,
        on_group(READ) + on_topic(READ),
    ),
    Case(
        "OffsetFetch",
        8,
        lambda: of.OffsetFetchRequest(
            groups=[
                of.OffsetFetchRequestGroup(
                    "g", topics=[of.OffsetFetchRequestTopics("seen", partition_indexes=[0])]
                )
            ]
        ),
        lambda a: [
            code
            for g in a.groups
            for code in (g.error_code, *(p.error_code for t in g.topics for p in t.partitions))
        ],
        on_group(DESCRIBE) + on_topic(DESCRIBE),
    ),
    Case(
        "OffsetFetch",
        5,
        lambda: of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic("seen", [0])]),
        lambda a: [a.error_code, *partitions(a)],
        on_group(DESCRIBE) + on_topic(DESCRIBE),
    ),
    Case("FindCoordinator", 3, lambda: fc.FindCoordinatorRequest("g", 0), top, on_group(DESCRIBE)),
    Case(
        "FindCoordinator",
        4,
        lambda: fc.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        rows("coordinators"),
        on_id(DESCRIBE),
    ),
    Case("JoinGroup", 5, lambda: jg.JoinGroupRequest("g", 10, 10, "", None, "c", []), top, on_group(READ)),
    Case("Heartbeat", 3, lambda: hb.HeartbeatRequest("g", 1, "m"), top, on_group(READ)),
    Case("LeaveGroup", 1, lambda: lv.LeaveGroupRequest("g", "m"), top, on_group(READ)),
    Case("SyncGroup", 3, lambda: sg.SyncGroupRequest("g", 1, "m"), top, on_group(READ)),
    Case("DescribeGroups", 5, lambda: de.DescribeGroupsRequest(["g"]), rows("groups"), on_group(DESCRIBE)),
    Case(
        "CreateTopics",
        7,
        lambda: ct.CreateTopicsRequest([ct.CreatableTopic("new", 1, 1)]),
        rows("topics"),
        (((CREATE, TOPIC, "new"), NO_TOPIC),),
    ),
    Case(
        "CreateTopics",
        7,
        lambda: ct.CreateTopicsRequest([ct.CreatableTopic("new", 1, 1)]),
        rows("topics"),
        (((CREATE, CLUSTER, OF_CLUSTER), NO_TOPIC),),
    ),
    Case(
        "DeleteTopics",
        5,
        lambda: dt.DeleteTopicsRequest([], ["seen"], 5000),
        rows("responses"),
        on_topic(DELETE),
    ),
    Case(
        "DeleteTopics",
        5,
        lambda: dt.DeleteTopicsRequest([], ["seen"], 5000),
        rows("responses"),
        (((DELETE, CLUSTER, OF_CLUSTER), NO_TOPIC),),
    ),
    Case(
        "DeleteRecords",
        2,
        lambda: dr.DeleteRecordsRequest(
            [dr.DeleteRecordsTopic("seen", [dr.DeleteRecordsPartition(0, -1)])], 5000
        ),
        partitions,
        on_topic(DELETE),
    ),
    Case("InitProducerId", 4, lambda: ip.InitProducerIdRequest("x", 1000), top, on_id(WRITE)),
    Case(
        "InitProducerId", 4, lambda: ip.InitProducerIdRequest(None), top, cluster(Operation.IDEMPOTENT_WRITE)
    ),
    Case(
        "InitProducerId",
        4,
        lambda: ip.InitProducerIdRequest(None),
        top,
        (((WRITE, TOPIC, "whatever"), NO_CLUSTER),),
    ),
    Case(
        "OffsetForLeaderEpoch",
        4,
        lambda: ole.OffsetForLeaderEpochRequest(
            -1, [ole.OffsetForLeaderTopic("seen", [ole.OffsetForLeaderPartition(0, -1, 0)])]
        ),
        partitions,
        on_topic(DESCRIBE),
    ),
    Case(
        "AddPartitionsToTxn",
        3,
        lambda: ap.AddPartitionsToTxnRequest([], "x", 1, 0, [ap.AddPartitionsToTxnTopic("seen", [0])]),
        lambda a: [
            p.partition_error_code for t in a.results_by_topic_v3_and_below for p in t.results_by_partition
        ],
        on_id(WRITE) + on_topic(WRITE),
    ),
    Case("AddPartitionsToTxn", 4, ap.AddPartitionsToTxnRequest, top, cluster(Operation.CLUSTER_ACTION)),
    Case(
        "AddOffsetsToTxn",
        3,
        lambda: ao.AddOffsetsToTxnRequest("x", 1, 0, "g"),
        top,
        on_id(WRITE) + on_group(READ),
    ),
    Case("EndTxn", 3, lambda: et.EndTxnRequest("x", 1, 0, True), top, on_id(WRITE)),
    Case(
        "WriteTxnMarkers",
        1,
        lambda: wtm.WriteTxnMarkersRequest(
            [wtm.WritableTxnMarker(1, 0, False, [wtm.WritableTxnMarkerTopic("seen", [0])])]
        ),
        lambda a: [p.error_code for m in a.markers for t in m.topics for p in t.partitions],
        cluster(ALTER),
    ),
    Case(
        "TxnOffsetCommit",
        3,
        lambda: toc.TxnOffsetCommitRequest(
            "x",
            "g",
            1,
            0,
            topics=[toc.TxnOffsetCommitRequestTopic("seen", [toc.TxnOffsetCommitRequestPartition(0, 5)])],
        ),
        partitions,
        on_id(WRITE) + on_group(READ) + on_topic(READ),
    ),
    Case(
        "DescribeAcls",
        3,
        lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        top,
        cluster(DESCRIBE),
    ),
    Case(
        "CreateAcls",
        3,
        lambda: create_acls.CreateAclsRequest([create_acls.AclCreation(2, "t", 3, "User:eve", "*", 3, 3)]),
        rows("results"),
        cluster(ALTER),
    ),
    Case(
        "DeleteAcls",
        3,
        lambda: delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]),
        rows("filter_results"),
        cluster(ALTER),
    ),
    Case(
        "DescribeConfigs",
        4,
        lambda: dc.DescribeConfigsRequest([dc.DescribeConfigsResource(2, "seen", None)]),
        rows("results"),
        on_topic(Operation.DESCRIBE_CONFIGS),
    ),
    Case(
        "DescribeConfigs",
        4,
        lambda: dc.DescribeConfigsRequest([dc.DescribeConfigsResource(32, "g", None)]),
        rows("results"),
        on_group(Operation.DESCRIBE_CONFIGS),
    ),
    Case(
        "DescribeConfigs",
        4,
        lambda: dc.DescribeConfigsRequest([dc.DescribeConfigsResource(4, "", None)]),
        rows("results"),
        cluster(Operation.DESCRIBE_CONFIGS),
    ),
    Case(
        "AlterConfigs",
        2,
        lambda: ac.AlterConfigsRequest([ac.AlterConfigsResource(2, "seen")]),
        rows("responses"),
        on_topic(Operation.ALTER_CONFIGS),
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        lambda: iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(2, "seen")]),
        rows("responses"),
        on_topic(Operation.ALTER_CONFIGS),
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        lambda: iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(4, "")]),
        rows("responses"),
        cluster(Operation.ALTER_CONFIGS),
    ),
    Case(
        "AlterReplicaLogDirs",
        2,
        lambda: arl.AlterReplicaLogDirsRequest(
            [arl.AlterReplicaLogDir("object-store", [arl.AlterReplicaLogDirTopic("seen", [0])])]
        ),
        lambda a: [p.error_code for t in a.results for p in t.partitions],
        cluster(ALTER),
    ),
    Case("DescribeLogDirs", 4, lambda: dld.DescribeLogDirsRequest(None), top, cluster(DESCRIBE)),
    Case(
        "CreatePartitions",
        3,
        lambda: cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("seen", 3, None)], 5000),
        rows("results"),
        on_topic(ALTER),
    ),
    Case("DeleteGroups", 2, lambda: dg.DeleteGroupsRequest(["g"]), rows("results"), on_group(DELETE)),
    Case("ElectLeaders", 2, lambda: el.ElectLeadersRequest(0, None), top, cluster(ALTER)),
    Case(
        "AlterPartitionReassignments",
        0,
        lambda: apr.AlterPartitionReassignmentsRequest(topics=[]),
        top,
        cluster(ALTER),
    ),
    Case("ListPartitionReassignments", 0, lpr.ListPartitionReassignmentsRequest, top, cluster(DESCRIBE)),
    Case(
        "OffsetDelete",
        0,
        lambda: od.OffsetDeleteRequest(
            "g", [od.OffsetDeleteRequestTopic("seen", [od.OffsetDeleteRequestPartition(0)])]
        ),
        lambda a: [a.error_code, *partitions(a)],
        on_group(DELETE) + on_topic(READ),
    ),
    Case(
        "DescribeClientQuotas", 1, dcq.DescribeClientQuotasRequest, top, cluster(Operation.DESCRIBE_CONFIGS)
    ),
    Case(
        "DescribeUserScramCredentials",
        0,
        lambda: dus.DescribeUserScramCredentialsRequest(None),
        top,
        cluster(DESCRIBE),
    ),
    Case(
        "AlterUserScramCredentials",
        0,
        lambda: aus.AlterUserScramCredentialsRequest([aus.ScramCredentialDeletion("eve", 1)]),
        rows("results"),
        cluster(ALTER),
    ),
    Case("DescribeQuorum", 1, dq.DescribeQuorumRequest, top, cluster(DESCRIBE)),
    Case("UpdateFeatures", 1, uf.UpdateFeaturesRequest, top, cluster(ALTER)),
    Case(
        "DescribeProducers",
        0,
        lambda: dp.DescribeProducersRequest([dp.TopicRequest("seen", [0])]),
        partitions,
        on_topic(READ),
    ),
    Case(
        "DescribeTransactions",
        0,
        lambda: dtx.DescribeTransactionsRequest(["x"]),
        rows("transaction_states"),
        on_id(DESCRIBE),
    ),
    Case(
        "ConsumerGroupHeartbeat",
        0,
        lambda: cgh.ConsumerGroupHeartbeatRequest(
            "g", "", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["seen"], topic_partitions=[]
        ),
        top,
        on_group(READ) + on_topic(DESCRIBE),
    ),
    Case(
        "ConsumerGroupDescribe",
        0,
        lambda: cgd.ConsumerGroupDescribeRequest(["g"]),
        rows("groups"),
        on_group(DESCRIBE),
    ),
    Case("ListConfigResources", 1, lcr.ListConfigResourcesRequest, top, cluster(Operation.DESCRIBE_CONFIGS)),
    Case(
        "DescribeTopicPartitions",
        0,
        lambda: dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest("seen")]),
        rows("topics"),
        on_topic(DESCRIBE),
    ),
)
