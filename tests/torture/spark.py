"""Runs as Parquet, and Spark's verdict: the checker's anomalies and the audits of broker_log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.session import session
from tests.checker.operations import History
from tests.checker.spark_audits import audit_all
from tests.checker.spark_judge import judge_all
from tests.checker.tables import Logged, write

ROOT = Path(__file__).parents[2]
NO_CATALOG = "http://127.0.0.1:1/iceberg"  # histories are files, no tables


@dataclass
class Kept:
    """Histories by the name of their run, each with what the log held in the end."""

    histories: dict[str, History] = field(default_factory=dict)
    logs: dict[str, Sequence[Logged]] = field(default_factory=dict)

    def add(self, run: str, history: History, log: Sequence[Logged] = ()) -> None:
        """One more run."""
        self.histories[run], self.logs[run] = history, log

    def keeper(self, run: str, wanted: bool = True) -> Callable[[History, Sequence[Logged]], None] | None:
        """What torture() hands a run over to; None when it is not wanted."""
        return (lambda history, log: self.add(run, history, log)) if wanted else None

    def judged(self, folder: Path, faults: Iterable[str] = ()) -> dict[str, Counter[str]]:
        """Write the tables into the folder, and count what Spark finds in them: by run, by anomaly.

        Only what fails a history. Spark runs in a process of its own.
        """
        write(self.histories, folder, faults, self.logs)
        command = [sys.executable, "-m", "tests.torture.spark", str(folder.resolve())]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT)
        found: dict[str, dict[str, int]] = json.loads(done.stdout)
        return {run: Counter(found.get(run, {})) for run in self.histories}


def judged(folder: Path) -> dict[str, Counter[str]]:
    """What Spark finds in the folder's tables, in this process."""
    with TemporaryDirectory() as scratch:
        jars, java = ensure("iceberg"), java_home()
        spark = session(NO_CATALOG, jars, scratch=Path(scratch), java_home=java, short_lived=True)
        try:
            verdicts = [judge_all(spark, folder), audit_all(spark, folder)]
        finally:
            spark.stop()
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        for run, found in verdict.items():
            for (anomaly, weight, _), count in found.items():
                counted[run][anomaly] += count * (weight == "fail")
    return {run: +found for run, found in counted.items()}


if __name__ == "__main__":
    print(json.dumps(judged(Path(sys.argv[1]))))
