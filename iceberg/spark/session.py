"""The one way Floe starts Spark: a session with Floe's REST catalog as `lake`, wherever Spark runs.

| where | what is given |
|---|---|
| in this process | nothing: `local[cores]` |
| a standalone cluster, Kubernetes, YARN | `master`, or nothing below spark-submit, which has said it |
| a Spark Connect server | `remote`; its jars and SQL extensions are the server's |

Jars come by path (deploy/setup/jars.py brings them) or lie in Spark's own folder (an image with them baked
in), so that nothing is resolved at start; `PACKAGES` are the coordinates for those who want that. Spark,
pandas and Java are the extra `spark`: nothing here imports them before a session is asked for.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"
"""Not that of the topics' namespace, which Iceberg would take for it in `CALL … (table => 'floe.t')`."""
CORES = 2
DRIVER_MEMORY_MIB = 2048
SHUFFLE_PARTITIONS = 4
ARROW_ROWS = 1_024
"""Rows that Python is handed at once."""

ICEBERG = "1.12.0"
PACKAGES = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}",
    f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}",
)
"""Maven coordinates of the jars, for `jars=PACKAGES` or `spark-submit --packages`."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit's JVM was there first: what it was told holds
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_EVERYWHERE = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": _EXTENSIONS,
    # Spark's own list without Kafka: its records then come as Spark's rows, and are not made into
    # Java objects and back again.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
}

THOROUGH = "-XX:+UseParallelGC"
# Over a minute on two cores, three quarters of the JVM's CPU time went into its optimising compiler. Without
# it a JVM has room for 48 MiB of code, which Spark's generated classes fill: then it fails.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


JARS_FOLDER = Path("build/jars/iceberg")
JARS_VARIABLE = "FLOE_SPARK_JARS"
WHO_VARIABLES = "FLOE_HTTP_TOKEN", "FLOE_HTTP_USER", "FLOE_HTTP_PASSWORD"
"""The token, or else user and password, that the catalog is told."""


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
    """How Spark reaches the bucket itself: the catalog hands out locations, not credentials.

    Without keys driver and executors find their own, as Amazon's SDK does: environment, web identity, role of
    the container or the instance; those are renewed. Keys with a `session_token` end, and nobody renews them.
    """

    endpoint: str
    access_key: str = ""
    secret_key: str = ""
    region: str = "us-east-1"
    session_token: str = ""


def session(
    catalog_uri: str,
    jars: Sequence[Path | str] | None = None,
    *,
    master: str | None = None,
    remote: str | None = None,
    scratch: Path | None = None,
    java_home: Path | None = None,
    s3: S3Access | None = None,
    cores: int = CORES,
    driver_memory_mib: int = DRIVER_MEMORY_MIB,
    short_lived: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, in UTC.

    `catalog_uri` is Floe's `http://host:port/iceberg`. `jars`: paths, or Maven coordinates (`PACKAGES`); None
    for those in Spark's own folder, else what `jars_in` finds. `master`, `remote`: as in the table above;
    with neither, outside spark-submit, `cores` local threads. Tables in a local folder need no `s3`; with it
    they are read through Iceberg's S3FileIO. `scratch` takes Spark's temporary files. `short_lived` suits
    jobs of about a minute: the JVM compiles quickly rather than well. `settings` of Spark's own win over
    those from here.

    Raises FileNotFoundError when a jar is missing, and ValueError for what does not go with `remote` or a
    server that lacks Iceberg's SQL. A JVM that runs already keeps its memory bound and jars.
    """
    from pyspark.sql import SparkSession

    if master and remote:
        raise ValueError(f"master={master!r} and remote={remote!r}: give one of them")
    if remote:
        _check_remote(remote, jars=jars, scratch=scratch, java_home=java_home)
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    if remote:
        return _connected(SparkSession, remote, {**_catalog(catalog_uri, s3), **(settings or {})})
    given = {**_EVERYWHERE, **_catalog(catalog_uri, s3)}
    if _SUBMITTED not in os.environ:
        if master is None:
            # What the audit runs in Python runs by this interpreter, on this checkout or installation.
            # PySpark reads it from the environment: `spark.pyspark.python` is for spark-submit alone.
            os.environ["PYSPARK_PYTHON"] = sys.executable
        given |= jar_settings(jars, local=master is None)
        given |= {"spark.master": master or f"local[{cores}]", "spark.app.name": "floe"}
        given["spark.driver.memory"] = f"{driver_memory_mib}m"
        given |= _driver(scratch, QUICK if short_lived else THOROUGH, local=master is None)
    builder = SparkSession.builder
    for name, value in {**given, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _check_remote(remote: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} with remote={remote!r}: that is the server's own; start it with it, and "
                "leave it out here"
            )


def _connected(sessions: type[SparkSession], remote: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on a Connect server; the catalog is a matter of this session alone."""
    spark = sessions.builder.remote(remote).getOrCreate()
    found = spark.conf.get("spark.sql.extensions", "") or ""
    if _EXTENSIONS not in found:
        spark.stop()
        raise ValueError(
            f"remote={remote!r}: its spark.sql.extensions are {found!r}, and jobs need Iceberg's: start the "
            f"server with --packages {','.join(PACKAGES)} --conf spark.sql.extensions={_EXTENSIONS}"
        )
    for name, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
        spark.conf.set(name, value)
    return spark


def jar_settings(jars: Sequence[Path | str] | None, *, local: bool) -> dict[str, str]:
    """How driver and executors come to Iceberg's jars: see `session`. Raises FileNotFoundError."""
    if jars is None and _baked_in():
        return {}
    found = list(jars_in() if jars is None else jars)
    packages = [jar for jar in found if isinstance(jar, str) and jar.count(":") == 2]
    paths = [Path(jar) for jar in found if jar not in packages]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: bring it with `python -m deploy.setup.jars iceberg`")
    settings = {"spark.jars.packages": ",".join(packages)} if packages else {}
    if paths and local:
        # Java's archives of classes hold for one class path, to the letter
        return {
            **settings,
            "spark.driver.extraClassPath": os.pathsep.join(str(each.absolute()) for each in paths),
        }
    return {**settings, "spark.jars": ",".join(map(str, paths))} if paths else settings


def _baked_in() -> bool:
    """Whether Spark's own folder has Iceberg's runtime."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return any(Path(home, "jars").glob("iceberg-spark-runtime-*.jar"))


def java_options(tuning: str) -> str:
    """Of a driver's JVM."""
    return f"-Duser.timezone=UTC {tuning}"


def _driver(scratch: Path | None, tuning: str, *, local: bool) -> dict[str, str]:
    """Settings of a JVM that begins here."""
    settings = {
        # The session's zone governs SQL; the JVM's own governs whatever formats a date outside it.
        "spark.driver.extraJavaOptions": java_options(tuning),
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.sql.shuffle.partitions"] = str(SHUFFLE_PARTITIONS)
        settings["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parents[2])
        settings["spark.sql.execution.arrow.maxRecordsPerBatch"] = str(ARROW_ROWS)
    if scratch is not None:
        settings |= {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    return settings


def authorization() -> str:
    """Who asks the catalog, where it asks that (RFC 6750, 7617), by the environment; empty: nobody."""
    token, user, password = (os.environ.get(each, "") for each in WHO_VARIABLES)
    if token:
        return f"Bearer {token}"
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if user and password else ""


def _catalog(uri: str, s3: S3Access | None) -> Mapping[str, str]:
    name = f"spark.sql.catalog.{CATALOG}"
    settings = {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "rest",
        f"{name}.uri": uri,
        # Other engines and Floe's committer move the tables: each query asks for the newest metadata.
        f"{name}.cache-enabled": "false",
        **({f"{name}.header.Authorization": who} if (who := authorization()) else {}),
    }
    if s3 is None:
        return {**settings, f"{name}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    keys = {
        f"{name}.s3.access-key-id": s3.access_key,
        f"{name}.s3.secret-access-key": s3.secret_key,
        f"{name}.s3.session-token": s3.session_token,
    }
    return {
        **settings,
        f"{name}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{name}.s3.endpoint": s3.endpoint,
        **{key: value for key, value in keys.items() if value},
        f"{name}.s3.path-style-access": "true",
        f"{name}.client.region": s3.region,
    }
