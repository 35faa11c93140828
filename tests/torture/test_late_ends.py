"""KAFKA-17754 with real clients of v1: nothing on Floe, and aborted reads where its fence is away.

`make late-ends` runs it for as long as you like; Apache Kafka is its other control.
"""

from __future__ import annotations

import os

import pytest

from tests.checker.judge import judge
from tests.checker.operations import History
from tests.torture.late_clients import CLIENTS
from tests.torture.late_ends import BROKERS, Outcome, embedded, run
from tests.torture.unfenced_agent import UnfencedAgent

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

LATE_ENDS = 12
BAD = {"aborted-read", "torn-transaction"}
SET_BACK = {"stale-position", "nonmonotonic-poll"}  # by a look at positions, by what is read again
SECONDS_MAX = 240.0
PAIRS = ["librdkafka", "librdkafka", "aiokafka", "aiokafka"]


def enough(outcome: Outcome) -> bool:
    """So many ends came late that something must have come of it."""
    return outcome.done()["EndTxn late"] >= LATE_ENDS


def found(outcome: Outcome) -> bool:
    """Something has come of it."""
    so_far = History(list(outcome.recorder.history.operations))
    return any(each.anomaly in BAD for each in judge(so_far).findings)


def test_late_ends_change_nothing() -> None:
    kinds = [*PAIRS, "kafka-python"]
    with embedded(len(kinds)) as brokers:
        outcome = run(brokers, kinds, SECONDS_MAX, seed=1, enough=enough)
    print(f"\nlate ends: {outcome.report()}")
    assert enough(outcome), "the experiment has had no effect"
    assert outcome.findings == [], outcome.report()


def late_positions(outcome: Outcome) -> bool:
    """So many TxnOffsetCommit came late that something must have come of it."""
    return outcome.done()["TxnOffsetCommit late"] >= LATE_ENDS


def test_late_positions_change_nothing() -> None:
    with embedded(len(PAIRS)) as brokers:
        outcome = run(brokers, PAIRS, SECONDS_MAX, seed=1, mix="positions", enough=late_positions)
    print(f"\nlate positions: {outcome.report()}")
    assert late_positions(outcome), "the experiment has had no effect"
    assert outcome.findings == [], outcome.report()


def test_without_the_fence_late_positions_are_found() -> None:
    def set_back(outcome: Outcome) -> bool:
        return any(worker.stale for worker in outcome.workers)

    kinds = ["aiokafka"] * 6  # they are set back most often
    with embedded(len(kinds), UnfencedAgent) as brokers:
        outcome = run(brokers, kinds, SECONDS_MAX, seed=1, mix="hold-positions", enough=set_back)
    print(f"\nlate positions without the fence: {outcome.report()}")
    assert SET_BACK & set(outcome.anomalies), outcome.report()


def test_without_the_fence_late_ends_are_found() -> None:
    with embedded(len(PAIRS), UnfencedAgent) as brokers:
        outcome = run(brokers, PAIRS, SECONDS_MAX, seed=1, mix="hold", enough=found)
    print(f"\nlate ends without the fence: {outcome.report()}")
    assert BAD & set(outcome.anomalies), outcome.report()


if os.environ.get("TORTURE") == "full":

    @pytest.mark.parametrize(("broker", "seconds"), [("floe", 180), ("kafka", 90)])
    def test_floe_beside_its_control(broker: str, seconds: float) -> None:
        """The whole experiment, on a cluster and on Apache Kafka, which must show what Floe must not."""
        kinds = [kind for kind in CLIENTS for _ in range(2)]
        with BROKERS[broker](len(kinds)) as brokers:
            outcome = run(brokers, kinds, seconds, seed=1)
        print(f"\nlate ends on {broker}: {outcome.report()}")
        assert enough(outcome), "the experiment has had no effect"
        if broker == "floe":
            assert outcome.findings == [], outcome.report()
        else:
            assert BAD & set(outcome.anomalies), outcome.report()
