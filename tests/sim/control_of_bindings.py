"""Rule 19 broken: a chunk does not say by which binding its records were judged."""

from __future__ import annotations

from typing import Any

from agent.kafka.produce import driver
from agent.kafka.produce.buffer import commit_command

JUDGED_FOR_EVER = (1 << 63) - 1


def bound_meanwhile() -> tuple[tuple[Any, str, Any], ...]:
    """An agent does not say by which binding it judged, so what was bound meanwhile refuses nothing."""

    def unnamed(flush: Any) -> Any:
        command = commit_command(flush)
        command.commit_chunk.judged_revision = JUDGED_FOR_EVER
        return command

    return ((driver, "commit_command", unnamed),)
