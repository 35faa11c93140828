"""Spark at a catalog that asks who it is: a user of the environment reads, nobody else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no stubs
from pyspark.sql import SparkSession

from deploy.run.stages import Embedded
from iceberg.spark.session import CATALOG, _catalog
from tests.spark.catalogs import attach
from tests.spark.embedded import command

SETTINGS = {
    "FLOE_HTTP__AUTHENTICATION": "required",
    "FLOE_SASL__ADMIN_USER": "root",
    "FLOE_SASL__ADMIN_PASSWORD": "root's",
    "FLOE_SASL__FAILED_DELAY_MS": "0",
}


class Asking(Embedded):
    """An agent that asks."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        given = self._dev.environment()
        self._dev.environment = lambda: given | SETTINGS  # type: ignore[method-assign]  # of this one


@pytest.mark.services
def test_spark_says_who_it_is_and_whoever_does_not_reads_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("http.user=root\nhttp.password=root's\n")
    monkeypatch.setenv("FLOE_COMMAND_CONFIG", str(properties))
    with Asking(tmp_path / "floe") as floe:
        command(floe, "topic", "create", "t")
        command(floe, "status")
        uri = f"{floe.http[0]}/iceberg"
        attach(spark, "unknown", uri)
        with pytest.raises(Py4JJavaError, match=r"NotAuthorized|needs an identity"):
            spark.sql("SHOW NAMESPACES IN unknown").collect()
        monkeypatch.setenv("FLOE_HTTP_USER", "root")
        monkeypatch.setenv("FLOE_HTTP_PASSWORD", "root's")
        attach(spark, "known", uri)
        who = _catalog(uri, None)[f"spark.sql.catalog.{CATALOG}.header.Authorization"]
        spark.conf.set("spark.sql.catalog.known.header.Authorization", who)
        assert isinstance(spark.sql("SHOW NAMESPACES IN known").collect(), list)
