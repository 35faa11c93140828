"""The package for users of Spark alone: whole without the rest of Floe, and light without Spark."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from iceberg.spark.package import MODULES, build

ROOT = Path(__file__).resolve().parents[3]

EVERYTHING = """
import sys
sys.path.insert(0, {archive!r})
import iceberg.spark
assert "pyspark" not in sys.modules, "asked for too early"
for name in iceberg.spark.__all__:
    getattr(iceberg.spark, name)
from iceberg.spark import session
from iceberg.spark.session import S3Access
assert callable(session), "the function, not the module"
print(*sorted(name for name in sys.modules if name.split(".")[0] in {rooms}))
"""


def test_the_archive_has_all_that_its_names_need(tmp_path: Path) -> None:
    archive = build(tmp_path / "floe-spark.zip")
    rooms = ("agent", "coordination", "objectstore", "schema", "iceberg")
    code = EVERYTHING.format(archive=str(archive), rooms=rooms)
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    expected = {"iceberg", "iceberg.spark", *(f"iceberg.spark.{module}" for module in MODULES)}
    assert set(ran.stdout.split()) == expected
    assert archive.read_bytes() == build(tmp_path / "again.zip").read_bytes()


def test_its_modules_are_under_the_import_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [each for each in settings["contracts"] if "users of Spark" in each["name"]]
    archived = [f"iceberg.spark.{module}" for module in MODULES]
    assert contract["source_modules"] == [*archived, "iceberg.spark.pipelines"], "jobs are users too"
