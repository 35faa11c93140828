"""A driver of the maintenance job that kills its JVM and itself before a commit: `… URI TOPIC COMMIT`."""

from __future__ import annotations

import os
import signal
import sys

from iceberg.spark import session
from iceberg.spark.maintenance import Upkeep, maintain


def main() -> None:
    """Maintain the topic's table until it is done, or dead before its n-th commit (from 1)."""
    uri, topic, last = sys.argv[1:]
    spark = session(uri, cores=1, driver_memory_mib=512, short_lived=True)
    seen = []

    def before(*at: str) -> None:
        seen.append(at)
        if len(seen) == int(last):
            os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    maintain(spark, Upkeep([topic], files_min=2), before=before)


if __name__ == "__main__":
    main()
