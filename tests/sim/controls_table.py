"""Runs the controls: each rule is broken until it is caught, by an anomaly that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.sim.controls import CONTROLS, Control
from tests.sim.controls_of_archive import ARCHIVE
from tests.sim.controls_of_bindings import BINDINGS
from tests.sim.controls_of_copies import COPIES
from tests.sim.controls_of_damage import DAMAGE
from tests.sim.controls_of_deletion import DELETION
from tests.sim.controls_of_health import HEALTH
from tests.sim.controls_of_hedges import HEDGES
from tests.sim.controls_of_producers import PRODUCERS
from tests.sim.controls_of_quarantine import QUARANTINE
from tests.sim.controls_of_queues import QUEUES
from tests.sim.controls_of_relays import RELAYS
from tests.sim.controls_of_replicas import REPLICAS
from tests.sim.controls_of_scrub import SCRUB
from tests.sim.controls_of_subjects import SUBJECTS
from tests.sim.controls_of_tables import TABLES
from tests.sim.plan import plan_of
from tests.sim.world import World

SEEDS_MAX = 200
SECONDS = 20.0
EVERY = (
    *PRODUCERS,
    *CONTROLS,
    *BINDINGS,
    *SUBJECTS,
    *QUARANTINE,
    *TABLES,
    *DAMAGE,
    *DELETION,
    *ARCHIVE,
    *SCRUB,
    *HEALTH,
    *HEDGES,
    *RELAYS,
    *COPIES,
    *REPLICAS,
    *QUEUES,
)


class Caught(NamedTuple):
    """One line of the table. `anomaly` is empty when it was not caught."""

    control: Control
    anomaly: str
    seeds: int
    """Seeds from 1 on, to the one that shows it."""
    runs: int
    """Of these, the ones whose plan comes to the rule at all, which were run."""


def catch(names: Sequence[str] = (), seconds: float = SECONDS) -> Iterator[Caught]:
    """Each control, or those of these names."""
    for control in EVERY:
        if not names or control.name in names:
            yield _catch(control, seconds)


def _catch(control: Control, seconds: float) -> Caught:
    runs = 0
    for seed in range(1, SEEDS_MAX + 1):
        plan = plan_of(seed, seconds)
        if not control.reached(plan):
            continue
        runs += 1
        with control.broken():
            try:
                findings = World(control.told(plan)).run().judgement.findings
            except Exception:  # of a client that spins on what no agent would say, or of a state that is none
                continue
        found = next((each.anomaly for each in findings if each.anomaly in control.anomalies), "")
        if found:
            return Caught(control, found, seed, runs)
    return Caught(control, "", SEEDS_MAX, runs)
