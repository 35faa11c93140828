"""ListPartitionReassignments: reassignments under way, of which there are never any.

Versions 0.
Behaviour: an empty list, whatever is asked for.
Deviations: none known.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

KEY = 46
VERSIONS = (0, 0)


async def handle(
    ctx: Context, request: ListPartitionReassignmentsRequest, version: int
) -> ListPartitionReassignmentsResponse:
    """None."""
    return ListPartitionReassignmentsResponse(error_message=None)
