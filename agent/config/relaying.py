"""The log from an agent of the zone instead of from etcd (docs/zones.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import KIB, MIB, Section


class RelayConfig(Section):
    """One agent of a zone follows etcd, the others follow that one: on the port of `peers`."""

    enabled: bool = False
    """Follow the zone's relay, and be it where this agent is chosen. Where the log is etcd and `peers` have a
    secret or certificates. For clusters whose etcd has enough to send: it sends the log once a zone then."""

    agents_min: Annotated[int, Field(ge=2, le=10_000)] = 3
    """In a zone with fewer agents each follows etcd."""

    followers_max: Annotated[int, Field(ge=1, le=10_000)] = 128
    """Agents that follow this one at a time; one more is told to follow etcd."""

    buffer_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024**4)] = 16 * MIB
    """Newest entries of the log that are kept for followers, bytes. Who falls behind them follows etcd."""

    behind_ms_max: Annotated[int, Field(ge=10, le=600_000)] = 500
    """A relay that has not come to a revision of which etcd told for this long, milliseconds, is left."""

    silence_ms_max: Annotated[int, Field(ge=1_000, le=600_000)] = 2_000
    """A relay that says nothing for this long, milliseconds, is left; it says something every 500 ms."""

    check_interval_ms: Annotated[int, Field(ge=10, le=600_000)] = 1_000
    """Time between two questions to etcd, milliseconds: how far it is, whether the relay said so."""
