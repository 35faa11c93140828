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
    """test → how it failed, nothing when it passed. They expect one broker: one poll brings all.

    What failed runs once more: several of them give a new consumer one poll of a second or two for it all,
    which a machine that is busy with other tests does not always keep. A defect fails twice.
    """
    folder = tmp_path_factory.mktemp("own")
    with session_broker.alone() as bootstrap:
        found = _run(bootstrap, folder / "first.xml", TESTS)
        if failed := [name for name, wrong in found.items() if wrong]:
            found |= _run(bootstrap, folder / "again.xml", failed)
    return found


def _run(bootstrap: str, report: Path, names: list[str]) -> dict[str, str]:
    folder = ensure()
    environment = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"},
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": "4.3.1",
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"--timeout={TEST_S_MAX}", "--timeout-method=signal", "-o", "log_level=WARNING"]
    command += [f"--deselect={_node(name)}" for name in LEFT_OUT]
    # Whole files the first time, so that a test that is not in the list shows.
    command += (
        sorted({_node(name).partition("::")[0] for name in names}) if names == TESTS else map(_node, names)
    )
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=RUN_S_MAX
    )
    assert report.exists(), done.stdout + done.stderr
    return dict(map(_result, ET.parse(report).iter("testcase")))


def _node(name: str) -> str:
    area, _, test = name.partition("::")
    return f"test/integration/test_{area}_integration.py::{test}"


def _result(case: ET.Element) -> tuple[str, str]:
    """Its name, how it failed."""
    area = case.attrib["classname"].rpartition(".")[2].removeprefix("test_").removesuffix("_integration")
    wrong = [child.attrib.get("message", "") for child in case if child.tag in ("failure", "error")]
    return f"{area}::{case.attrib['name']}", "; ".join(wrong)


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
