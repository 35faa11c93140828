"""`floe cost`: one table, one JSON value, and one line for what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.agent.cli.conftest import inside

ASKED = ("cost", "--write", "100MiB/s", "--fanout", "3", "--retention", "7d", "--zones", "3")


def test_each_row_says_what_where_from_and_how_much() -> None:
    ran = inside(*ASKED)
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["of", "kind", "what", "amount", "unit", "USD", "a", "month", "from"]
    table = lines[1 : next(at for at, line in enumerate(lines) if line.startswith("total: "))]
    assert {line.split("  ")[0] for line in table} == {"Floe", "Floe's tables", "Apache Kafka"}
    assert [line for line in table if len(line.split("  ")) < 5] == []
    assert "us-east-1" in ran.out
    assert "note: 3 agents write a chunk of" in ran.out


def test_json_is_one_value_with_the_same_sums(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("put_per_1000 = 0.0\nget_per_1000 = 0.0\n")
    free = json.loads(inside(*ASKED, "--prices", str(prices), "--output", "json").out)
    paid = json.loads(inside(*ASKED, "--output", "json").out)
    requests = sum(
        row["cost"]
        for row in paid["rows"]
        if row["kind"] == "requests" and row["what"].startswith(("PUT", "GET"))
    )
    before, after = (sum(found["per_month"].values()) for found in (paid, free))
    assert before - after == pytest.approx(requests)
    assert requests > 0
    assert free["prices"]["put_per_1000"] == 0
    assert free["load"]["write"] == 100 * 1024**2


def test_settings_are_an_agents() -> None:
    def chunks(*more: str) -> float:
        return float(json.loads(inside(*ASKED, *more, "--output", "json").out)["chunks_per_s"])

    assert chunks("--set", "produce.puts_per_s_max=1") == pytest.approx(3)
    assert chunks() > 3
    without = json.loads(inside(*ASKED, "--set", "tables.enabled=false", "--output", "json").out)
    assert without["per_month"]["Floe's tables"] == 0


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ((), 2, "Missing option '--write'"),
        (("--write", "100"), 2, "'100' is no rate: write bytes a second, such as 100MiB/s"),
        (("--write", "-1MiB/s"), 2, "is not a number and one of B, kB"),
        (("--write", "1MiB/s", "--retention", "7"), 2, "'7' is not a number and one of ms, s, m, h, d"),
        (("--write", "1MiB/s", "--zones", "0"), 2, "--zones"),
        (("--write", "1MiB/s", "--read-cold", "1.1"), 2, "--read-cold"),
        (("--write", "1MiB/s", "--agents", "2"), 2, "--agents 2 is below --zones 3"),
        (("--write", "9GiB/s", "--agents", "3"), 2, "leave --agents out"),
        (("--write", "1MiB/s", "--prices", "/nowhere/prices.toml"), 2, "name a TOML file that can be read"),
        (("--write", "1MiB/s", "--set", "produce.linger=1"), 3, "produce.linger"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: tuple[str, ...], status: int, told: str) -> None:
    ran = inside("cost", *words)
    assert (ran.status, ran.out) == (status, ""), ran
    assert told in ran.err
    assert ran.err.count("\n") == 1
