"""What kube-score says of the chart: nothing, but for what it is not asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.deploy.test_chart import CHART, each_values, render, run

pytestmark = pytest.mark.services

UNASKED = {
    "container-image-pull-policy": "images are named by version or digest; image.pullPolicy says otherwise",
    "container-ephemeral-storage-request-and-limit": "scratch.sizeLimit bounds it",
    "pod-networkpolicy": "networkPolicy.enabled, for who has such networks",
    "statefulset-has-host-podantiaffinity": "they are spread by constraints; podAntiAffinity says more",
    "deployment-has-host-podantiaffinity": "the same",
    "service-targets-pod": "the controller gives each pod the label with its name",
    "service-type": "a NodePort is there where values ask for it",
    "horizontalpodautoscaler-replicas": "one agent of a group is enough where other groups have some",
}
"""Checks of kube-score that the chart goes without, with the reason."""

# A limit of CPU holds an agent up in the middle of a flush.
SCORE = ("score", "--output-format", "ci", "--ignore-container-cpu-limit")


def scored(rendered: str) -> subprocess.CompletedProcess[str]:
    less = [part for name in UNASKED for part in ("--ignore-test", name)]
    return run("kube-score", *SCORE, *less, "-", stdin=rendered)


@each_values
def test_kube_score_finds_nothing(values: Path) -> None:
    done = scored(render(values))
    wrong = [line for line in done.stdout.splitlines() if not line.startswith(("[OK]", "[SKIPPED]"))]
    assert (done.returncode, wrong) == (0, []), done.stderr


def test_kube_score_can_find_something() -> None:
    writable = render(CHART / "ci" / "minimal.yaml").replace(
        "readOnlyRootFilesystem: true", "privileged: true"
    )
    done = scored(writable)
    assert done.returncode != 0
    assert "[CRITICAL] r-floe apps/v1/StatefulSet: (agent)" in done.stdout
