"""The section that says what an agent tells of itself in figures and traces."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import Section


class TelemetryConfig(Section):
    """Figures by topic and group (docs/metrics.md)."""

    topics_max: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Topics whose bytes and records are shown, those of most bytes at this agent. 0: none."""

    groups_max: Annotated[int, Field(ge=0, le=10_000)] = 200
    """Consumer groups, by topic, whose lag is shown, those that are latest. 0: none, and nobody looks."""
