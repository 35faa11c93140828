"""Traefik, which serves the chart's routes on a real Kubernetes: `make kubernetes` alone has it.

Its release comes as a wheel, pinned by gateway.lock with its hash, into build/tools; to build it with Go took
three minutes of two cores.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("gateway.lock")
OUTPUT = ROOT / "build" / "tools"
INSTALL_SECONDS_MAX = 600


class NoGateway(Exception):
    """The program is not to be had; the message says what to do."""


def program(lock: Path = LOCK, output: Path = OUTPUT) -> Path:
    """`traefik`, brought when it is missing. Safe from several processes at once. Raises NoGateway."""
    folder = output / f"traefik-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    output.mkdir(parents=True, exist_ok=True)
    with (output / "traefik.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not folder.is_dir():
            fresh = folder.with_name(f".{folder.name}")
            shutil.rmtree(fresh, ignore_errors=True)
            _install(lock, fresh)
            fresh.replace(folder)
    found = folder / "bin" / "traefik"
    if not found.is_file():
        raise NoGateway(f"{found} is missing: remove {folder}, and it is brought again")
    return found


def _install(lock: Path, target: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", target)
    command = [uv, "pip", "install", *options, "--requirements", lock]
    try:
        ran = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise NoGateway(
            f"the wheel of {lock.name} took over {INSTALL_SECONDS_MAX} s: check the network"
        ) from None
    if ran.returncode:
        raise NoGateway(
            f"the wheel of {lock.name} is not to be had, is the network there? {ran.stderr.strip()[-1000:]}"
        )
