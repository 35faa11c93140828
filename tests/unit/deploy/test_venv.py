"""`make setup` on a machine that lacks what makes an environment, and once that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]  # pip is unpacked, which waits for the disk
SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "setup" / "venv.sh"
READ = ("requirements.lock", "pyproject.toml", "objectstore/_frames.c", "coordination/state/_appending.c")
WITHOUT = '#!/bin/sh\n[ "$1 $2" = "-m venv" ] || exec {0} "$@"\n{0} -m venv --without-pip .venv\nexit 1\n'
"""Python as Debian has it without python3-venv: it begins, and fails at pip."""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def set_up(tree: Path, python: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": str(python)}
    command = ["bash", str(tree / "deploy" / "setup" / SCRIPT.name)]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True)


def test_what_was_begun_without_venv_is_made_anew_and_what_is_whole_stays(tmp_path: Path) -> None:
    for name in (*READ, "deploy/setup/requirements-bootstrap.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    shutil.copy(SCRIPT, tmp_path / "deploy" / "setup")
    broken = set_up(tmp_path, program(tmp_path / "python", WITHOUT.format(sys.executable)))
    assert broken.returncode == 1
    assert "install python3-venv" in broken.stderr
    own = tmp_path / ".venv" / "bin" / "python"
    assert own.exists(), "half of it is there"
    again = set_up(tmp_path, Path(sys.executable))
    assert "bin/uv" in again.stderr, "pip had nothing to bring it from"
    subprocess.run([own, "-m", "pip", "--version"], check=True, capture_output=True)
    program(own.with_name("uv"), "#!/bin/sh\n")
    done = set_up(tmp_path, Path(sys.executable))
    assert (done.returncode, done.stderr) == (0, "")
    assert own.with_name("uv").exists(), "one with pip is not made anew"
