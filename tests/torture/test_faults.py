"""Every fault once, over a whole cluster of processes: nothing acknowledged is lost, doubled, reordered."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.torture.cluster import Cluster
from tests.torture.faults import FAULTS, schedule
from tests.torture.run import torture

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

SEED = int(os.environ.get("SEED", "1"))


def test_every_fault_once() -> None:
    """A run is repeated with `SEED=n`; `make soak` runs it for as long as you like."""
    with Cluster() as cluster:
        verdict = torture(cluster, islice(schedule(SEED, 3), len(FAULTS)))
    print(f"\nevery fault once, seed {SEED}: {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged > 1_000
