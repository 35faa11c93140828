"""Named experiments of the field, their counts printed: none may lose what was acknowledged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.proof.ran import judged_here
from tests.proof.report import outcomes
from tests.proof.runs import RUNS as RUNS_OF_PROOF
from tests.proof.runs import Lab
from tests.torture.broker_log import read_log
from tests.torture.cluster import Cluster, Member
from tests.torture.experiments import (
    ALLOWED,
    FAULT_AT,
    KAFKA_2013,
    MESSAGES,
    Written,
    isolate,
    isolate_from_coordination,
    kafka_2013,
    kill,
    vanlightly,
)
from tests.torture.spark import Kept

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Whole before and after each experiment; each has a topic of its own."""
    yield shared
    shared.heal()
    assert shared.ended == [], "an agent ended by itself"


@pytest.fixture(scope="module")
def kept() -> Kept:
    """What the experiments leave for Spark."""
    return Kept()


def keep(kept: Kept, run: str, cluster: Cluster, written: Written) -> None:
    """Keep a run where `make torture` runs it."""
    if FULL:
        kept.add(run, written.history, read_log(*cluster.opened, written.topic))


def test_kafka_2013_isolated_writer(cluster: Cluster, kept: Kept) -> None:
    written = kafka_2013(cluster)
    print(f"\nkafka-2013: {written.verdict.report()}")
    keep(kept, "jepsen acks=all", cluster, written)
    assert written.verdict.acknowledged == KAFKA_2013
    assert written.verdict.findings == []


# TORTURE=full (`make torture`) runs every scenario with every kind of acknowledgement; `make test` those
# in which Apache Kafka lost most, and every scenario at least once.
FULL = os.environ.get("TORTURE") == "full"
RUNS = [(kill, "1"), (kill, "all"), (isolate, "1"), (isolate_from_coordination, "all")]
if FULL:
    RUNS = [(f, acks) for f in (kill, isolate, isolate_from_coordination) for acks in ("0", "1", "all")]


@pytest.mark.parametrize(("fault", "acks"), RUNS)
def test_vanlightly(cluster: Cluster, kept: Kept, fault: Callable[[Member], None], acks: str) -> None:
    written = vanlightly(cluster, fault, acks)
    verdict = written.verdict
    found = Counter(finding.anomaly for finding in verdict.findings)
    print(f"\nvanlightly {fault.__name__} acks={acks}: {verdict.report().splitlines()[0]} {dict(found)}")
    keep(kept, f"{fault.__name__} acks={acks}", cluster, written)
    assert len(written.sent) == MESSAGES
    if acks != "0":
        assert verdict.acknowledged > FAULT_AT
        assert found["lost-write"] == 0
        assert found["phantom-read"] == 0
    if acks == "all":
        assert verdict.findings == []


@pytest.mark.parametrize("mix", ["queue-subscribe", "list-append"])
@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
def test_mixes_of_the_proof(cluster: Cluster, tmp_path: Path, mix: str) -> None:
    """A fault's time of each; `make proof` runs them at length."""
    ran = RUNS_OF_PROOF[mix](Lab(cluster, seed=1, seconds=0.1, settle_s=1.0))
    judged_here([ran], tmp_path)
    print(f"\n{mix}: {outcomes(ran)} through {[what for what, _, _ in ran.happened]}: {dict(ran.found)}")
    assert len(ran.happened) == 1
    assert any(op.outcome == "ok" for op in ran.history.operations if op.f in ("send", "txn"))
    assert ran.wrong == {}


if FULL:

    @pytest.mark.timeout(3600)
    def test_spark_finds_as_little(kept: Kept) -> None:
        """All of the runs above, in the tables that the checker reads."""
        found = kept.judged(Path("build/torture/experiments"))
        print(f"\nby Spark: { {run: dict(counts) for run, counts in found.items()} }")
        assert found, "the experiments have kept nothing"
        for run, counts in found.items():
            assert counts.keys() <= ALLOWED[run.rpartition("=")[2]], run
