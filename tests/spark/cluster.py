"""A standalone Spark cluster as child processes, from the classes in pyspark's own jars."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.services.ports import free_port
from deploy.services.service import Service, answers
from deploy.setup.java import java_home

WORKERS = 2
WORKER_MEMORY_MIB = 512
DAEMON_MEMORY_MIB = 256
QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""For JVMs of a minute, whose optimising compiler would take most of their CPU time; executors inherit it."""


class _Daemon(Service):
    """A master or a worker."""

    def __init__(self, directory: Path, arguments: Sequence[str]) -> None:
        super().__init__(directory)
        self.ui_port = free_port()
        self._arguments = [*arguments, "--host", "127.0.0.1", "--webui-port", str(self.ui_port)]

    def command(self) -> list[str]:
        return [str(Path(sys.executable).parent / "spark-class"), *self._arguments]

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            **QUICK,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "JAVA_HOME": str(java_home()),
            "SPARK_DAEMON_MEMORY": f"{DAEMON_MEMORY_MIB}m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.directory),
            "SPARK_LOCAL_DIRS": str(self.directory),
        }

    def ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.ui_port}/json/")


class Master(_Daemon):
    """The master; `url` is `spark://host:port`."""

    name = "spark-master"

    def __init__(self, directory: Path) -> None:
        port = free_port()
        super().__init__(directory, ["org.apache.spark.deploy.master.Master", "--port", str(port)])
        self.url = f"spark://127.0.0.1:{port}"

    def workers(self) -> int:
        """How many workers are alive."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/json/", timeout=30) as answer:
            return int(json.load(answer)["aliveworkers"])


class Worker(_Daemon):
    """A worker of one core; ready once the master knows it."""

    name = "spark-worker"

    def __init__(self, directory: Path, master: Master, number: int) -> None:
        words = ["org.apache.spark.deploy.worker.Worker", master.url, "--cores", "1"]
        super().__init__(directory, [*words, "--memory", f"{WORKER_MEMORY_MIB}m"])
        self._master = master
        self._number = number

    def ready(self) -> bool:
        return super().ready() and self._master.workers() >= self._number


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    master: Master

    @property
    def url(self) -> str:
        """`spark://host:port`."""
        return self.master.url


@contextmanager
def standalone(directory: Path) -> Iterator[Cluster]:
    """A master and WORKERS workers, gone at the end."""
    with ExitStack() as stack:
        master = stack.enter_context(Master(directory / "master"))
        for number in range(1, WORKERS + 1):
            stack.enter_context(Worker(directory / f"worker-{number}", master, number))
        yield Cluster(master)
