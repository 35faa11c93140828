"""A driver of the flights pipeline that kills its JVM and itself before a step: `… URI STAGE STEP`."""

from __future__ import annotations

import os
import signal
import sys

from iceberg.spark import session
from iceberg.spark.pipelines import flights

LAKE = flights.Lake({topic: f"lake.floe.{topic}" for topic in flights.TOPICS})


def main() -> None:
    """Run the pipeline until it is done, or dead."""
    uri, *last = sys.argv[1:]
    spark = session(uri, cores=1, driver_memory_mib=512, short_lived=True)

    def before(*at: str) -> None:
        if list(at) == last:
            os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    flights.run(spark, LAKE, before=before)


if __name__ == "__main__":
    main()
