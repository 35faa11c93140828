"""One JVM for all tests that need Spark: `spark` is a fresh session of it per test module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.run.stages import Embedded
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.session import session
from tests.spark.catalogs import keep_below
from tests.spark.embedded import command

HERE = Path(__file__).parent
NO_CATALOG = "http://127.0.0.1:1/iceberg"


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that owns the JVM; its catalog `lake` points nowhere."""
    scratch = tmp_path_factory.mktemp("spark")
    jars = [*ensure("iceberg"), *ensure("sparkkafka")]
    spark = session(NO_CATALOG, jars, scratch=scratch, java_home=java_home(), short_lived=True)
    yield spark
    spark.stop()


@pytest.fixture
def spark(jvm: SparkSession, tmp_path: Path) -> SparkSession:
    """A session of the test's own: catalog `local` keeps Iceberg tables under its temporary folder."""
    own = jvm.newSession()
    keep_below(own, "local", tmp_path / "local")
    return own


@pytest.fixture
def floe(tmp_path: Path) -> Iterator[Embedded]:
    """An agent with topic `t`."""
    with Embedded(tmp_path / "floe") as found:
        command(found, "topic", "create", "t", "--partitions", "2")
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pyspark leaves the sockets of its py4j gateway to the garbage collector; nothing of ours does."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
