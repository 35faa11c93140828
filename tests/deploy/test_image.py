"""The agent's image: what its Containerfile promises, and that its lock is enough to start the agent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "deploy" / "images" / "Containerfile").read_text()
PACKAGES = ("agent", "coordination", "iceberg", "objectstore", "schema")


def test_the_base_is_pinned_and_the_user_is_not_root() -> None:
    bases = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", CONTAINERFILE, re.MULTILINE))
    assert set(bases) == {"PYTHON_IMAGE", "BUILD_IMAGE"}
    versions = {re.sub(r":(\d+\.\d+\.\d+)-.*", r":\1", base) for base in bases.values()}
    assert len(versions) == 1, "one patch version of Python, which is named"
    assert re.search(r":\d+\.\d+\.\d+$", versions.pop())
    users = re.findall(r"^USER (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert users, "the image sets a user"
    assert not users[-1].startswith(("0", "root"))


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", CONTAINERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} is kept out by .dockerignore"


@pytest.mark.services
def test_the_lock_of_the_image_is_enough_to_start_an_agent(tmp_path: Path) -> None:
    venv, app = tmp_path / "venv", tmp_path / "app"
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    lock = str(ROOT / "requirements-agent.lock")
    subprocess.run(
        [uv, "pip", "install", "-q", "--python", python, "--require-hashes", "-r", lock], check=True
    )
    for package in PACKAGES:
        shutil.copytree(ROOT / package, app / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (compiled,) = re.findall(r"^RUN (cc .+)$", CONTAINERFILE, re.MULTILINE)
    native = shutil.which("cc") is not None
    if native:
        path = f"{venv}/bin:{os.environ['PATH']}"
        command = compiled.replace("/opt/floe/app", str(app))
        subprocess.run(["sh", "-c", command], check=True, env={**os.environ, "PATH": path})
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(app), "HOME": str(tmp_path)}
    imports = (
        "import agent.app, agent.cli, agent.http, iceberg.committer\n"
        f"from objectstore.batch import NATIVE\nassert NATIVE is {native}\nprint('started')"
    )
    done = subprocess.run(
        [python, "-c", imports], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "started", done.stderr
    shown = subprocess.run(
        [python, "-m", "agent", "--help"],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "serve" in shown.stdout
