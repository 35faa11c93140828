"""Runs a program in mount, network and pid namespaces of its own, with cgroups of its own; all end with it.

`python -m deploy.kubernetes.namespaces MODULE …` must be root. Whatever is started inside is killed by the
kernel when process 1 of the pid namespace ends, and mounts and interfaces go with their namespaces. What the
kernel does not take away by itself, the cgroups, is removed after it, or before the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from deploy.services.guardian import guard, release

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / "build" / "kubernetes"
CGROUPS = Path("/sys/fs/cgroup")
GROUP = "floe-kubernetes"
CONTROLLERS = ("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids", "systemd")
CPU_SHARES = int(os.environ.get("SHARES") or 262_144)
"""All of it together, the most that the kernel takes, against each session outside, which has 1024: what
others do is not what is measured. Where the kernel groups by session, niceness between them changes nothing.
SHARES=120 in the environment: who else works here matters more than what it takes."""
EMPTY_SECONDS_MAX = 20
PATIENCE = 1 if CPU_SHARES >= 1024 else 5
"""Times as long it is waited for all in there, where it stands behind the sessions outside."""


class NotHere(Exception):
    """This machine cannot run it; the message says what is missing."""


def inside(module: str, *arguments: str) -> int:
    """Run `python -m module …` there; its exit status. Raises NotHere."""
    _possible()
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotHere(f"another run holds {STATE}/lock: wait for its end") from None
        _remove_groups()
        _make_groups()
        try:
            return _run(module, arguments)
        finally:
            _remove_groups()
            shutil.rmtree(STATE / "run", ignore_errors=True)


def _possible() -> None:
    if os.geteuid() != 0:
        raise NotHere("namespaces and cgroups need root: run this as root")
    if not (CGROUPS / "memory").is_dir():
        raise NotHere(f"{CGROUPS}/memory is missing: this runs where cgroups of version 1 are mounted")
    for tool in ("unshare", "ip", "mount", "openssl"):
        if shutil.which(tool) is None:
            raise NotHere(f"no {tool}: install util-linux, iproute2 and openssl")


def _run(module: str, arguments: tuple[str, ...]) -> int:
    command = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    first = [sys.executable, "-m", "deploy.kubernetes.namespaces", module, *arguments]
    environment = {**os.environ, "FLOE_INSIDE": "1"}
    with subprocess.Popen([*command, *first], cwd=ROOT, env=environment) as process:
        guard(process.pid)

        def stop(_number: int, _frame: FrameType | None) -> None:
            process.send_signal(signal.SIGKILL)  # --kill-child: process 1 there goes too, and all with it

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        status = process.wait()
        release(process.pid)
        return status


def _make_groups() -> None:
    for controller in CONTROLLERS:
        group = CGROUPS / controller / GROUP
        group.mkdir(exist_ok=True)
        if controller == "cpuset":
            _same_processors(group)
        if controller == "cpu":
            (group / "cpu.shares").write_text(str(CPU_SHARES))
        if controller == "memory":
            with contextlib.suppress(OSError):
                (group / "memory.use_hierarchy").write_text("1")
        (group / "system").mkdir(exist_ok=True)
        if controller == "cpuset":
            _same_processors(group / "system")


def _same_processors(group: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        (group / name).write_text((group.parent / name).read_text())


def _remove_groups() -> None:
    """Kill what is still in our groups, and remove them. There may be none."""
    deadline = time.monotonic() + EMPTY_SECONDS_MAX
    while left := [each for each in CGROUPS.glob(f"*/{GROUP}") if each.is_dir()]:
        for top in left:
            for folder, _, _ in os.walk(top, topdown=False):
                _remove_group(Path(folder))
        if time.monotonic() > deadline:
            raise NotHere(f"cgroups that do not go away: {', '.join(map(str, left))}")
        time.sleep(0.05)


def _remove_group(group: Path) -> None:
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    with contextlib.suppress(OSError):
        group.rmdir()


def _first(command: list[str]) -> int:
    """Process 1 of the namespace: joins our cgroups, starts the program and ends with it, buries orphans."""
    for controller in CONTROLLERS:
        (CGROUPS / controller / GROUP / "system" / "cgroup.procs").write_text("0")
    worker = os.fork()
    if worker == 0:
        os.execvp(command[0], command)
    while True:
        pid, status = os.wait()
        if pid == worker:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    """From outside, go in; inside, be process 1."""
    if os.environ.pop("FLOE_INSIDE", ""):
        return _first([sys.executable, "-m", *sys.argv[1:]])
    try:
        return inside(*sys.argv[1:])
    except NotHere as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
