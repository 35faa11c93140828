"""kafka-python's own integration tests, from its source distribution, with a fixture of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from deploy.setup.kafka_python_tests import ensure
from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import OWN_TESTS
from tests.compat.suite.conftest import LeftOut

# The first of them runs them all.
pytestmark = [pytest.mark.client(OWN_TESTS), pytest.mark.timeout(900)]

RUN_S_MAX = 800  # seconds; quiet it takes 25
TEST_S_MAX = 240
LEFT_OUT = {
    "admin::test_create_describe_delete_acls": "it needs a broker with an authorizer",
    "consumer::test_kafka_consumer_offsets_for_time_old": "it is for brokers before 0.10.1",
}
TESTS = (Path(__file__).parent / "kafka_python_own.txt").read_text().split()


@pytest.fixture(scope="session")
def own_results(session_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """test → how it failed, nothing when it passed. They expect one broker: one poll brings all."""
    report = tmp_path_factory.mktemp("own") / "report.xml"
    with session_broker.alone() as bootstrap:
        _run(bootstrap, report)
    found = {}
    for case in ET.parse(report).iter("testcase"):
        area = case.attrib["classname"].rpartition(".")[2].removeprefix("test_").removesuffix("_integration")
        wrong = [child.attrib.get("message", "") for child in case if child.tag in ("failure", "error")]
        found[f"{area}::{case.attrib['name']}"] = "; ".join(wrong)
    return found


def _run(bootstrap: str, report: Path) -> None:
    folder = ensure()
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"},
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.3.1",
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"--timeout={TEST_S_MAX}", "--timeout-method=signal", "-o", "log_level=WARNING"]
    for name in LEFT_OUT:
        area, _, test = name.partition("::")
        command.append(f"--deselect=test/integration/test_{area}_integration.py::{test}")
    command += [f"test/integration/test_{area}_integration.py" for area in ("admin", "consumer", "producer")]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=RUN_S_MAX
    )
    assert report.exists(), done.stdout + done.stderr


@pytest.mark.parametrize("name", TESTS)
def test_own(name: str, own_results: dict[str, str], left_out: LeftOut) -> None:
    """Its integration tests pass."""
    if name in LEFT_OUT:
        left_out(LEFT_OUT[name])
    else:
        assert own_results[name] == ""


def test_no_other_ran(own_results: dict[str, str]) -> None:
    """The list of its tests is whole."""
    assert {*own_results, *LEFT_OUT} == set(TESTS)
