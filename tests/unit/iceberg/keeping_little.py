"""Tables that keep little, so that tests come to folds, segments and merged manifests."""

from __future__ import annotations

import pytest

from iceberg import history
from iceberg.committer import CommitterOptions
from iceberg.metadata import Retention

KEPT = 24  # snapshots of the history in these tests, where there may be 20,000, …
SEGMENT = 9  # … and of a segment: they are folded whole


def fold_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some snapshots make a segment, and some segments a larger one."""
    monkeypatch.setattr(history, "FOLD_MIN", 4)
    monkeypatch.setattr(history, "FAN", 3)
    monkeypatch.setattr(history, "LEVEL_MAX", 1)


def small(history_max: int = KEPT, inline: int = 4, merged_at: int = 6) -> CommitterOptions:
    """Options of committers that keep little."""
    retention = Retention(snapshots=inline, previous_versions=3, history_max=history_max)
    return CommitterOptions(retention=retention, manifests_merged_at=merged_at)
