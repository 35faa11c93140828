"""The section of the audit log: who did what."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import Section


class AuditLogConfig(Section):
    """What is kept of who did what (docs/security.md). Give all agents the same."""

    lines: bool = True
    """Write each event as a line of the agent's log, of the logger `audit`."""

    topic: Annotated[str, Field(pattern=r"^([a-zA-Z0-9._-]{1,249})?$")] = ""
    """The topic that keeps events, such as floe.audit: it is made and bound where it is not there. Empty:
    none."""

    access: bool = False
    """Also who reads and writes which topic: once for each principal, address and topic in `again_ms`."""

    again_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = 60_000
    """Refusals and accesses that are alike are one event in so many milliseconds, with their number."""

    alike_kinds_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Kinds of refusals and accesses that are told apart; the one that came longest ago is forgotten."""

    queue_events_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Events that wait for the topic while it cannot be written; the oldest go beyond that, counted by
    floe_audit_lost_total."""
