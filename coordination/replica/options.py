"""The replica's limits and times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Times in seconds, sizes in bytes. Defaults suit production."""

    ttl_s: float = 10.0  # an agent that says nothing for this long is fenced by the others
    heartbeat_s: float = 5.0  # idle time after which an entry says what was applied
    heartbeat_alone_s: float = 0.0  # the same, when longer, of an agent beside which there is no other
    members_s: float = 3.0  # between two looks at the live incarnation keys
    tick_s: float = 0.25  # of the housekeeping
    apply_slice_s: float = 0.005  # applying yields to the event loop after this long
    gap_s: float = 1.0  # an entry known to be in the log and not heard of for this long: read the gap
    queue_wait_s: float = 30.0  # a proposal that could not even be sent fails as Unavailable
    outcome_wait_s: float = 30.0  # a proposal that was sent and not seen applied fails as OutcomeUnknown
    barrier_s: float = 10.0  # a read barrier that takes longer fails as Unavailable
    confirm_s: float = (
        20.0  # others may say nothing of their states for so long: who is gone is fenced by then
    )
    stop_s: float = 5.0  # for the last entry of a graceful stop
    retry_s: float = 0.5  # between two tries to register, to load a snapshot, to look at the members
    queue_bytes_max: int = 64 * 1024 * 1024  # of proposals waiting to be sent
    queue_proposals_max: int = 100_000
