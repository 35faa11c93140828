"""Local services for tests: one of each per session, built on demand. A missing one fails its test."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deploy.services import Etcd, Minio, VersityGw, launching
from deploy.services.s3 import S3Service
from deploy.setup import class_archive
from tests.equipment import again, cpu_report, forks
from tests.spark import cluster

_numbers = itertools.count(1)
settings.register_profile("floe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("floe")  # how fast a busy machine makes examples is no finding


# Over little data the optimising compiler costs more than it saves.
# A JVM of a small job starts in half the time with it. Before who copies these variables.
os.environ[class_archive.VARIABLE] = f"{class_archive.option()} {cluster.QUICK['JAVA_TOOL_OPTIONS']}".strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the whole suite; they must be known before any folder is collected."""
    parser.addoption("--rewrite-golden", action="store_true", help="write the golden stories anew")
    parser.addoption(
        "--broker",
        choices=("floe", "kafka"),
        default="floe",
        help="whom tests/compat/suite and against talk to",
    )
    parser.addoption("--whole-suite", action="store_true", help="tests/compat/suite with its long tests")
    parser.addoption(
        "--keep-results",
        action="store_true",
        help="write tests/compat/results, and with Kafka against/recorded.json",
    )
    parser.addoption("--cpu-report", type=Path, help="write what CPU each test and shared fixture took")


def pytest_configure(config: pytest.Config) -> None:
    """Agents of tests are forked: else each start pays their imports anew."""
    launching.use(forks.start)
    if path := config.getoption("--cpu-report"):
        config.pluginmanager.register(cpu_report.CpuReport(path))


FAILURES = Path(__file__).resolve().parents[1] / "build" / "failures.log"
"""What failed so far, while a run of an hour is still under way."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """pytest tells of a failure at its end."""
    if report.failed and not hasattr(report, "node"):  # those of xdist's workers are told by their parent
        again.note(report.nodeid, str(report.when))
        FAILURES.parent.mkdir(exist_ok=True)
        with FAILURES.open("a") as out:
            out.write(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n{report.capstdout}\n")


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    """An etcd shared by the session: use a cluster name of your own. Do not stop or break it."""
    with Etcd() as service:
        yield service


@pytest.fixture
def own_etcd() -> Iterator[Etcd]:
    """An etcd of this test's own: to be killed, paused, compacted, restored."""
    with Etcd(fsync=False) as service:
        yield service


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A MinIO shared by the session: use a bucket of your own. Do not stop or break it."""
    with Minio() as service:
        yield service


@pytest.fixture(scope="session")
def versitygw() -> Iterator[VersityGw]:
    """A versitygw shared by the session: use a bucket of your own. Do not stop or break it."""
    with VersityGw() as service:
        yield service


@pytest.fixture
def bucket() -> Callable[[S3Service], str]:
    """`bucket(minio)` makes a fresh bucket on that server and returns its name."""

    def make(server: S3Service) -> str:
        return server.make_bucket(f"floe-{os.getpid()}-{next(_numbers)}")

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped: a run that left something out has not shown that it works."""
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.write_line(f"skipped, so this run fails: {report.nodeid}", red=True)


def pytest_unconfigure() -> None:
    """The processes that agents were forked of end with the session, and the JVM of Kafka's tools."""
    forks.end()
    if used := sys.modules.get("tests.equipment.kafka_tools"):
        used.end()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A skipped test fails the run: what a test needs, `make test` installs."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
