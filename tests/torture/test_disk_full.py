"""The disk is full under the embedded default: retriable errors, reads go on, it recovers [rule 10].

Two real ways to run out of space: a small file system of the agent's own, where the kernel lets us mount one,
and a limit on the size of files, which needs no rights at all.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.config import embedded_values
from coordination.kafka_codes import Code
from deploy.services.floe import FloeAgent
from objectstore.batch import NewRecord, build
from tests.compat import raw
from tests.torture.run import create_topic, unexplained
from tests.torture.verdict import judge
from tests.torture.workload import Writer, read_all

pytestmark = [pytest.mark.services, pytest.mark.timeout(240)]

DISK_MIB, BALLAST_MIB = 48, 24
FILE_KIB_MAX = 2_048  # SQLite's write-ahead log grows past this soon
TOPIC, PROBE, PARTITIONS = "disk", "probe", (0, 1)
SECONDS_MAX = 90
RETRIABLE = (Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER)
NAMESPACES = ((), ("--user", "--map-root-user"))  # as root; as anybody


class SmallDisk(FloeAgent):
    """An agent whose data folder is a file system of DISK_MIB that only it sees."""

    def __init__(self, name: str, settings: Mapping[str, Any], directory: Path) -> None:
        super().__init__(name, settings, directory)
        self.disk = directory / "disk"
        self.disk.mkdir()
        self.flags = mount_flags() or ()

    def command(self) -> list[str]:
        """Mount, leave less than is there, be an agent."""
        disk = shlex.quote(str(self.disk))
        script = f"mount -t tmpfs -o size={DISK_MIB}m tmpfs {disk} && head -c {BALLAST_MIB}M /dev/zero "
        script += f"> {disk}/ballast && exec {shlex.join(super().command())}"
        return ["unshare", "--mount", *self.flags, "sh", "-c", script]

    def free_space(self) -> None:
        """As an operator who finds something to delete."""
        Path(f"/proc/{self.pid}/root{self.disk}/ballast").unlink()


class SmallFiles(FloeAgent):
    """An agent whose files may not grow past FILE_KIB_MAX (RLIMIT_FSIZE); with 0 not before fill()."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], directory: Path, file_kib_max: int = FILE_KIB_MAX
    ) -> None:
        super().__init__(name, settings, directory)
        self.file_kib_max = file_kib_max
        self.disk = directory / "disk"
        self.disk.mkdir()

    def command(self) -> list[str]:
        """Only the soft limit: it can be lifted again."""
        script = f"ulimit -S -f {self.file_kib_max or 'unlimited'} && exec {shlex.join(super().command())}"
        return ["bash", "-c", script]

    def fill(self) -> None:
        """From now on nothing grows."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (0, hard))

    def free_space(self) -> None:
        """Lift the limit of the running process."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard, hard))


def mount_flags() -> tuple[str, ...] | None:
    """How this process may mount a file system of its own; None when it may not."""
    for flags in NAMESPACES:
        command = ["unshare", "--mount", *flags, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return flags
    return None


KINDS = (SmallFiles,) if mount_flags() is None else (SmallFiles, SmallDisk)
Kind = SmallFiles | SmallDisk


@pytest.fixture(params=KINDS)
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    settings = embedded_values(tmp_path / "disk", kafka_port=0, http_port=0)
    for filled_in in ("agent", "listeners", "http"):
        del settings[filled_in]
    settings["produce"] = {"commit_timeout_ms": 4_000}
    settings["replica"] = {"queue_timeout_ms": 2_000, "outcome_timeout_ms": 2_000}
    settings["tables"] = {"interval_ms": 500}
    with request.param("full", settings, tmp_path) as running:
        yield running


def test_a_full_disk_loses_nothing_and_heals(agent: Kind) -> None:
    create_topic(agent.bootstrap, TOPIC, len(PARTITIONS))
    create_topic(agent.bootstrap, PROBE, 1)
    writer = Writer("w", agent.bootstrap, TOPIC, PARTITIONS, rate=1_000, size=2_000)
    writer.start()
    code = _refused_with(agent)
    acknowledged = len(writer.sent)
    assert code in RETRIABLE
    assert agent.alive()
    before = read_all(agent.bootstrap, TOPIC, PARTITIONS)
    assert sum(map(len, before.values())) >= acknowledged > 0, "what was acknowledged can be read meanwhile"
    agent.free_space()
    _until(lambda: len(writer.sent) > acknowledged + 1_000, "it takes records again")
    writer.stop()
    verdict = judge(writer.sent, read_all(agent.bootstrap, TOPIC, PARTITIONS), [])
    verdict.findings += unexplained([writer])
    when = f"{code.name} after {acknowledged} acknowledged"
    print(f"\n{type(agent).__name__}: {when}; in the end {verdict.report()}")
    assert verdict.findings == [], verdict.report()
    assert verdict.acknowledged == len(writer.sent)
    _until(lambda: _rows_behind(agent) == 0, "the table catches up")
    assert agent.ended_by_itself is None


def _refused_with(agent: Kind) -> Code:
    """Produce single records until one is refused; the code that the producer is told."""
    found: list[Code] = []

    def probe() -> bool:
        record = build([NewRecord(1_700_000_000_000, None, b"probe")])
        answer = asyncio.run(raw.produce(agent.bootstrap, PROBE, record))
        found.append(Code(answer.error_code))
        return found[-1] is not Code.NONE

    _until(probe, "the disk is full")
    return found[-1]


def _rows_behind(agent: Kind) -> int:
    with urllib.request.urlopen(f"{agent.http}/status", timeout=10) as response:
        tables = json.load(response)["tables"]
    (table,) = [each for each in tables if each["topic"] == TOPIC]
    return int(table["records_behind"])


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.1)
