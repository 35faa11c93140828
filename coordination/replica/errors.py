"""What a proposal's future may fail with, and what ends a replica. See coordination.log for the base."""

from __future__ import annotations

from coordination.log import LogError


class StaleIncarnation(LogError):
    """The proposal was made for an incarnation that is over. It had no effect (definite)."""


class OutcomeUnknown(LogError):
    """Whether the proposal took effect could not be learned in time: never report success or failure."""


class ReplicaFailed(Exception):
    """This agent must stop: the message says why and what to do."""


class Superseded(ReplicaFailed):
    """Another process registered under this agent's name."""


class RegistrationRefused(ReplicaFailed):
    """The cluster does not take this agent: its feature levels, name or node id do not fit."""
