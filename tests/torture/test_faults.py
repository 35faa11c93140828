"""Every fault once, over a whole cluster of processes: nothing acknowledged is lost, doubled, reordered."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from deploy.services import VersityGw
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


def test_the_stores_faults_over_another_server() -> None:
    """versitygw shares no code with MinIO; what it does when it is killed or cut off is its own."""
    steps = [step for step in islice(schedule(SEED, 3), len(FAULTS)) if "store" in step.fault.name]
    assert len(steps) == 5
    with Cluster(store=VersityGw()) as cluster:
        verdict = torture(cluster, steps)
    print(f"\nversitygw, seed {SEED}: {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged > 1_000
