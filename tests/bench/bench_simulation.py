"""How fast the simulation's time runs, and what a swarm of seeds found: nothing.

Seconds of one core, not of the wall: the simulation is one process that never waits, and whatever else the
machine does meanwhile must not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.bench.figure import Figure
from tests.sim import child

SEEDS = 30
AGENTS = 3
SECONDS_MAX = 1800
SPEED_GOAL = 15.0
_SUMMARY = re.compile(r"(\d+) seeds · ([\d,]+) simulated s in [\d,]+ s, ([\d,.]+) s of a core .* bad (\d+)")


def figures() -> Iterable[Figure]:
    """Simulated seconds per second of a core with three agents, and the seeds that were bad."""
    wanted = ("--seeds", str(SEEDS), "--agents", str(AGENTS))
    done = child.run("tests.sim", *wanted, seconds_max=SECONDS_MAX)
    found = _SUMMARY.search(done.stdout)
    assert found is not None, done.stdout + done.stderr
    seeds, virtual, cpu, bad = (float(each.replace(",", "")) for each in found.groups())
    yield Figure(
        "simulation, 3 agents, all clients and jobs",
        virtual / cpu,
        "simulated s/s of a core",
        goal=SPEED_GOAL,
    )
    yield Figure(f"bad of {seeds:.0f} seeds of the simulation", bad, "seeds", goal=0.0, better="less")
