"""What clients of groups are told when the log did not take what their coordinator proposed."""

from __future__ import annotations

from coordination.kafka_codes import Code

_AGENTS_TROUBLE = (Code.NOT_CONTROLLER, Code.STALE_BROKER_EPOCH, Code.BROKER_ID_NOT_REGISTERED)


def told(code: Code) -> Code:
    """The refusal as a group's client understands it: its agent's own trouble is to be tried elsewhere."""
    return Code.COORDINATOR_NOT_AVAILABLE if code in _AGENTS_TROUBLE else code
