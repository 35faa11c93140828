"""What `make kubernetes` has a gateway do fits the chart: names, listeners, ports, and who may what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.services import build
from deploy.services.build import BuildError, module_files
from tests.deploy.test_chart import given, render, resources
from tests.kubernetes import gateway, page, routes
from tests.kubernetes.load import RATE

pytestmark = pytest.mark.services


def there() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(gateway.objects())}


def test_every_route_leads_to_a_listener_that_the_gateway_has(tmp_path: Path) -> None:
    """And the agents are told the port that its Service has open."""
    gateway_of_ours = there()["Gateway"]
    listeners = {each["name"]: each for each in gateway_of_ours["spec"]["listeners"]}
    rendered = resources(render(given(tmp_path, replicas=routes.AGENTS, **routes.VALUES)))
    found = [each for each in rendered.values() if each["kind"] in ("HTTPRoute", "TLSRoute")]
    assert len(found) == 1 + routes.AGENTS + 1
    for route in found:
        (parent,) = route["spec"]["parentRefs"]
        metadata = gateway_of_ours["metadata"]
        assert (parent["name"], parent["namespace"]) == (metadata["name"], metadata["namespace"])
        protocol = "HTTP" if route["kind"] == "HTTPRoute" else "TLS"
        assert listeners[parent["sectionName"]]["protocol"] == protocol
    opened = {each["port"]: each["targetPort"] for each in there()["Service"]["spec"]["ports"]}
    assert opened[routes.PORT] == listeners["kafka"]["port"], "where Metadata sends clients"
    assert (
        rendered["Ingress/r-floe"]["spec"]["ingressClassName"] == there()["IngressClass"]["metadata"]["name"]
    )


def test_traefik_has_an_entry_point_for_each_listener_and_may_read_what_it_watches() -> None:
    (container,) = there()["Deployment"]["spec"]["template"]["spec"]["containers"]
    points = {each.rpartition(":")[2] for each in container["args"] if ".address=" in each}
    assert {str(each["port"]) for each in there()["Gateway"]["spec"]["listeners"]} <= points
    rules = there()["ClusterRole"]["rules"]
    read = {kind for rule in rules for kind in rule["resources"] if "watch" in rule["verbs"]}
    assert {"httproutes", "tlsroutes", "ingresses", "endpointslices", "secrets"} <= read
    assert all(set(rule["verbs"]) <= {"get", "list", "watch", "update", "patch"} for rule in rules)


def test_files_of_a_module_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time no Go is asked; what no go.mod pins is refused by name."""
    tool = tmp_path / "tools" / "one"
    (tool / "other" / "crds").mkdir(parents=True)
    (tool / "other" / "crds" / "a.yaml").write_text("a: 1\n")
    (tool / "other" / "go.mod").write_text("module example.org/other\n\ngo 1.20\n")
    (tool / "go.sum").write_text("")
    (tool / "go.mod").write_text("module floe/tools/one\n\ngo 1.20\n\ntool floe/tools/one\n")
    monkeypatch.setattr(build, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(build, "OUTPUT", tmp_path / "built")
    with pytest.raises(BuildError, match=r"module example\.org/other cannot be had"):
        module_files("one", "example.org/other", "crds")
    kept = tmp_path / "built" / "modules" / f"one-{build._fingerprint(tool)[:16]}" / "example.org/other/crds"
    kept.mkdir(parents=True)
    monkeypatch.setattr(build, "find_go", lambda _needed: pytest.fail("Go was asked for"))
    assert module_files("one", "example.org/other", "crds") == kept


def test_the_page_tells_where_the_load_was_lighter() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "rate": 10},
        {"name": "c", "rate": 10},
        {"name": "d", "rate": RATE},
    ]
    assert page.lighter(rows) == " In b and c it was 10 a second."
    assert page.lighter(rows[:1]) == ""
