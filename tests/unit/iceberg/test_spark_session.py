"""Where a session's jars come from: by path, by coordinates, or baked in; what its catalog is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.state.table_names import NAMESPACE
from deploy.setup.jars import ROOTS
from iceberg.spark.session import CATALOG, JARS_VARIABLE, PACKAGES, jar_settings, session


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's own folder, with no jars yet."""
    (tmp_path / "home" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_jars_come_by_path_by_coordinates_or_are_there(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one.jar", tmp_path / "two.jar"
    one.touch()
    two.touch()
    assert jar_settings([one, two], local=True) == {"spark.driver.extraClassPath": f"{one}:{two}"}
    assert jar_settings([one, two], local=False) == {"spark.jars": f"{one},{two}"}, "executors need them, too"
    assert tuple(each.replace(":", "/") for each in PACKAGES) == ROOTS["iceberg"], "those that are pinned"
    assert jar_settings(PACKAGES, local=True) == {"spark.jars.packages": ",".join(PACKAGES)}
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    assert jar_settings(None, local=False) == {"spark.jars": f"{one},{two}"}
    (spark_home / "jars" / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar").touch()
    assert jar_settings(None, local=False) == {}


def test_what_is_missing_or_contradicts_itself_is_said(
    tmp_path: Path, spark_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.jar is missing: bring it with"):
        jar_settings([tmp_path / "gone.jar"], local=True)
    monkeypatch.setenv(JARS_VARIABLE, str(spark_home))
    with pytest.raises(FileNotFoundError, match="no Iceberg jars in"):
        jar_settings(None, local=True)
    with pytest.raises(ValueError, match="give one of them"):
        session("http://127.0.0.1:1/iceberg", master="spark://a:1", remote="sc://b:2")
    with pytest.raises(ValueError, match=r"jars=\[\] with remote='sc://b:2': that is the server's own"):
        session("http://127.0.0.1:1/iceberg", [], remote="sc://b:2")


def test_the_catalog_is_not_called_like_the_namespace_of_topics_tables() -> None:
    assert CATALOG != NAMESPACE, "Iceberg would take the namespace of table => 'floe.t' for the catalog"
