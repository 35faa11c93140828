"""The section of quotas: how they are measured. What they are is set by Kafka's tools, and is in the log."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import Section


class QuotasConfig(Section):
    """How quotas of clients are kept (docs/quotas.md): each agent for itself."""

    windows: Annotated[int, Field(ge=2, le=1_000)] = 11
    """Windows that are remembered (Kafka's quota.window.num)."""

    window_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 1_000
    """Length of a window, milliseconds (Kafka's quota.window.size.seconds); also the longest time that a
    client waits for having used up its request_percentage."""

    throttle_ms_max: Annotated[int, Field(ge=100, le=3_600_000)] = 30_000
    """Longest time that a client is slowed down at once, milliseconds. Kafka has no bound; beyond what
    clients wait for an answer they would connect anew."""

    entities_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Users and client ids of which is remembered what they took, some 1 KiB each; addresses likewise. The
    longest idle is forgotten first."""

    held_connections_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """New connections that wait at once for their listener's rate, or to be closed for their address'; more
    are closed at once."""
