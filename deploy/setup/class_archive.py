"""Makes an archive of the classes that a small Spark job loads, so that the next ones start in half the time.

`python -m deploy.setup.class_archive` runs one such job and keeps its classes in build/java (JDK's "dynamic
archive", JEP 350). `option()` is what a later JVM is told. It is good for this Java and this class path only:
a JVM that has others does without, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from deploy.setup.jars import ensure, pinned
from deploy.setup.java import NoJava, java_home

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "java"
VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options that Spark's launcher gives the JVM of a driver, besides those of the session."""

JARS = ("iceberg", "sparkkafka")
"""As audits and pipelines have them on their class path, in this order."""

JOB_SECONDS_MAX = 900
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
JOB = """
import sys
from pyspark import SparkContext
from iceberg.spark.session import session
folder, jars = sys.argv[1], sys.argv[2:]
catalog = "spark.sql.catalog.w"
own = {catalog: "org.apache.iceberg.spark.SparkCatalog", f"{catalog}.type": "hadoop",
       f"{catalog}.warehouse": folder + "/w"}
spark = session("http://127.0.0.1:1/iceberg", jars, short_lived=True, settings=own)
spark.sql("create table w.a.t (a bigint, b string, c timestamp) using iceberg partitioned by (bucket(2, a))")
spark.sql("insert into w.a.t select id, cast(id as string), timestamp_seconds(id) from range(100)")
query = "select b, count(*), max(a) over (partition by b) from w.a.t join range(9) on id = a group by b, a"
assert len(spark.sql(query).collect()) == 9
assert spark.sql("select * from w.a.t.files").count()
rows = spark.createDataFrame([(1, "a")], ["x", "y"])
assert rows.mapInPandas(lambda each: each, rows.schema).count() == 1
spark.stop()
SparkContext._gateway.shutdown()
java = SparkContext._gateway.proc
java.stdin.close()
java.wait()  # it writes the archive as it ends
"""


def option() -> str:
    """For $SPARK_SUBMIT_OPTS; empty where no archive was made for this Java and these jars."""
    if not any(FOLDER.glob("spark-*.jsa")):
        return ""
    try:
        found = _file()
    except NoJava:
        return ""
    return f"-XX:SharedArchiveFile={found} {QUIET}" if found.is_file() else ""


def make() -> Path:
    """The archive; the job is run where there is none yet. Raises subprocess.CalledProcessError."""
    jars = [each for name in JARS for each in ensure(name)]
    file = _file()
    if file.is_file():
        return file
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("spark-*.jsa"):
        old.unlink()
    fresh = file.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        own = {
            VARIABLE: f"-XX:ArchiveClassesAtExit={fresh} {QUIET}",
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": folder,
        }
        subprocess.run(
            [sys.executable, "-c", JOB, folder, *map(str, jars)],
            env={**os.environ, **own}, cwd=ROOT, check=True, timeout=JOB_SECONDS_MAX, capture_output=True,
        )  # fmt: skip
    fresh.replace(file)
    return file


def _file() -> Path:
    """Named by all that an archive has to agree with. Raises NoJava."""
    java = java_home() / "bin" / "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    jars = [*map(str, spark), *(f"{jar.sha256} {jar.file}" for name in JARS for jar in pinned(name))]
    digest = hashlib.sha256("\n".join([version, JOB, str(ROOT), *jars]).encode()).hexdigest()
    return FOLDER / f"spark-{digest[:16]}.jsa"


if __name__ == "__main__":
    print(make())
