"""The agent's image: what its Containerfile promises, and that its lock is enough to start the agent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent.telemetry.native import MODULES
from deploy.images import __main__ as images
from deploy.images import jobs
from deploy.images.__main__ import DROPPED, NATIVE, compile_native
from deploy.images.dropping import drop
from deploy.setup.debian import NotToBeHad

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
    (compiled,) = re.findall(r"^RUN (for source in .+)$", CONTAINERFILE, re.MULTILINE)
    native = shutil.which("cc") is not None
    if native:
        path = f"{venv}/bin:{os.environ['PATH']}"
        command = compiled.replace("/opt/floe/app", str(app))
        subprocess.run(["sh", "-c", command], check=True, env={**os.environ, "PATH": path})
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(app), "HOME": str(tmp_path)}
    imports = (
        "import agent.app, agent.cli, agent.http, iceberg.committer\n"
        "from agent.telemetry.native import MODULES\n"
        f"assert set(MODULES.values()) == {{{native}}}, MODULES\nprint('started')"
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


def test_every_native_module_is_compiled_everywhere() -> None:
    """In the image by either way, and anew in the virtual environment when its source changes."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    assert sorted(each["sources"][0] for each in known) == sorted(NATIVE)
    assert all(each["optional"] and each["py-limited-api"] for each in known)
    setup = (ROOT / "deploy" / "setup" / "venv.sh").read_text()
    assert [source for source in NATIVE if source not in setup or source[:-2] not in CONTAINERFILE] == []
    assert {name.replace(".", "/") + ".c" for name in MODULES} == set(NATIVE)


@pytest.mark.parametrize("source", NATIVE)
def test_native_modules_have_the_same_bytes_wherever_the_tree_lies(tmp_path: Path, source: str) -> None:
    if shutil.which("cc") is None:
        with pytest.raises(NotToBeHad, match="install a C compiler"):
            compile_native(source, tmp_path / "out")
        return
    made = []
    for name in ("a", "another"):
        (tmp_path / name / source).parent.mkdir(parents=True)
        shutil.copy(ROOT / source, tmp_path / name / source)
        compile_native(source, tmp_path / name / "out", tmp_path / name)
        made.append((tmp_path / name / "out").read_bytes())
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]


def test_the_images_have_the_licences_of_what_is_in_them(tmp_path: Path) -> None:
    """Of Debian's packages what each says of its copyright, and the texts that it names; and Floe's own."""
    here = {
        "usr/share/common-licenses/GPL-3": "text",
        "usr/share/doc/libc6/copyright": "text",
        "usr/share/doc/libc6/changelog.gz": "",
        "usr/share/doc/ca/examples/copyright": "",
        "usr/share/man/man1/sh.1": "",
        "usr/share/zoneinfo/UTC": "text",
    }
    for name, text in here.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "usr/share/common-licenses/GPL").symlink_to("GPL-3")
    (tmp_path / "usr/share/doc/libc6-more").symlink_to("libc6")
    drop(tmp_path, [*DROPPED, "not/there"])
    kept = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if not each.is_dir()}
    links = {"usr/share/common-licenses/GPL"}
    assert kept == {name for name, text in here.items() if text} | links
    assert (tmp_path / "usr/share/doc/libc6-more/copyright").read_text() == "text"
    assert not (tmp_path / "usr/share/man").exists()
    assert not (tmp_path / "usr/share/doc/ca").exists(), "nothing empty stays"
    drop(tmp_path, jobs.DROPPED)
    assert not (tmp_path / "usr/share/zoneinfo").exists()
    assert (tmp_path / "usr/share/doc/libc6/copyright").read_text() == "text"


def test_the_images_have_floes_own_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "PACKAGES", ())
    monkeypatch.setattr(images, "NATIVE", ())
    (tmp_path / "opt/floe/app").mkdir(parents=True)
    images._app(tmp_path)
    licence = (ROOT / "LICENSE").read_text()
    assert (tmp_path / "opt/floe/LICENSE").read_text() == licence
    assert ROOT / "LICENSE" in images._own(), "another text makes another image"
    (path,) = re.findall(r"^COPY LICENSE (\S+)$", CONTAINERFILE, re.MULTILINE)
    assert path == "/opt/floe/LICENSE"
