"""All agents restarted one by one under load: no error reaches an application, nothing is lost or doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.equipment.zoned import Zoned
from tests.torture.rolling import rolling_restart
from tests.torture.run import create_topic

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]


def test_a_rolling_restart_reaches_no_application(tmp_path: Path) -> None:
    """Two of three come back under another address. The pauses are printed; tests/bench/bench_rolling.py
    publishes those of agents that stay where they are."""
    with Zoned(("", "", "")) as cluster:
        create_topic(cluster.bootstrap, "rolling", 6)
        outcome = rolling_restart(cluster, "rolling", tmp_path, moving=True)
    print(f"\nrolling restart: {outcome.report()}")
    assert outcome.findings == [], outcome.report()
    assert outcome.acknowledged > 1_000
