"""Writes docs/kubernetes.md from results.json: `python -m tests.kubernetes.page`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.kubernetes.load import IN_A_TRANSACTION, RATE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kubernetes.md"
KEPT = Path(__file__).with_name("results.json")
LIMITS = """\
## What this does not show

* One node: `kubectl drain` would leave no place for what it evicts, so the same evictions are asked for by
  the API, without the cordon.
* A node without memory: the machine is used by others, so it is a container's limit that is reached. The
  kernel's choice and the kubelet's answer are the same; the node's own evictions are not seen.
* Waits that values set, here: {waiting}; the chart by
  itself has 5 s, 5 s and 10 minutes. `helm upgrade` sets the first to what its row says. The
  autoscaler decides every 2 s, by figures of {figures_s} s. By queue bytes, which need an adapter of
  Prometheus, nothing was scaled.
* The load comes from the node, which Kubernetes lets through every NetworkPolicy. Who is kept out is seen by
  two pods of their own. kube-router's rules are what enforces; another network may do it otherwise.
* Disks: the pods' volumes are memory, so that other work of the machine's disk is not seen as etcd's.
* Other gateways than Traefik, and TLS that a gateway ends itself: HTTP came to it in the clear. Its Service
  has an address of the cluster, for no balancer is here that would give it one of outside.
* Spark with executors in pods of their own (its jobs ran in one pod each, `local`), the Spark operator,
  cert-manager and a Prometheus in the cluster.
"""
SOURCES = """\
## Where waits come from

* An agent that stops says so first, and answers NOT_LEADER_OR_FOLLOWER from then on; consumers it sends on to
  others at once where they surely know the address, which of a pod that was just replaced they do not. The
  next answer of Metadata names others: 3 ms later in librdkafka's own log. Then librdkafka lets the partition
  rest, a consumer for `fetch.error.backoff.ms` (500 ms), a producer for `retry.backoff.ms` (100 ms): settings
  of the client.
* An agent that is killed says nothing. The others lead instead of it when it has been silent for
  `health.silence_ms_max` (3.5 s; 0.3 s more for each agent that would say it first), or sooner, when the
  kubelet has started it again: then for `health.return_ms` (2 s), for librdkafka, refused three times, tries
  the same address again after up to 10 s, but asks each second who leads. That is what its producers,
  transactions and groups wait.
* Kubernetes sends SIGTERM to a pod that is deleted by force, too: the log of its agent, kept beyond the pod,
  goes on with its stop, and to its end (seen while the machine had a third of the processor it wanted).
* A transaction that waits holds up who reads committed records of its partitions, records of others too: of
  two groups the slower wait is often that of the transaction before.
* etcd's and MinIO's pods: until they are there again.
* The rest is the machine's two cores. An agent that starts wants one for some 1.3 s, nearly all for imports.
  With 50 records a second and producer, which agents, etcd and MinIO took 1.4 to 1.6 of the two for, p99 was
  0.6 to 1.3 s in rollouts, drains and scale-ups; with 100, which left next to nothing, 0.8 to 1.7 s.
"""
GOALS_S = {"rollout restart": 1.0, "drain": 1.0, "delete --force": 5.0, "scale": 1.0}
"""At p99, of every kind of client."""
FAILED = "**failed**"
WAITS = "wait, p99 / longest: producers | transactions | groups"
KINDS = ("idempotent", "transactions", "group")


def text(results: dict[str, Any]) -> str:
    """The page."""
    experiments = results["experiments"]
    rows = "\n".join(_row(each) for each in experiments)
    total = sum(each["acknowledged"] for each in experiments)
    settled = results.get("settle_s", 3.0)  # of runs before it was kept
    return f"""\
# On a real Kubernetes

Written by `make kubernetes` from what it saw; [tests/kubernetes](../tests/kubernetes/README.md) says how.
Kubernetes {results["kubernetes"]}, one node, two cores, Pod Security *restricted*; etcd with three members
and MinIO with one are pods too, with volumes. Times are those of the machine, which did other work meanwhile.

The load of every experiment: two idempotent producers of {RATE} records a second each, transactions of
{IN_A_TRANSACTION} records at the same rate, a member of a classic group and one of a KIP-848 group, all
of them librdkafka's.{lighter(experiments)}

A **wait** is what one record took: of a producer from when it was due (at that rate, also while others wait)
until it was acknowledged; of a transaction from its begin until it was committed, repeated where it had to
be; of a group from when the producer was given the record until the member had it.
Shown are the 99th percentile of all that was due while the experiment lasted, {settled:.0f} s after its end
included, and the longest. A time without any answer, a **pause**, is no longer than the longest wait.
**Errors** are those told to an application; transactions that had to be aborted, and were repeated, count
apart.

| what | acknowledged | errors | aborted | lost | doubled | unread | {WAITS} | took |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}

{total:,} records were acknowledged.{_apart(experiments)} {goals(experiments)}

{_figures(results)}
{steps(results)}
## What each did

{chr(10).join(_note(each) for each in experiments)}

{SOURCES}
{LIMITS.format(waiting=_waiting(results), figures_s=results.get("metrics_s", 10))}"""


def lighter(experiments: list[dict[str, Any]]) -> str:
    """Where it was another rate."""
    rates = dict[int, list[str]]()
    for each in experiments:
        if (rate := each.get("rate", RATE)) != RATE:
            rates.setdefault(rate, []).append(each["name"])
    return "".join(f" In {' and '.join(names)} it was {rate} a second." for rate, names in rates.items())


def _waiting(results: dict[str, Any]) -> str:
    """Settings of the run, seconds; those of runs before they were kept are the chart's but for the last."""
    early = {"preStopSeconds": 5, "minReadySeconds": 5, "an agent less after": 15}
    shown = [f"`{name}` {seconds} s" for name, seconds in results.get("waiting_s", early).items()]
    return ", ".join(shown).replace("`an agent less after`", "the autoscaler's steady time")


def merged(kept: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The results of a whole run with the experiments of a later one, of some, which it marks; and what the
    later one saw of an agent's start. One that could not be done to its end takes nobody's place."""
    rows = {each["name"]: each for each in kept["experiments"]}
    rows |= {
        each["name"]: each | {"apart": True} for each in found["experiments"] if FAILED not in each["note"]
    }
    return kept | {"experiments": list(rows.values()), "starts_s": found["starts_s"]}


def _apart(experiments: list[dict[str, Any]]) -> str:
    names = [each["name"] for each in experiments if each.get("apart")]
    return f" Run apart from the rest, later: {', '.join(names)}." if names else ""


def goals(experiments: list[dict[str, Any]]) -> str:
    """Whether each kept its goal."""
    found = []
    for each in experiments:
        goal = GOALS_S.get(each["name"])
        if goal is not None:
            worst = max(each["waits_p99"].values())
            missed = "" if worst <= goal else " (**missed**)"
            found.append(f"{each['name']} {worst:.2f} of {goal:g} s{missed}")
    return f"Goals of p99, the worst kind of client: {', '.join(found)}." if found else ""


def _figures(results: dict[str, Any]) -> str:
    uninstall = results["uninstall"]
    took = round(sum(each["seconds"] for each in results["experiments"] if not each.get("apart")))
    left = ", ".join(uninstall["left"]) or "nothing"
    starts = results["starts_s"]
    ready = f"median of {len(starts)}: {statistics.median(starts)} s ({starts[0]} to {starts[-1]} s)"
    return f"""\
| figure | value |
|---|---|
| image of the agent, compressed | {results["image_bytes"] / 1e6:.0f} MB |
| node ready, images imported | {results["node_s"]} s |
| etcd and MinIO ready | {results["services_s"]} s |
| `helm install --wait`, bucket made by its Job | {results["install_s"]} s |
| experiments | {took} s |{_phases(results)}
| an agent with a limit of 1 CPU, from its container's start to ready | {ready} |
| `helm test` | {"passed" if results["helm_test"] else "failed"} |
| `helm uninstall`: objects left | {left} |
| records before it, and after a new install | {uninstall["before"]:,}, {uninstall["after"]:,} |
| built or found before it | {results["built_s"]} s |
| all of it, without builds | {results["all_s"] / 60:.1f} min |"""


def steps(results: dict[str, Any]) -> str:
    """Where the time went; an experiment has its clients' beginning beside it."""
    if "steps" not in results:
        return ""
    names = [each["name"] for each in results["experiments"]]
    found = {each["step"]: each for each in results["steps"]}
    rows, told = list[str](), set[str]()
    for step, each in found.items():
        name = next((each for each in names if step == f"{each}: clients begin"), "")
        if step in told:
            continue
        parts = (step, name) if name in found else (step,)
        told.update(parts)
        took = [f"{found[part]['seconds']} s" for part in parts]
        first = [name, *took] if len(took) > 1 else [_aside(each), "", *took]
        rows.append(_cells([*first, *_cores([found[part] for part in parts])]))
    rows.append(
        _cells(["**all**", "", f"{sum(map(_seconds, found.values())):.1f} s", *_cores(found.values())])
    )
    head = _cells(["step", "until its clients begin", "itself", "core-seconds", *_WHO])
    return f"\n## Where its time goes\n\n{STEPS}\n{head}\n|{'---|' * 8}\n" + "\n".join(rows) + "\n"


_WHO = ("pods", "Kubernetes", "clients", "tools")
STEPS = """\
One step after another, and the core-seconds of all meanwhile: two cores have two a second. *Clients*: those
of the load, and what looks at the cluster. *Tools*: kubectl and helm. What ran *beside* is in those of the
steps that it was beside.
"""


def _seconds(step: dict[str, Any]) -> float:
    return 0.0 if step.get("beside") else float(step["seconds"])


def _aside(step: dict[str, Any]) -> str:
    return f"{step['step']}, beside" if step.get("beside") else str(step["step"])


def _cores(parts: Iterable[dict[str, Any]]) -> list[str]:
    """All, then by who took them; of results before they were kept, and of what was beside, nothing."""
    kept = [each["core_seconds"] for each in parts if "core_seconds" in each]
    by = [sum(each[who] for each in kept) for who in _WHO]
    return [f"{sum(by):.1f}", *(f"{each:.1f}" for each in by)] if kept else [""] * (1 + len(_WHO))


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _phases(results: dict[str, Any]) -> str:
    """What runs before there were these figures do not tell."""
    phases = {
        "between_s": "between them: clients that begin, all records read",
        "end_s": "uninstall, a new install, all records read again, starts",
    }
    return "".join(f"\n| {said} | {results[key]} s |" for key, said in phases.items() if key in results)


def _row(each: dict[str, Any]) -> str:
    p99, longest = each["waits_p99"], each["waits_longest"]
    shown = [f"{p99[kind]:.2f} / {longest[kind]:.2f} s" for kind in KINDS]
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
