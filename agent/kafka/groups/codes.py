"""What clients of groups are told when the log did not take what their coordinator proposed."""

from __future__ import annotations

from coordination.kafka_codes import Code

_AGENTS_TROUBLE = (Code.NOT_CONTROLLER, Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)


def told(code: Code) -> Code:
    """The code for a group's client: COORDINATOR_NOT_AVAILABLE, so that it looks for another agent, where the
    trouble is this agent's own; else the refusal itself.
    """
    return Code.COORDINATOR_NOT_AVAILABLE if code in _AGENTS_TROUBLE else code
