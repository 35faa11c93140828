"""APIs of which all is refused or nothing: those of the whole cluster, and those of members of one group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.kafka.authority import needs
from agent.kafka.authority.needs import Need
from agent.kafka.context import Context
from agent.kafka.guards.rows import Guard, Handle
from agent.net.wire.generated import alter_client_quotas as acq
from agent.net.wire.generated import alter_partition_reassignments as apr
from agent.net.wire.generated import alter_replica_log_dirs as arl
from agent.net.wire.generated import alter_user_scram_credentials as aus
from agent.net.wire.generated import (
    create_acls,
    delete_acls,
    describe_acls,
    describe_log_dirs,
    describe_quorum,
    heartbeat,
    join_group,
    leave_group,
    list_config_resources,
    sync_group,
    update_features,
)
from agent.net.wire.generated import describe_client_quotas as dcq
from agent.net.wire.generated import describe_user_scram_credentials as dus
from agent.net.wire.generated import elect_leaders as el
from agent.net.wire.generated import list_partition_reassignments as lpr
from agent.net.wire.generated import write_txn_markers as wtm
from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME

CLUSTER = Code.CLUSTER_AUTHORIZATION_FAILED
GROUP = Code.GROUP_AUTHORIZATION_FAILED
WHY = "Cluster authorization failed."  # Kafka's words
Refusal = Callable[[Any, int], Any]


def of_cluster(need: Need, refuse: Refusal, *, unless: Need | None = None) -> Guard:
    """Refuses all of a request whose client may not `need` on the cluster, nor `unless`."""
    return _whole(need, refuse, lambda request: CLUSTER_NAME, unless)


def of_group(need: Need, refuse: Refusal) -> Guard:
    """Refuses all of a request about a group on which its client may not `need`."""
    return _whole(need, refuse, lambda request: request.group_id, None)


def _whole(need: Need, refuse: Refusal, name: Callable[[Any], str], unless: Need | None) -> Guard:
    async def guard(ctx: Context, request: Any, version: int, handle: Handle) -> Any:
        if (unless is not None and ctx.allows(unless)) or ctx.may(need, name(request)):
            return await handle(ctx, request, version)
        return refuse(request, version)

    return guard


def _scram_users(request: aus.AlterUserScramCredentialsRequest, version: int) -> Any:
    users = sorted({one.name for one in request.deletions} | {one.name for one in request.upsertions})
    return aus.AlterUserScramCredentialsResponse(
        results=[aus.AlterUserScramCredentialsResult(user, CLUSTER, WHY) for user in users]
    )


def _described_scram(request: dus.DescribeUserScramCredentialsRequest, version: int) -> Any:
    rows = [
        dus.DescribeUserScramCredentialsResult(error_code=CLUSTER, error_message=WHY)
        for _ in request.users or ()
    ]
    return dus.DescribeUserScramCredentialsResponse(error_code=CLUSTER, error_message=WHY, results=rows)


def _log_dirs(request: arl.AlterReplicaLogDirsRequest, version: int) -> Any:
    rows = [
        arl.AlterReplicaLogDirTopicResult(
            topic.name, [arl.AlterReplicaLogDirPartitionResult(index, CLUSTER) for index in topic.partitions]
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    return arl.AlterReplicaLogDirsResponse(results=rows)


def _elections(request: el.ElectLeadersRequest, version: int) -> Any:
    rows = [
        el.ReplicaElectionResult(
            topic.topic, [el.PartitionResult(index, CLUSTER, WHY) for index in topic.partitions]
        )
        for topic in request.topic_partitions or ()
    ]
    return el.ElectLeadersResponse(error_code=CLUSTER, replica_election_results=rows)


def _reassignments(request: apr.AlterPartitionReassignmentsRequest, version: int) -> Any:
    rows = [
        apr.ReassignableTopicResponse(
            topic.name,
            [
                apr.ReassignablePartitionResponse(each.partition_index, CLUSTER, WHY)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return apr.AlterPartitionReassignmentsResponse(error_code=CLUSTER, error_message=WHY, responses=rows)


def _ongoing(request: lpr.ListPartitionReassignmentsRequest, version: int) -> Any:
    rows = [
        lpr.OngoingTopicReassignment(
            topic.name, [lpr.OngoingPartitionReassignment(index) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return lpr.ListPartitionReassignmentsResponse(error_code=CLUSTER, error_message=WHY, topics=rows)


def _markers(request: wtm.WriteTxnMarkersRequest, version: int) -> Any:
    response = wtm.WriteTxnMarkersResponse()
    for marker in request.markers:
        rows = [
            wtm.WritableTxnMarkerTopicResult(
                topic.name,
                [wtm.WritableTxnMarkerPartitionResult(index, CLUSTER) for index in topic.partition_indexes],
            )
            for topic in marker.topics
        ]
        response.markers.append(wtm.WritableTxnMarkerResult(marker.producer_id, rows))
    return response


def _quotas(request: acq.AlterClientQuotasRequest, version: int) -> Any:
    rows = [acq.EntryResult(CLUSTER, WHY, entry.entity) for entry in request.entries]
    return acq.AlterClientQuotasResponse(entries=rows)


def _acl_creations(request: create_acls.CreateAclsRequest, version: int) -> Any:
    refused = create_acls.AclCreationResult(CLUSTER, WHY)
    return create_acls.CreateAclsResponse(results=[refused] * len(request.creations))


def _acl_filters(request: delete_acls.DeleteAclsRequest, version: int) -> Any:
    refused = delete_acls.DeleteAclsFilterResult(error_code=CLUSTER, error_message=WHY)
    return delete_acls.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _joined(request: join_group.JoinGroupRequest, version: int) -> Any:
    return join_group.JoinGroupResponse(
        error_code=GROUP, generation_id=-1, protocol_name="" if version < 7 else None, leader="", member_id=""
    )


GUARDS: dict[int, Guard] = {
    11: of_group(needs.JOIN_GROUP, _joined),
    12: of_group(needs.HEARTBEAT, lambda _r, _v: heartbeat.HeartbeatResponse(error_code=GROUP)),
    13: of_group(needs.LEAVE_GROUP, lambda _r, _v: leave_group.LeaveGroupResponse(error_code=GROUP)),
    14: of_group(
        needs.SYNC_GROUP, lambda _r, _v: sync_group.SyncGroupResponse(error_code=GROUP, assignment=b"")
    ),
    27: of_cluster(needs.MARKERS, _markers, unless=needs.MARKERS_ALTER),
    29: of_cluster(
        needs.DESCRIBE_ACLS,
        lambda _r, _v: describe_acls.DescribeAclsResponse(error_code=CLUSTER, error_message=WHY),
    ),
    30: of_cluster(needs.CREATE_ACLS, _acl_creations),
    31: of_cluster(needs.DELETE_ACLS, _acl_filters),
    34: of_cluster(needs.ALTER_LOG_DIRS, _log_dirs),
    35: of_cluster(
        needs.DESCRIBE_LOG_DIRS, lambda _r, _v: describe_log_dirs.DescribeLogDirsResponse(error_code=CLUSTER)
    ),
    43: of_cluster(needs.ELECT_LEADERS, _elections),
    45: of_cluster(needs.ALTER_REASSIGNMENTS, _reassignments),
    46: of_cluster(needs.LIST_REASSIGNMENTS, _ongoing),
    48: of_cluster(
        needs.DESCRIBE_QUOTAS,
        lambda _r, _v: dcq.DescribeClientQuotasResponse(error_code=CLUSTER, error_message=WHY, entries=None),
    ),
    49: of_cluster(needs.ALTER_QUOTAS, _quotas),
    50: of_cluster(needs.DESCRIBE_SCRAM, _described_scram),
    51: of_cluster(needs.ALTER_SCRAM, _scram_users),
    55: of_cluster(
        needs.DESCRIBE_QUORUM,
        lambda _r, _v: describe_quorum.DescribeQuorumResponse(error_code=CLUSTER, error_message=WHY),
    ),
    57: of_cluster(
        needs.UPDATE_FEATURES,
        lambda _r, _v: update_features.UpdateFeaturesResponse(error_code=CLUSTER, error_message=WHY),
    ),
    74: of_cluster(
        needs.LIST_CONFIG_RESOURCES,
        lambda _r, _v: list_config_resources.ListConfigResourcesResponse(error_code=CLUSTER),
    ),
}
