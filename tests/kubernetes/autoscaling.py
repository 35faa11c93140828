"""Autoscalers of the chart: more agents under more load, fewer when it has gone.

By CPU, from the metrics server. The target is what the agents use under the load that every experiment has,
a fifth of that and some more: with four of them that load is far below what takes one away. Then producers
that send as much as is taken come and go.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from deploy.kubernetes.node import NodeError
from tests.kubernetes.load import Burst

if TYPE_CHECKING:
    from tests.kubernetes.lab import Lab

FEWEST, MOST = 3, 4
STEADY_SECONDS = 10
"""In which the autoscaler wants the same before it takes an agent away; the chart's 600 are long here."""
LOOKS = 3


def up_and_down(lab: Lab) -> str:
    """3 agents, a burst until there are 4, and back to 3."""
    usual = _cpu_percent(lab)
    target = round(usual * 1.2) + 5
    before = lab.uids()
    lab.install("upgrade", "--set-json", f"autoscaling={json.dumps(_settings(target))}")
    lab.until_ready(FEWEST)
    if (now := lab.uids()) != before:
        raise NodeError(f"switching the autoscaler on replaced agents: {before}, now {now}")
    with Burst(lab.bootstrap, "burst-0") as burst, Burst(lab.bootstrap, "burst-1") as other:
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
        f"agents used {usual} % of their request; a HorizontalPodAutoscaler for {target} % made 3 agents 4, "
        f"ready {up_s:.0f} s after a burst began ({more:,} more records), and 3 again "
        f"{down_s:.0f} s after its end"
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
    """Of the request of 100m, on average over the agents, the median of some looks at the metrics server."""
    path, seen = "/apis/metrics.k8s.io/v1beta1/namespaces/floe/pods", list[int]()
    wanted = {each["metadata"]["name"] for each in lab.agents()}

    def looked() -> bool:
        used = {
            each["metadata"]["name"]: sum(_milli(c["usage"]["cpu"]) for c in each["containers"])
            for each in json.loads(lab.node.kubectl("get", "--raw", path))["items"]
            if each["metadata"]["name"] in wanted
        }
        if used.keys() == wanted:
            seen.append(round(sum(used.values()) / len(used)))
            time.sleep(STEADY_SECONDS / 2)
        return len(seen) == LOOKS

    lab.until(looked, "the metrics server knows not all agents")
    return sorted(seen)[len(seen) // 2]


def _milli(quantity: str) -> float:
    """Thousandths of a core, of a quantity such as 12345678n, 250m or 1."""
    for unit, of_one in (("n", 1e-6), ("u", 1e-3), ("m", 1.0)):
        if quantity.endswith(unit):
            return float(quantity[:-1]) * of_one
    return float(quantity) * 1000
