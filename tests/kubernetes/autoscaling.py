"""Autoscalers of the chart: more agents under more load, fewer when it has gone.

By CPU, from the metrics server, in a release of its own beside Spark's jobs. The target is nearly twice what
its agent uses under the usual load: two of them use well over half as much each, as each follows the whole
log, and one is taken away where both together use less than one may. Then producers of small requests come
and go; what they send is bounded.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deploy.kubernetes.node import NodeError
from tests.kubernetes.load import Burst

if TYPE_CHECKING:
    from tests.kubernetes.lab import Lab

NAME = "autoscaling"
RELEASE = "floe-small"
FEWEST, MOST = 1, 2
STEADY_SECONDS = 5
"""In which the autoscaler wants the same before it takes an agent away; the chart's 600 are long here."""
LOOKS = 1
WINDOW_SECONDS_MIN = 2.5
"""Shorter ones were seen, of 0.6 s."""
BURST_RATE = 150
"""Records a second, and as many requests, of each of two producers."""
UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Of Go's durations, such as 1m2.5s."""


def up_and_down(lab: Lab) -> str:
    """FEWEST agents, a burst until there are MOST, and back to FEWEST."""
    usual = _cpu_percent(lab)
    target = round(usual * 1.9)
    before = lab.uids()
    lab.install("upgrade", "--set-json", f"autoscaling={json.dumps(_settings(target))}")
    lab.until_ready(FEWEST)
    if (now := lab.uids()) != before:
        raise NodeError(f"switching the autoscaler on replaced agents: {before}, now {now}")
    first, second = (Burst(lab.bootstrap, f"burst-{number}", BURST_RATE) for number in range(2))
    with first as burst, second as other:
        begun = time.monotonic()
        lab.until_ready(MOST)
        up_s = time.monotonic() - begun
    gone = time.monotonic()
    lab.until_ready(FEWEST)
    down_s = time.monotonic() - gone
    lab.install("upgrade")
    lab.until_ready(FEWEST)
    if lost := burst.lost + other.lost:
        told = burst.told + other.told
        raise NodeError(f"{lost} of the burst's records were not acknowledged: {dict(told)}")
    more = burst.acknowledged + other.acknowledged
    return (
        f"in a release of its own, beside the jobs: the agent used {usual} % of its request; "
        f"a HorizontalPodAutoscaler for {target} % made {FEWEST} agent {MOST}, ready {up_s:.0f} s after a "
        f"burst began ({more:,} more records), and {FEWEST} again {down_s:.0f} s after its end"
    )


def _settings(target: int) -> dict[str, object]:
    down = {"type": "Pods", "value": 1, "periodSeconds": STEADY_SECONDS}
    return {
        "enabled": True,
        "minReplicas": FEWEST,
        "maxReplicas": MOST,
        "targetCPUUtilizationPercentage": target,
        "behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0},
            "scaleDown": {"stabilizationWindowSeconds": STEADY_SECONDS, "policies": [down]},
        },
    }


def _cpu_percent(lab: Lab) -> int:
    """Of the request of 100m, on average over the agents and LOOKS of the metrics server at them.

    Only what it measured from now on counts: an agent that has just started took two seconds of a core for
    that, which in a window of ten looks like a fifth of one more, and made the target one that no load meets.
    """
    path, since = "/apis/metrics.k8s.io/v1beta1/namespaces/floe/pods", time.time()
    wanted = {each["metadata"]["name"] for each in lab.agents()}
    seen = dict[tuple[str, str], float]()

    def looked() -> bool:
        for each in lab.node.asked(path)["items"]:
            name = each["metadata"]["name"]
            if name in wanted and counts(each, since):
                used = sum(milli(container["usage"]["cpu"]) for container in each["containers"])
                seen[name, each["timestamp"]] = used
        looks = Counter(name for name, _ in seen)
        return all(looks[name] >= LOOKS for name in wanted)

    lab.until(looked, f"the metrics server does not look at all agents {LOOKS} times")
    return round(sum(seen.values()) / len(seen))


def counts(metrics: Mapping[str, Any], since: float) -> bool:
    """Whether what the metrics server says of a pod was all measured after `since`, Unix time in seconds, and
    for long enough."""
    parts = re.findall(r"([0-9.]+)(h|ms|m|s|us|µs|ns)", metrics["window"])
    seconds = sum(float(number) * UNIT_S[unit] for number, unit in parts)
    began = datetime.fromisoformat(metrics["timestamp"]).timestamp() - seconds
    return seconds >= WINDOW_SECONDS_MIN and began >= since


def milli(quantity: str) -> float:
    """Thousandths of a core, of a quantity such as 12345678n, 250m or 1."""
    for unit, of_one in (("n", 1e-6), ("u", 1e-3), ("m", 1.0)):
        if quantity.endswith(unit):
            return float(quantity[:-1]) * of_one
    return float(quantity) * 1000
