"""The replica: follows the log, applies it, writes to it. Start at replica.py."""

from __future__ import annotations

from coordination.log import Unavailable
from coordination.replica.comparing import Verdict
from coordination.replica.errors import (
    OutcomeUnknown,
    RegistrationRefused,
    ReplicaFailed,
    StaleIncarnation,
    Superseded,
)
from coordination.replica.options import ReplicaOptions
from coordination.replica.replica import Replica

__all__ = [
    "Replica",
    "ReplicaOptions",
    "Unavailable",
    "Verdict",
    "StaleIncarnation",
    "OutcomeUnknown",
    "ReplicaFailed",
    "Superseded",
    "RegistrationRefused",
]
