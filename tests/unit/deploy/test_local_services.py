"""The local servers' promises that need no server: ports, the Go that is chosen, death with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from deploy.services import build, guardian
from deploy.services.ports import PORTS, PORTS_STEP, free_port
from deploy.services.service import START_CPU_SECONDS_MAX, Service, ServiceError, cpu_seconds
from tests.kubernetes import gateway

ROOT = Path(__file__).resolve().parents[3]
PARENT = """
import os, signal, subprocess, sys
from deploy.services import guardian
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
guardian.guard(child.pid)
print(child.pid, flush=True)
sys.stdin.readline()
"""


def gone(pid: int) -> bool:
    """Whether the process has ended (an orphan may stay a zombie where nobody reaps)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_what_is_guarded_dies_with_its_parent(how: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        if how is not None:
            os.kill(parent.pid, how)
    while not gone(child):
        time.sleep(0.01)


ANOTHER_LATER = """
import io
real, reads = open, []
def open(path):  # from the second look on the process has begun a tick later
    reads.append(path)
    head, tail = real(path).read().rsplit(")", 1)
    fields = tail.split()
    fields[19] = str(int(fields[19]) + len(reads) - 1)
    return io.StringIO(head + ") " + " ".join(fields))
"""


@pytest.mark.parametrize("reused", [True, False])
def test_a_number_that_is_another_process_s_by_then_is_left_alone(reused: bool) -> None:
    program = guardian._PROGRAM
    with subprocess.Popen(["sleep", "1000"]) as child:
        told = f"+{child.pid}\n"
        subprocess.run(
            [sys.executable, "-c", ANOTHER_LATER + program if reused else program],
            input=told,
            text=True,
            check=True,
        )
        if reused:
            assert child.poll() is None
            child.kill()
        assert child.wait() == -signal.SIGKILL


class Sleeper(Service):
    """A service without a port: ready at once, or never."""

    name = "sleeper"

    def __init__(self, directory: Path, shell: str) -> None:
        super().__init__(directory)
        self.shell = shell

    def command(self) -> list[str]:
        return ["sh", "-c", self.shell]

    def ready(self) -> bool:
        return "exit" not in self.shell


def test_a_service_is_killed_paused_resumed_and_restarted(tmp_path: Path) -> None:
    with Sleeper(tmp_path, "exec sleep 1000") as service:
        first = service.pid
        service.pause()
        while Path(f"/proc/{first}/stat").read_text().split()[2] != "T":
            time.sleep(0.01)
        service.resume()
        service.restart()
        assert service.pid != first
        assert gone(first)
        service.kill()
        assert not service.running
        service.start()
        service.pause()  # stop() ends a paused one, too
    assert not service.running
    assert tmp_path.exists(), "a folder that was given stays"
    service.stop()


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"status 3(.|\n)*no such drive"):
        Sleeper(tmp_path, "echo no such drive; exit 3").start()


class Slow(Sleeper):
    """A service that answers when it has been looked at so often."""

    ready_seconds_max = 0

    def __init__(self, directory: Path, looks: int) -> None:
        super().__init__(directory, "exec sleep 1000")
        self.looks = looks

    def ready(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_a_slow_start_is_waited_for_while_it_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an agent had not answered after three minutes, and was given up."""
    used = count(1)
    monkeypatch.setattr("deploy.services.service.cpu_seconds", lambda pid: next(used))
    with Slow(tmp_path, START_CPU_SECONDS_MAX) as service:
        assert service.running
    with pytest.raises(ServiceError, match="has not got on for 0 s"):
        Slow(tmp_path, 10 * START_CPU_SECONDS_MAX).start()  # it only turns round


def test_a_start_that_does_nothing_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="has not got on for 0 s"):
        Slow(tmp_path, 1000).start()


def test_the_processor_s_seconds_of_a_process_are_counted() -> None:
    while not cpu_seconds(os.getpid()):
        pass
    assert cpu_seconds(os.getpid()) >= 1


def test_ports_differ_and_are_below_the_kernel_s_own() -> None:
    ports = [free_port() for _ in range(PORTS_STEP + 50)]
    assert len(set(ports)) == len(ports)
    assert all(port in PORTS for port in ports)


def test_no_two_processes_are_given_the_same_port() -> None:
    told = "from deploy.services.ports import *; print(*(free_port() for _ in range(PORTS_STEP))); input()"
    others = [
        subprocess.Popen(
            [sys.executable, "-uc", told], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    given = [port for each in others if each.stdout for port in each.stdout.readline().split()]
    for each in others:
        each.communicate("\n", timeout=60)
    assert len(given) == 4 * PORTS_STEP
    assert len(set(given)) == len(given)


def test_an_unknown_tool_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(build.BuildError, match=r"no tool named 'ectd'.*etcd.*minio"):
        build.tool_path("ectd")


def fake_go(folder: Path, version: str) -> None:
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho go{version}\n")
    go.chmod(0o755)


def test_an_installed_go_is_used_when_recent_enough_else_the_wheel_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path / "installed", "1.26.1")
    fake_go(tmp_path / "wheel", "1.27.3")
    monkeypatch.setenv("PATH", f"{tmp_path / 'installed'}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "wheel" / "python"))
    assert build.find_go("1.26.0") == str(tmp_path / "installed" / "go")
    assert build.find_go("1.27.0") == str(tmp_path / "wheel" / "go")
    with pytest.raises(build.BuildError, match=r"Go 1\.28\.0 or newer.*1\.26\.1"):
        build.find_go("1.28.0")


def test_every_tool_is_pinned_and_says_how_to_build_it() -> None:
    for module in sorted(build.TOOLS.glob("*/go.mod")):
        text = module.read_text()
        assert text.count("\ntool ") == (module.parent.name != gateway.TOOL), module
        assert (module.parent / "go.sum").is_file(), module
