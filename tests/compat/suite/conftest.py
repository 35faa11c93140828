"""The broker of this run, and what is recorded of every test against it."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from deploy.setup.jars import ensure
from tests.compat.against.agreement import PAGE, rows
from tests.compat.suite import results
from tests.compat.suite.broker import ApacheKafka, Broker, Floe
from tests.compat.suite.clients import VERSIONS
from tests.compat.suite.doors import Doors, doors_of
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java
from tests.compat.suite.results import LEFT_OUT, PASSED, Result
from tests.compat.suite.tools import Tools

HERE = Path(__file__).parent
SAW = pytest.StashKey[dict[str, str]]()
OUTCOME = pytest.StashKey[str]()
FOUND = pytest.StashKey[dict[str, Result]]()
TITLES = {broker.name: broker for broker in (ApacheKafka, Floe)}

Saw = Callable[[str, object], None]
LeftOut = Callable[[str], None]


def pytest_configure(config: pytest.Config) -> None:
    """Name the suite's marks."""
    config.addinivalue_line("markers", "client(name): the client of suite.clients that the test is about")
    config.addinivalue_line("markers", "compat_only: runs in `make compat`, not in `make test`")
    config.stash[FOUND] = {}


def _suite(item: pytest.Item) -> bool:
    return HERE in item.path.parents


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` has minutes, not hours: it leaves to `make compat` what says so."""
    for item in items:
        if _suite(item):
            item.add_marker(pytest.mark.services)
    if config.getoption("whole_suite"):
        return
    left = [item for item in items if _suite(item) and item.get_closest_marker("compat_only")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session")
def session_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """The cluster of the whole run."""
    directory = tmp_path_factory.mktemp("broker")
    broker: Broker
    if request.config.getoption("broker") == ApacheKafka.name:
        broker = ApacheKafka(directory)
    else:
        broker = Floe(request.getfixturevalue("etcd"), request.getfixturevalue("minio"), directory)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def broker(session_broker: Broker, request: pytest.FixtureRequest) -> Broker:
    """The cluster, giving out names of this test."""
    scope = f"{request.path.stem.removeprefix('test_')}-{request.node.name.removeprefix('test_')}"
    session_broker.scope = scope.replace("[", "-").replace("]", "")
    return session_broker


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """A JVM with Kafka's jars, those of Streams too."""
    streams = [str(jar) for jar in ensure("streams") if jar.name.startswith(("kafka-streams-", "rocksdb"))]
    with Jvm(os.pathsep.join(streams)) as running:
        yield running


@pytest.fixture(scope="session")
def doors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A broker whose clients log in, and are held against ACLs."""
    with doors_of(request.config.getoption("broker"), tmp_path_factory.mktemp("doors")) as opened:
        yield opened


@pytest.fixture
def java(broker: Broker, jvm: Jvm) -> Java:
    """Java's clients, of this test's broker."""
    return Java(jvm, broker.bootstrap)


@pytest.fixture
def tools(broker: Broker, jvm: Jvm) -> Tools:
    """Kafka's tools, at this test's broker."""
    return Tools(jvm, broker.bootstrap)


@pytest.fixture
def saw(request: pytest.FixtureRequest) -> Saw:
    """`saw(name, value)` records what the test observed: it must be the same with both brokers."""
    found = request.node.stash.setdefault(SAW, {})

    def record(name: str, value: object) -> None:
        assert ", " not in name, "docs/deviations.md separates names by commas"
        assert name not in found, f"{name} was recorded before"
        found[name] = str(value)

    return record


@pytest.fixture
def left_out(request: pytest.FixtureRequest) -> LeftOut:
    """`left_out(reason)`: this is not run with either broker, and docs/clients.md says why."""

    def record(reason: str) -> None:
        request.node.stash[OUTCOME] = f"{LEFT_OUT}{reason}"

    return record


def _result(item: pytest.Item, outcome: str) -> Result:
    mark = item.get_closest_marker("client")
    assert mark is not None, f"{item.nodeid} says not which client it is about: pytest.mark.client(name)"
    client = mark.args[0]
    assert isinstance(item, pytest.Function)
    what = " ".join((item.obj.__doc__ or "").split())
    assert what, f"{item.nodeid} needs a docstring: it is the sentence of docs/clients.md"
    test = f"{item.path.name}::{item.name}"
    return Result(test, client, VERSIONS[client](), what, outcome, item.stash.get(SAW, {}))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Record the outcome; with Floe, hold it against Apache Kafka's."""
    if not _suite(item):
        return (yield)
    found = item.config.stash[FOUND]
    try:
        yield
    except BaseException as error:
        found[item.nodeid] = _result(item, f"failed: {type(error).__name__}")
        raise
    result = found[item.nodeid] = _result(item, item.stash.get(OUTCOME, PASSED))
    if item.config.getoption("broker") == Floe.name:
        theirs = results.load(ApacheKafka.name).get(result.test)
        wrong = results.problems(theirs, result, rows(PAGE.read_text()))
        assert not wrong, "fix Floe, or say why in docs/deviations.md:\n" + "\n".join(wrong)
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was found, if asked to."""
    config = session.config
    found = config.stash.get(FOUND, {})
    if found and config.getoption("keep_results"):
        broker = TITLES[config.getoption("broker")]
        whole = config.getoption("whole_suite") and len(session.items) == len(found) and _all_of_it(config)
        results.keep(broker.name, broker.version, found.values(), whole=whole)


def _all_of_it(config: pytest.Config) -> bool:
    """Whether the run was asked for the folder itself, and not for a part of it."""
    words = [Path(config.invocation_params.dir, word) for word in config.args]
    narrowed = config.getoption("keyword") or config.getoption("markexpr") or config.getoption("deselect")
    narrowed = narrowed or config.getoption("ignore") or config.getoption("ignore_glob")
    return not narrowed and HERE in words
