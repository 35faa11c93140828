"""`floe table audit`: equal for an honest table, unequal with the place for a damaged one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.run.damage import damage
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from tests.unit.agent.cli.conftest import Dev, floe

ROWS = 5_000  # enough for a better compression of the damaged file to make up for its metadata
pytestmark = pytest.mark.services


def audit(dev: Dev, topic: str, jars: Path) -> tuple[int, dict[str, Any]]:
    """Status and verdict."""
    ran = floe(
        *("table", "audit", topic, "--json", "--jars", str(jars), "--java-home", str(java_home())),
        FLOE_BOOTSTRAP=dev.bootstrap,
        FLOE_HTTP=dev.http,
    )
    return ran.status, json.loads(ran.out)


def test_a_table_is_proven_equal_until_one_row_is_damaged(dev: Dev) -> None:
    jars = ensure("iceberg")[0].parent
    assert dev.run("topic", "create", "audited", "--partitions", "2").status == 0
    lines = "".join(
        f"key {n}\torder {n} of {n * 7919 % 1000} costs {n * 104729 % 99991} cents on day {n % 365}\n"
        for n in range(ROWS)
    )
    assert dev.run("produce", "audited", "--key-separator", "\t", stdin=lines).status == 0

    status, verdict = audit(dev, "audited", jars)
    assert (status, verdict["equal"]) == (0, True)
    assert verdict["topics"][0]["table"] == verdict["topics"][0]["consumed"] == ROWS

    done = damage("drop", "audited", "floe.audited", f"{dev.http}/iceberg", {})
    status, verdict = audit(dev, "audited", jars)
    assert (status, verdict["equal"]) == (1, False)
    places = [(f["kind"], f["topic"], f["partition"], f["offset"]) for f in verdict["findings"]]
    assert ("missing", "audited", done.partition, done.offset) in places


def test_what_an_audit_needs_is_told(dev: Dev, tmp_path: Path) -> None:
    status, line = dev.fails("table", "audit", "absent", "--jars", str(tmp_path))
    assert (status, "no jars there" in line) == (2, True)
    jars = str(ensure("iceberg")[0].parent)
    assert dev.fails("table", "audit", "absent", "--jars", jars)[0] == 5
