"""Writes docs/kubernetes.md from results.json: `python -m tests.kubernetes.page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kubernetes.load import IN_A_TRANSACTION
from tests.torture.rolling import RATE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
KEPT = Path(__file__).with_name("results.json")
LIMITS = """\
## What this does not show

* One node: `kubectl drain` would leave no place for what it evicts, so the same evictions are asked for by
  the API, without the cordon.
* The network enforces no NetworkPolicy, and there is no metrics server: neither policies nor autoscaling
  run here. What the chart renders for them is checked in `tests/deploy`.
* A node that is really out of memory (an agent's processes are killed instead), and the audit and Spark as
  Jobs, are not run here yet.
"""
PAUSES = "pause: producers | transactions | groups"


def text(results: dict[str, Any]) -> str:
    """The page."""
    experiments = results["experiments"]
    rows = "\n".join(_row(each) for each in experiments)
    total = sum(each["acknowledged"] for each in experiments)
    return f"""\
# On a real Kubernetes

Written by `make kubernetes` from what it saw; [tests/kubernetes](../tests/kubernetes/README.md) says how.
Kubernetes {results["kubernetes"]}, one node, two cores, Pod Security *restricted*; etcd with three members
and MinIO with one are pods too, with disks. Times are those of the machine, which did other work meanwhile.

The load of every experiment: two idempotent producers of {RATE} records a second each, transactions of
{IN_A_TRANSACTION} records at the same rate, a member of a classic group and one of a KIP-848 group, all
of them librdkafka's. A **pause** is the longest time between two acknowledgements, commits or records of
one client. **Errors** are those told to an application; transactions that had to be aborted, and were
repeated, count apart.

| what | acknowledged | errors | aborted | lost | doubled | unread | {PAUSES} | took |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}

{total:,} records were acknowledged.

{_figures(results)}

## What each did

{chr(10).join(_note(each) for each in experiments)}

{LIMITS}"""


def _figures(results: dict[str, Any]) -> str:
    uninstall = results["uninstall"]
    left = ", ".join(uninstall["left"]) or "nothing"
    return f"""\
| figure | value |
|---|---|
| image of the agent, compressed | {results["image_bytes"] / 1e6:.0f} MB |
| node ready, images imported | {results["node_s"]} s |
| etcd and MinIO ready | {results["services_s"]} s |
| `helm install --wait`, bucket made by its Job | {results["install_s"]} s |
| an agent, from its container's start to ready (whole seconds of the API) | {results["start_s"]:.0f} s |
| `helm test` | {"passed" if results["helm_test"] else "failed"} |
| `helm uninstall`: objects left | {left} |
| records before it, and after a new install | {uninstall["before"]:,}, {uninstall["after"]:,} |
| all of it, without builds | {results["all_s"] / 60:.1f} min |"""


def _row(each: dict[str, Any]) -> str:
    pauses = each["pauses"]
    shown = [f"{pauses[kind]:.2f} s" for kind in ("idempotent", "transactions", "group")]
    counts = [
        f"{each[name]:,}" for name in ("acknowledged", "errors", "aborted", "lost", "doubled", "unread")
    ]
    return "| " + " | ".join([each["name"], *counts, *shown, f"{each['seconds']:.0f} s"]) + " |"


def _note(each: dict[str, Any]) -> str:
    said = f" Told: {'; '.join(each['told'])}." if each["told"] else ""
    return f"* **{each['name']}**: {each['note']}.{said}"


def write(results: dict[str, Any]) -> None:
    """Write the page."""
    PAGE.write_text(text(results))


if __name__ == "__main__":
    write(json.loads(KEPT.read_text()))
