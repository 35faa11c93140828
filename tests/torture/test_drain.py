"""Every agent is drained and taken back under load: no application sees an error, nothing lost or twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.app import app
from tests.compat.cluster import status
from tests.equipment.zoned import Zoned
from tests.torture.rolling import SETTLE_S, disturbed
from tests.torture.run import create_topic

pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]

PARTITIONS = 6


def drain(cluster: Zoned, name: str, *words: str) -> dict[str, object]:
    """`floe drain` of one agent, asked through the first one; its last answer."""
    asked = ["drain", name, "--wait", "--timeout", "120", "--http", cluster.agents[0].http, "-o", "json"]
    done = CliRunner().invoke(app, [*asked, *words])
    assert done.exit_code == 0, done.output
    told: dict[str, object] = json.loads(done.stdout)
    return told


def each_drained(cluster: Zoned) -> Iterator[tuple[float, float]]:
    """One after the other; the time of each, from its drain until it has come back and settled."""
    for index in range(len(cluster.agents)):
        begun = time.monotonic()
        told = drain(cluster, f"agent-{index}")
        assert (told["drained"], told["claims"], told["groups_classic"], told["groups_consumer"]) == (
            True, [], 0, 0,
        )  # fmt: skip
        time.sleep(SETTLE_S)
        own = status(cluster.agents[index])["queues"]
        assert (own["produce_held_bytes"], own["fetch_parked"]) == (0, 0), "clients came all the same"
        assert drain(cluster, f"agent-{index}", "--undo")["drained"] is False
        time.sleep(SETTLE_S)
        yield begun, time.monotonic()


@pytest.mark.thorough
def test_a_drain_reaches_no_application(tmp_path: Path) -> None:
    with Zoned(("", "", "")) as cluster:
        create_topic(cluster.bootstrap, "drained", PARTITIONS)
        outcome = disturbed(cluster, "drained", tmp_path, each_drained(cluster), PARTITIONS)
    print(f"\ndrains: {outcome.report()}")
    assert outcome.findings == [], outcome.report()
    assert outcome.acknowledged > 1_000
