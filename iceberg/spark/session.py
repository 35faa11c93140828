"""The one way Floe starts Spark: a local session with Floe's REST catalog as `floe`.

The jars come by path (deploy/setup/jars.py brings them) on the driver's own class path, so nothing
is resolved or copied at start. Spark, pandas and Java are the extra `spark`: import this module
only where they are wanted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

CATALOG = "floe"
CORES = 2
DRIVER_MEMORY_MIB = 2048
SHUFFLE_PARTITIONS = 4
ARROW_ROWS = 1_024
"""Rows that Python is handed at once."""

THOROUGH = "-XX:+UseParallelGC"
# Over a minute on two cores, three quarters of the JVM's CPU time went into its optimising compiler.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


JARS_FOLDER = Path("build/jars/iceberg")
JARS_VARIABLE = "FLOE_SPARK_JARS"


def jars_in(folder: Path | None = None) -> list[Path]:
    """Iceberg's jars in `folder`, else in $FLOE_SPARK_JARS, else below the checkout.

    Raises FileNotFoundError with the remedy when there is none.
    """
    where = folder or Path(os.environ.get(JARS_VARIABLE, JARS_FOLDER))
    found = sorted(where.glob("*.jar"))
    if not found:
        remedy = f"run `python -m deploy.setup.jars iceberg` in a checkout, or set {JARS_VARIABLE}"
        raise FileNotFoundError(f"no Iceberg jars in {where}: {remedy}")
    return found


@dataclass(frozen=True, slots=True)
class S3Access:
    """How Spark reaches the bucket itself: the catalog hands out locations, not credentials."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"


def session(
    catalog_uri: str,
    jars: Sequence[Path],
    *,
    scratch: Path,
    java_home: Path | None = None,
    s3: S3Access | None = None,
    cores: int = CORES,
    driver_memory_mib: int = DRIVER_MEMORY_MIB,
    short_lived: bool = False,
) -> SparkSession:
    """The session of this process, in UTC, on `cores` local threads.

    `catalog_uri` is Floe's `http://host:port/iceberg`. Tables in a local folder need no `s3`; with it
    they are read through Iceberg's S3FileIO. `scratch` takes Spark's temporary files. `short_lived`
    suits jobs of about a minute: the JVM compiles quickly rather than well. Raises FileNotFoundError
    when a jar is missing. A JVM that runs already keeps its memory bound and jars.
    """
    for jar in jars:
        if not jar.is_file():
            raise FileNotFoundError(f"{jar} is missing: bring it with `python -m deploy.setup.jars iceberg`")
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    # What the audit runs in Python runs by this interpreter, on this checkout or installation. PySpark reads
    # it from the environment: `spark.pyspark.python` is for spark-submit alone.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **_local(jars, scratch, driver_memory_mib, QUICK if short_lived else THOROUGH),
        **_catalog(catalog_uri, s3),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("floe")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _local(jars: Sequence[Path], scratch: Path, driver_memory_mib: int, tuning: str) -> Mapping[str, str]:
    return {
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
        "spark.driver.memory": f"{driver_memory_mib}m",
        # The session's zone governs SQL; the JVM's own governs whatever formats a date outside it.
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {tuning}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    }


def _catalog(uri: str, s3: S3Access | None) -> Mapping[str, str]:
    name = f"spark.sql.catalog.{CATALOG}"
    settings = {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "rest",
        f"{name}.uri": uri,
        # Other engines and Floe's committer move the tables: each query asks for the newest metadata.
        f"{name}.cache-enabled": "false",
    }
    if s3 is None:
        return {**settings, f"{name}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    return {
        **settings,
        f"{name}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{name}.s3.endpoint": s3.endpoint,
        f"{name}.s3.access-key-id": s3.access_key,
        f"{name}.s3.secret-access-key": s3.secret_key,
        f"{name}.s3.path-style-access": "true",
        f"{name}.client.region": s3.region,
    }
