"""deploy/alerts.yaml: the table of docs/operations.md, each row once, asking for metrics that agents have."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from agent.telemetry.docs import own

ROOT = Path(__file__).resolve().parents[3]
ENDINGS = re.compile(r"_(bucket|sum|count)$")
UNMADE = {"FloeDamagedRecords", "FloeScrubBeyondRepair"}
"""No fault of `make alarms` damages an object; tests/deploy/test_alerts.py looks at the first one."""
NOT_OURS = re.compile(r"\bup\b")
CLUSTER = {"namespace"}
"""By which agents of several clusters are told apart in one Prometheus, which gives it to its targets."""


def rules() -> list[dict[str, object]]:
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def rows() -> dict[str, str]:
    """The expression of each row that is one, and for how long."""
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page[page.index("| alert when | for |") :].partition("\n\n")[0]
    found = re.findall(r"^\| `(.+?)`[^|]*\| ([^|]*)\|", table, re.MULTILINE)
    return {expression: wait.strip() for expression, wait in found if not NOT_OURS.search(expression)}


def test_each_row_is_a_rule_and_each_rule_a_row() -> None:
    asked = {str(rule["expr"]): str(rule["for"]) for rule in rules()}
    assert asked.keys() == rows().keys()
    for expression, wait in rows().items():
        said = re.match(r"(\d+) (min|s|h)\b", wait)
        assert asked[expression] == (f"{said[1]}{said[2][0]}" if said else "0m"), expression
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 25


def test_each_rule_asks_for_metrics_that_are_there_by_labels_that_they_have() -> None:
    known = {row.name: set(row.labels) for row in own()}
    for rule in rules():
        expression = str(rule["expr"])
        metrics = [ENDINGS.sub("", name) for name in re.findall(r"floe_[a-z_]+", expression)]
        assert metrics, expression
        assert set(metrics) <= known.keys(), rule["alert"]
        labels = set.intersection(*(known[name] for name in metrics))
        matched = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", expression))
        grouped = {
            label.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(",")
        }
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        told = set(re.findall(r"\$labels\.([a-z_]+)", annotations["summary"]))
        assert matched | grouped | told <= labels | CLUSTER, rule["alert"]
        assert grouped >= CLUSTER or not re.search(r"\b(max|min|sum|count)\b", expression), rule["alert"]


def test_each_row_of_the_runbook_rings_or_says_why_not() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page[page.index("| what | what clients see | what to do | what rings |") :].partition("\n\n")[0]
    template = (ROOT / "helm" / "floe" / "templates" / "prometheusrule.yaml").read_text()
    known = set(re.findall(r'"name" "(Floe[A-Za-z]+)"', template))
    rings = [row.rstrip(" |").rpartition(" | ")[2] for row in table.splitlines()[2:]]
    assert len(rings) > 15
    for each in rings:
        named = re.findall(r"Floe[A-Za-z]+", each)
        assert named or each.startswith("none: "), each
        assert set(named) <= known, each
    alarms = (ROOT / "tests" / "torture" / "alarms" / "faults.py").read_text()
    made = set(re.findall(r'"(Floe[A-Za-z]+)"', alarms))
    assert made <= known
    told = {name for each in rings for name in re.findall(r"Floe[A-Za-z]+", each)}
    assert told - made == UNMADE
