"""`floe status`: one agent's view of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from agent.cli import agent_http
from agent.cli.failures import Status
from agent.cli.options import HTTP_DEFAULT, Form, Http, Output
from agent.cli.output import print_json, print_table, results

FACTS = ("agent", "node_id", "version", "native", "cluster", "revision", "state_hash", "feature_level")
COUNTS = ("topics", "partitions", "schemas")


def status(http: Http = HTTP_DEFAULT, output: Output = Form.TABLE) -> None:
    """Show an agent's readiness, dependencies, state and brokers. Status 1 when it is not ready."""
    _, found, processes = agent_http.status_at(http)
    if output is Form.JSON:
        print_json(found)
    else:
        _print_processes(processes)
        _print(found)
    if not found["ready"]:
        raise typer.Exit(Status.FAILED)


def _print_processes(processes: Sequence[Mapping[str, Any]]) -> None:
    """Of a machine with several, before the one that is shown."""
    if processes:
        columns = ("process", "agent", "pid", "ready", "replaced", "last end")
        names = ("process", "name", "pid", "ready", "replaced", "last_end")
        print_table(columns, [[each[name] for name in names] for each in processes])


def _print(found: dict[str, Any]) -> None:
    console = results()
    console.print("ready" if found["ready"] else f"NOT READY: {'; '.join(found['reasons'])}")
    print_table(("", ""), [(name.replace("_", " "), found.get(name)) for name in (*FACTS, *COUNTS)])
    print_table(
        ("dependency", "ok", "latency ms", "message"),
        [
            (d["name"], "yes" if d["ok"] else "no", d["latency_ms"], d["message"])
            for d in found["dependencies"]
        ],
    )
    if found["failing_jobs"]:
        print_table(
            ("failing job", "since", "failures", "last error"),
            [(j["job"], j["since"], j["failures"], j["error"]) for j in found["failing_jobs"]],
        )
    print_table(
        ("node", "broker", "listeners", "http", "version", "unwell"),
        [
            (
                b["node_id"],
                b["name"],
                " ".join(b["listeners"]),
                b["http"],
                b["version"],
                b.get("unwell") or "",
            )
            for b in found["brokers"]
        ],
    )
