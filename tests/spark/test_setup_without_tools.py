"""Set-up on a machine that has Python only: installed Java, Go, Maven, Node.js and kcat are hidden."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("java", "javac", "go", "gofmt", "mvn", "gradle", "node", "npm", "npx", "kcat")
SMALLEST_TOOL = "kubeconform"

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

SPARK = """
from pathlib import Path
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from iceberg.spark.session import session
home = java_home()
spark = session("http://127.0.0.1:1/iceberg", ensure("iceberg"), scratch=Path({scratch!r}), java_home=home)
spark.conf.set("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
spark.conf.set("spark.sql.catalog.local.type", "hadoop")
spark.conf.set("spark.sql.catalog.local.warehouse", "file://{scratch}/local")
spark.sql("CREATE TABLE local.db.t USING iceberg AS SELECT id, id * 2 AS twice FROM range(100)")
print(home, spark.sql("SELECT sum(twice) AS s FROM local.db.t").first()["s"])
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has every command but the hidden ones, and a checkout's scripts to run."""
    commands = tmp_path / "path"
    commands.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for command in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if command.name not in HIDDEN and not (commands / command.name).exists():
                (commands / command.name).symlink_to(command)
    assert not any(shutil.which(name, path=str(commands)) for name in HIDDEN)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "GO", "PYTEST"))
    }
    return {**kept, "PATH": str(commands), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The set-up scripts in a tree of their own, with nothing built or fetched yet."""
    tree = tmp_path / "checkout"
    for folder in ("setup", "services", "tools"):
        shutil.copytree(
            ROOT / "deploy" / folder, tree / "deploy" / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    return tree


def run(code: str, environment: dict[str, str], tree: Path) -> str:
    """What the code prints, run with the scripts of `tree`."""
    environment = {**environment, "PYTHONPATH": f"{tree}:{ROOT}"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tree, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout.strip()


@pytest.mark.thorough
def test_jars_come_and_spark_writes_and_reads_a_table(
    bare: dict[str, str], fresh: Path, tmp_path: Path
) -> None:
    home, total = run(SPARK.format(scratch=str(tmp_path / "scratch")), bare, fresh).split()[-2:]
    assert Path(home).is_relative_to(fresh / "build" / "java")
    assert int(total) == 9900
    assert sorted(path.name for path in (fresh / "build" / "jars" / "iceberg").glob("*.jar")) == [
        "iceberg-aws-bundle-1.12.0.jar",
        "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
    ]


@pytest.mark.thorough
def test_a_tool_is_built_by_the_wheels_go(bare: dict[str, str], fresh: Path) -> None:
    code = f"from deploy.services.build import tool_path; print(tool_path({SMALLEST_TOOL!r}))"
    built = Path(run(code, bare, fresh).splitlines()[-1])
    assert built.is_relative_to(fresh)
    version = subprocess.run([built, "-v"], capture_output=True, text=True, check=True)
    assert version.stdout.strip()


def test_node_and_its_packages_come_as_locked(bare: dict[str, str], fresh: Path) -> None:
    code = "from deploy.setup.node import modules, node_command; print(node_command(), modules())"
    node, modules = run(code, bare, fresh).split()
    assert Path(node).is_relative_to(sys.prefix)
    assert Path(modules).is_relative_to(fresh)
    show = (
        "for (const name of ['kafkajs', '@platformatic/kafka']) require(name); console.log(process.version)"
    )
    ran = subprocess.run(
        [node, "-e", show], env={"NODE_PATH": modules}, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("v24."), ran.stderr


def test_kcat_comes_from_debians_packages(bare: dict[str, str], fresh: Path) -> None:
    command = run("from deploy.setup.kcat import kcat_command; print(*kcat_command())", bare, fresh).split()
    assert Path(command[-1]).is_relative_to(fresh)
    shown = subprocess.run([*command, "-V"], capture_output=True, text=True, check=True).stdout
    assert "Version 1.7.1 " in shown


def test_a_package_with_another_hash_is_not_unpacked(bare: dict[str, str], fresh: Path) -> None:
    pins = fresh / "deploy" / "setup" / "debian-kcat.sha256"
    pins.write_text(re.sub("^.", "g", pins.read_text()))
    code = """
from deploy.setup.debian import NotToBeHad
from deploy.setup.kcat import kcat_command
try:
    print(kcat_command())
except NotToBeHad as error:
    print(error)
"""
    assert "do not use it" in run(code, bare, fresh)
    assert not (fresh / "build" / "tools" / "kcat" / "root").exists()


def test_a_package_that_debian_replaced_comes_as_its_successor(bare: dict[str, str], fresh: Path) -> None:
    """Debian keeps no older version: a pin alone is left without the program at the next security update."""
    pins = fresh / "deploy" / "setup" / "debian-kcat.sha256"
    kept = pins.read_text()
    pins.write_text(kept.replace("1.7.1-2", "1.7.1-1"))
    try:
        code = "from deploy.setup.kcat import kcat_command; print(*kcat_command())"
        command = run(code, bare, fresh).splitlines()[-1].split()
    finally:
        pins.write_text(kept)
    assert Path(command[-1]).is_relative_to(fresh)
    subprocess.run([*command, "-V"], capture_output=True, check=True)
