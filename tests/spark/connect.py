"""A Spark Connect server as a child process, from the classes in pyspark's own jars."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.services.ports import free_port
from deploy.services.service import Service
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from tests.spark.cluster import QUICK

MEMORY_MIB = 768
EXTENSIONS = "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


class Connect(Service):
    """The server, with Iceberg's jars and its SQL unless `settings` say otherwise; `url` is `sc://host:port`."""

    name = "spark-connect"

    def __init__(self, directory: Path, settings: Sequence[str] = (EXTENSIONS,)) -> None:
        super().__init__(directory)
        self._port = free_port()
        self._settings = [
            *settings,
            "spark.connect.grpc.binding.address=127.0.0.1",
            f"spark.connect.grpc.binding.port={self._port}",
            "spark.ui.enabled=false",
            "spark.sql.shuffle.partitions=2",
            f"spark.sql.warehouse.dir={directory / 'warehouse'}",
        ]
        self.url = f"sc://127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        words = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
        words += ["--driver-memory", f"{MEMORY_MIB}m", "--jars", ",".join(map(str, ensure("iceberg")))]
        for setting in self._settings:
            words += ["--conf", setting]
        return [
            *words,
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "spark-internal",
        ]

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            **QUICK,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory),
            "PYSPARK_PYTHON": sys.executable,
        }

    def ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
