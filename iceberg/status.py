"""What became of the commits of a topic's table on this agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TopicStatus:
    """What became of a topic's commits here. `freshness_ms`: age of the newest row at its commit.

    `failing_since_ms`, `last_commit_ms`, `last_compaction_ms`: Unix ms, 0 for none; `files_compacted`: small
    ones that became large, `bytes_compacted`: of these; `problems`: what is wrong though it goes on.
    """

    commits: int = 0
    rows: int = 0
    bytes: int = 0
    failures: int = 0
    freshness_ms: int = -1
    last_error: str = ""
    failing_since_ms: int = 0
    last_commit_ms: int = 0
    compactions: int = 0
    files_compacted: int = 0
    bytes_compacted: int = 0
    last_compaction_ms: int = 0
    problems: tuple[str, ...] = ()
