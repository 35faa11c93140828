"""The house rules hold for every file that is tracked. A failure lists every place.

No file is exempt. Generated text is not measured; its generators are.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from agent.architecture import PAGE as ARCHITECTURE
from agent.architecture import render as architecture
from agent.config import Config
from agent.config.docs import PAGE as CONFIGURATION
from agent.config.docs import render as configuration
from agent.config.schema import settings
from agent.kafka.handlers.docs import PAGE as PROTOCOL
from agent.kafka.handlers.docs import render as protocol
from agent.net.wire import generate as wire
from agent.telemetry.metrics import Metrics
from agent.version import VERSION
from tests.compat.suite.page import PAGE as CLIENTS
from tests.compat.suite.page import render as clients
from tests.tidy import rules
from tests.tidy.files import ROOT, File, Problem, house

BEGINS_CHARS = 45  # of a line of the changelog: two that begin alike say the same
RULES = (
    rules.files_are_short,
    rules.functions_are_short,
    rules.public_names_are_documented,
    rules.rooms_have_a_readme,
    rules.nothing_is_left_for_later,
    rules.named_files_exist,
    rules.cited_rules_exist,
    rules.incarnations_are_told_one_way,
    rules.nothing_names_this_machine,
    rules.ignores_have_reasons,
    rules.tests_do_not_evade,
    rules.tasks_have_a_last_resort,
    rules.nothing_is_raised_in_except_star,
    rules.secrets_are_compared_in_equal_time,
)


AS_TEXT = "schema/registry/protos/"  # what schemas of users import is compiled with them


def report(problems: Iterable[Problem]) -> str:
    """One problem per line, or nothing."""
    return "\n".join(str(problem) for problem in problems)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Callable[[Iterable[File]], Iterator[Problem]]) -> None:
    broken = report(rule(house()))
    assert not broken, f"{rule.__doc__}\n{broken}"


def test_rules_that_lint_ignores_have_reasons() -> None:
    broken = report(rules.settings_of_lint_have_reasons((ROOT / "pyproject.toml").read_text()))
    assert not broken, broken


def test_every_setting_is_read_by_something() -> None:
    broken = report(rules.settings_are_used(house(), [setting.name for setting in settings(Config)]))
    assert not broken, broken


def test_every_metric_is_recorded_by_something() -> None:
    broken = report(rules.metrics_are_recorded(house(), vars(Metrics())))
    assert not broken, broken


def test_imports_run_one_way() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "render", "command"),
    [
        (CONFIGURATION, configuration, "python -m agent.config.docs"),
        (PROTOCOL, protocol, "python -m agent.kafka.handlers.docs"),
        (ARCHITECTURE, architecture, "python -m agent.architecture"),
        (CLIENTS, clients, "python -m tests.compat.suite.page"),
    ],
    ids=["configuration", "protocol", "architecture", "clients"],
)
def test_generated_pages_are_fresh(page: Path, render: Callable[[], str], command: str) -> None:
    assert page.read_text(encoding="utf-8") == render(), f"stale: run {command}"


def test_generated_codecs_are_fresh() -> None:
    assert wire.stale(wire.generate()) == [], "stale: run python -m agent.net.wire.generate"


def test_generated_protobuf_modules_are_fresh(tmp_path: Path) -> None:
    """protoc gives what is committed beside each .proto, for all of the five packages."""
    protos = [file.path for file in house() if file.product and file.path.endswith(".proto")]
    protos = [path for path in protos if not path.startswith(AS_TEXT)]
    assert protos
    for proto in protos:
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", f"--python_out={tmp_path}", proto]
        subprocess.run(command, cwd=ROOT, check=True)
        made = proto.removesuffix(".proto") + "_pb2.py"
        assert (ROOT / made).read_text() == (tmp_path / made).read_text(), (
            f"{made} is stale: run deploy/setup/generate_protos.sh"
        )


def test_there_is_one_version() -> None:
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text()
    assert f"\nappVersion: {VERSION}" in (ROOT / "helm/floe/Chart.yaml").read_text().replace('"', "")


def test_the_changelog_says_nothing_twice() -> None:
    """Branches that both changed a line leave both of them: its merges are unions."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    begins = [line.strip()[:BEGINS_CHARS] for line in lines if len(line.strip()) >= BEGINS_CHARS]
    assert len(begins) > 100
    assert sorted(set(begins)) == sorted(begins)
