"""The chart's alerts ring for a full disk and for certificates, and not before (`make alarms` has more)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from deploy.services.prometheus import Prometheus
from tests.torture.alarms.__main__ import JOB, chart_rules, rings_after, scraped
from tests.torture.alarms.faults import EMBEDDED
from tests.torture.alarms.rigs import Embedded

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

OFTEN_S = 3
"""Between two scrapes; the rules' own patience (`for`) stays as it is."""
HEALTHY_S = 20.0


def test_alerts_ring_for_what_is_wrong_and_for_nothing_else(tmp_path: Path) -> None:
    groups = [group | {"interval": f"{OFTEN_S}s"} for group in chart_rules()]
    rig = Embedded(tmp_path)
    with Prometheus(groups=groups, labels=JOB, interval_s=OFTEN_S) as prometheus, rig:
        scraped(prometheus, rig)
        time.sleep(HEALTHY_S)
        assert prometheus.value("floe_ready") == [
            ({"__name__": "floe_ready", "instance": rig.targets[0], **JOB}, 1)
        ]
        assert prometheus.firing() <= {"FloeEventLoopLate"}, "a busy machine is late; nothing else is wrong"
        for fault in EMBEDDED:
            seconds, rang = rings_after(prometheus, fault, rig)
            assert seconds is not None, f"{fault.name}: only {rang} rang"
        assert not prometheus.failures()
