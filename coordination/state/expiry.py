"""What a command that deletes for age may do: its author's clock proposes, the log's clock decides."""

from __future__ import annotations

from coordination.broker_configs import integer
from coordination.kafka_codes import Code
from coordination.state.agreed_time import agreed_ms
from coordination.state.data import StateData
from coordination.state.levels import AGREED_TIME
from coordination.state.types import Refused


def too_soon(state: StateData, judged_ms: int) -> Refused | None:
    """The refusal of a command that judges ages as of `judged_ms`, when most agents say it is earlier."""
    if state.feature_level < AGREED_TIME or judged_ms <= agreed_ms(state):
        return None
    why = f"judged by a clock at {judged_ms} ms, most agents say {agreed_ms(state)}"
    return Refused(Code.INVALID_REQUEST, f"{why}: set the author's clock right")


def not_above(state: StateData, idle_since_ms: int, config: str) -> int:
    """The newest time (Unix ms) at which something may last have been used and expire now.

    That is what the command says, but at most the log's clock less the time in the cluster's `config`.
    """
    if state.feature_level < AGREED_TIME:
        return idle_since_ms
    return min(idle_since_ms, state.clock_ms - integer(state.cluster_configs, config))
