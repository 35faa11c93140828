"""A replica of a cluster that follows its bucket: `floe serve --follow` (docs/replica.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agent.config.base import Section


class FollowConfig(Section):
    """How `floe serve --follow` looks at the bucket. Of no use to agents of a cluster."""

    poll_ms: Annotated[int, Field(ge=50, le=600_000)] = 2_000
    """Time between two looks for new pieces of the log, milliseconds; each is one LIST request."""

    gap_wait_ms: Annotated[int, Field(ge=100, le=86_400_000)] = 30_000
    """How long nothing of the log comes, or a piece is missing or damaged, until a newer snapshot is looked
    for, milliseconds. Choose more than replication of the bucket is out of order."""
