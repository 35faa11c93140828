"""Reads one figure from an agent's /metrics."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def metric(http: str, name: str, **labels: str) -> float:
    """The sum of a sample over its labels that agree with `labels`. Raises KeyError when there is none."""
    return sum(metrics(http, name, **labels))


def metrics(http: str, name: str, **labels: str) -> list[float]:
    """A sample's values with labels that agree with `labels`. Raises KeyError when there is none."""
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    if not found:
        raise KeyError(f"{http}/metrics has no {name} {labels}")
    return found
