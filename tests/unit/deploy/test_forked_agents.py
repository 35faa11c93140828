"""An agent that is forked of a Python with its imports made is otherwise as one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.services import launching
from deploy.services.launching import Launcher, Process
from deploy.services.service import Service
from tests.equipment import forks

TOLD = """
import json, os, signal, sys
print(json.dumps({
    "words": sys.argv[1:], "name": __name__, "folder": os.getcwd(), "environment": dict(os.environ),
    "own session": os.getsid(0) == os.getpid(), "input": sys.stdin.read(), "path": sys.path[0],
    "interrupted": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
}), flush=True)
print("agent.app" in sys.modules, hash("a"), os.getpid(), flush=True)
if "stay" in sys.argv:
    signal.pause()
sys.exit(3)
"""
LOOKS_MAX = 6_000
HOW: dict[str, Launcher] = {"spawned": launching.spawned, "forked": forks.start}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A folder with a module `told` that says what it is."""
    (tmp_path / "told.py").write_text(TOLD)
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def servers() -> Iterator[None]:
    """Servers of these tests' own: those of the session go on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forks, "_servers", {})
        patch.setattr(forks, "FORKED", ["told"])
        yield
        forks.end()


def start(how: str, folder: Path, *words: str, **more: str) -> tuple[Process, Path]:
    """The module, and its log."""
    log = folder / f"{how}-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "told", *words]
    environment = {"PATH": "/usr/bin:/bin", "LC_CTYPE": "C.UTF-8", "HOME": str(folder), **more}
    return HOW[how](command, cwd=folder, env=environment, log=log), log


def lines(log: Path, count: int = 2) -> list[str]:
    """Its first ones, once they are there."""
    return until(lambda: found if len(found := log.read_text().splitlines()) >= count else [])


def until(look: Callable[[], list[str]]) -> list[str]:
    for _ in range(LOOKS_MAX):
        if found := look():
            return found
        time.sleep(0.01)
    raise AssertionError("it says nothing")


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["interrupts", "ignored"])
def interrupt(request: pytest.FixtureRequest) -> Iterator[None]:
    """What SIGINT does here, and in what is started: nothing in a shell's background."""
    forks.end()  # a server is as this process was when it started
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)
    forks.end()


@pytest.mark.usefixtures("interrupt")
def test_it_is_told_the_same(told: Path) -> None:
    of: dict[str, dict[str, object]] = {}
    for _ in range(forks.SEEDS):
        start("forked", told, OTHERS="variable")[0].wait(60)
    for how in HOW:
        process, log = start(how, told, "serve", "--config", "x")
        assert process.wait(60) == 3
        of[how] = json.loads(lines(log)[0])
        assert lines(log)[1].startswith(str(how == "forked")), "only one of them has the imports"
    assert of["forked"] == of["spawned"]
    assert of["forked"]["words"] == ["serve", "--config", "x"]


def test_it_dies_alone_and_says_how(told: Path) -> None:
    """SIGKILL ends it at once, as the fault that it is; the next one is forked as if nothing had been."""
    (one, _), (other, log) = start("forked", told, "stay"), start("forked", told, "stay")
    assert int(lines(log)[1].split()[2]) == other.pid
    assert one.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    one.kill()
    assert one.wait(60) == one.poll() == -signal.SIGKILL
    one.send_signal(signal.SIGTERM)  # to nobody
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    assert other.wait(60) == -signal.SIGTERM


def test_two_after_one_another_hash_differently(told: Path) -> None:
    """State that depends on the order of a set then differs between two agents, and a test sees it."""
    seen = []
    for _ in range(2 * forks.SEEDS):
        process, log = start("forked", told)
        process.wait(60)
        seen.append(lines(log)[1].split()[1])
    assert len(set(seen)) == forks.SEEDS
    assert seen[0] != seen[1]


def test_other_words_for_the_interpreter_other_modules_and_programs_are_started_as_ever(told: Path) -> None:
    before, other = dict(forks._servers), [sys.executable, "-m", "json.tool", "--help"]
    for command in (
        ["true"],
        [sys.executable, "-c", "pass"],
        [sys.executable, "-W", "error", "-m", "told"],
        other,
    ):
        process = forks.start(command, cwd=told, env={}, log=told / "log")
        assert isinstance(process, subprocess.Popen)
        process.wait(60)
    assert forks._servers == before


class Agent(Service):
    """A forked service."""

    name = "told"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "told", "stay"]

    def ready(self) -> bool:
        return len(self.log_path.read_text().splitlines()) >= 2


def test_a_forked_service_is_paused_resumed_and_killed(told: Path) -> None:
    with Agent(told) as service:
        assert not isinstance(service._process, subprocess.Popen), "tests/conftest.py has them forked"
        service.pause()
        states = [task.read_text().rsplit(")", 1)[1].split()[0] for task in tasks(service.pid)]
        assert set(states) == {"T"}
        service.resume()
        os.kill(service.pid, signal.SIGKILL)
        while service.running:
            time.sleep(0.01)
        assert service.ended_by_itself == -signal.SIGKILL


def tasks(pid: int) -> list[Path]:
    return [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
