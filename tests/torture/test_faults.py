"""Every fault once, over a whole cluster of processes: nothing acknowledged is lost, doubled, reordered."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from deploy.services import VersityGw
from tests.torture.cluster import Cluster
from tests.torture.faults import FAULTS, schedule
from tests.torture.run import torture
from tests.torture.spark import Kept

FOLDER = Path("build/torture")
pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("SEED", "1"))
FULL = os.environ.get("TORTURE") == "full"  # then what is kept is judged by Spark as well


def test_every_fault_once() -> None:
    """A run is repeated with `SEED=n`; `make soak` runs it for as long as you like."""
    kept, steps = Kept(), list(islice(schedule(SEED, 3), len(FAULTS)))
    with Cluster() as cluster:
        verdict = torture(cluster, steps, keep=kept.keeper("every-fault", FULL))
    print(f"\nevery fault once, seed {SEED}: {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged > 1_000
    if FULL:
        assert kept.judged(FOLDER / "every-fault", map(str, steps)) == {"every-fault": Counter()}


@pytest.mark.thorough
def test_the_stores_faults_over_another_server() -> None:
    """versitygw shares no code with MinIO; what it does when it is killed or cut off is its own."""
    steps = [step for step in islice(schedule(SEED, 3), len(FAULTS)) if "store" in step.fault.name]
    assert len(steps) == 5
    kept = Kept()
    with Cluster(store=VersityGw()) as cluster:
        verdict = torture(cluster, steps, keep=kept.keeper("stores-faults", FULL))
    print(f"\nversitygw, seed {SEED}: {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged > 1_000
    if FULL:
        assert kept.judged(FOLDER / "stores-faults", map(str, steps)) == {"stores-faults": Counter()}
