"""What stops an agent instead of letting it disagree with the others."""

from __future__ import annotations


class StateError(Exception):
    """Base: this agent may not go on applying; its message says why and what to do."""


class InvariantBroken(StateError):
    """Two records of one fact differ (rule 13). The message carries the evidence."""


class UnknownCommand(StateError):
    """The log holds a command that this code does not know: run a newer version."""


class UnsupportedFeature(StateError):
    """The cluster's feature level is above what this code can apply: run a newer version."""
