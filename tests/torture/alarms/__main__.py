"""Do the alerts ring within a minute, and only then? With a real Prometheus and the chart's own rules.

    python -m tests.torture.alarms [--only "etcd"] [--health MINUTES]

Each fault is made, and it is timed how long it takes until an alert that is meant for it rings. Scraping
is as the chart has it, every 15 s. With --health nothing is made, and nothing may ring.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from agent.cli.failures import Failure
from agent.cli.observing.cluster import look
from agent.health.ailments import Grade, ailments
from coordination.clock import SystemClock
from deploy.services.prometheus import Prometheus
from tests.torture.alarms.faults import EMBEDDED, QUORUM, SOUND_SECONDS_MAX, THREE, Fault
from tests.torture.alarms.rigs import Embedded, Quorum, Rig, Three

R = TypeVar("R", bound=Rig)
GOAL_S = 60.0
RING_SECONDS_MAX = 150.0
POLL_S = 0.5
SETTLED_S = 40.0
"""After a start or a fault: two scrapes and two judgements, and the minute's rates nearly."""
JOB = {"namespace": "streams", "job": "r-floe-agents"}
"""What the operator calls the chart's targets in the rendered rules."""
FOREIGN = {"FloeAgentsMissing"}
"""Counts as many agents as the rendered chart has."""
BEHIND_S = 10
"""How late a group may be: nobody waits here for the hour that the chart allows by default."""
RESULTS = Path(__file__).parents[1] / "results" / "alarms.json"


def rules(rendered: str) -> list[dict[str, Any]]:
    """The groups of the chart's PrometheusRule, without what is of its own number of agents."""
    documents = [each for each in yaml.safe_load_all(rendered) if each]
    (found,) = (each for each in documents if each["kind"] == "PrometheusRule")
    groups: list[dict[str, Any]] = found["spec"]["groups"]
    for group in groups:
        group["rules"] = [rule for rule in group["rules"] if rule["alert"] not in FOREIGN]
    return groups


def chart_rules() -> list[dict[str, Any]]:
    """As `helm template` renders them by default."""
    from tests.deploy.test_chart import CHART, render

    asked = (
        "prometheusRule.enabled=true",
        "serviceMonitor.enabled=true",
        f"prometheusRule.groupBehindSeconds={BEHIND_S}",
    )
    extra = [word for each in asked for word in ("--set", each)]
    return rules(render(CHART / "ci" / "full.yaml", *extra))


def rings_after(prometheus: Prometheus, fault: Fault[R], rig: R) -> tuple[float | None, set[str]]:
    """Make a fault, wait for its alert, end it. Seconds until it rang (None: never), and all that rang."""
    _wait_for_silence(prometheus, fault.alerts)
    before = prometheus.firing()
    begun = time.monotonic()
    undo = fault.begin(rig)
    rang: float | None = None
    while rang is None and time.monotonic() - begun < RING_SECONDS_MAX:
        if prometheus.firing() & set(fault.alerts):
            rang = time.monotonic() - begun
        time.sleep(POLL_S)
    others = prometheus.firing() - before
    others |= {f"doctor: {each}" for each in wrong(rig)}
    undo()
    return rang, others


def wrong(rig: Rig) -> list[str]:
    """What `floe doctor` finds, asked of the last agent."""
    try:
        found = ailments(look(f"http://{rig.targets[-1]}"), SystemClock().now_ms())
    except Failure as failure:
        return [str(failure)]
    return [f"{each.where}: {each.what}" for each in found if each.grade is Grade.WRONG]


def _wait_for_silence(prometheus: Prometheus, alerts: Iterable[str]) -> None:
    """None of them may ring from an earlier fault."""
    deadline = time.monotonic() + SOUND_SECONDS_MAX
    while prometheus.firing() & set(alerts):
        assert time.monotonic() < deadline, (
            f"{alerts} still ring {SOUND_SECONDS_MAX} s after an earlier fault"
        )
        time.sleep(POLL_S)


def scraped(prometheus: Prometheus, rig: Rig) -> None:
    """Have Prometheus scrape the rig's agents, and wait until it has seen each."""
    prometheus.scrape(rig.targets)
    deadline = time.monotonic() + SOUND_SECONDS_MAX
    while {labels["instance"] for labels, _ in prometheus.value("floe_ready")} != {*rig.targets}:
        assert time.monotonic() < deadline, f"not all of {rig.targets} were scraped in {SOUND_SECONDS_MAX} s"
        time.sleep(POLL_S)


def run(prometheus: Prometheus, rig: R, faults: Sequence[Fault[R]]) -> Iterator[dict[str, Any]]:
    """Every fault on one rig."""
    if not faults:
        return
    with rig:
        scraped(prometheus, rig)
        time.sleep(SETTLED_S)
        for fault in faults:
            seconds, others = rings_after(prometheus, fault, rig)
            row = {"fault": fault.name, "seconds": seconds, "rang": sorted(others)}
            print(
                f"{fault.name}: {'silent' if seconds is None else f'{seconds:.0f} s'}; {sorted(others)}",
                flush=True,
            )
            yield row
        assert not prometheus.failures(), prometheus.failures()
    prometheus.scrape([])


def healthy(prometheus: Prometheus, minutes: float) -> list[str]:
    """What rang in so long a time in which nothing was wrong."""
    rang: set[str] = set()
    with Three() as rig:
        scraped(prometheus, rig)
        deadline = time.monotonic() + minutes * 60
        while time.monotonic() < deadline:
            for fresh in prometheus.firing() - rang:
                print(f"rings: {fresh}", flush=True)
            rang |= prometheus.firing()
            time.sleep(POLL_S)
    return sorted(rang)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each fault; 1 when one did not ring in time."""
    parser = argparse.ArgumentParser(prog="tests.torture.alarms")
    parser.add_argument("--only", default="", help="faults with this in their names")
    parser.add_argument("--health", type=float, default=0, help="minutes without a fault")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, Prometheus(groups=chart_rules(), labels=JOB) as prometheus:
        if asked.health:
            rang = healthy(prometheus, asked.health)
            print(f"{asked.health:g} min of health: {rang or 'nothing'} rang")
            return 1 if rang else 0
        found = [
            *run(prometheus, Three(), [each for each in THREE if asked.only in each.name]),
            *run(prometheus, Quorum(), [each for each in QUORUM if asked.only in each.name]),
            *run(prometheus, Embedded(Path(folder)), [each for each in EMBEDDED if asked.only in each.name]),
        ]
    if not asked.only:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    late = [each["fault"] for each in found if each["seconds"] is None or each["seconds"] > GOAL_S]
    print(
        f"{len(found) - len(late)} of {len(found)} rang within {GOAL_S:.0f} s"
        + (f"; not: {late}" if late else "")
    )
    return 1 if late or not found else 0


if __name__ == "__main__":
    sys.exit(main())
