"""`floe table audit --continuous`: one Spark that stays, and audits what is new."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, cast

import pytest

from agent.cli import audit_continuous
from agent.cli.audit import Auditing
from agent.cli.audit_continuous import FAILED_ROUNDS, Continuous, Pace, Standing, _Done
from agent.cli.failures import Failure
from deploy.run.damage import damage
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from tests.unit.agent.cli.conftest import CLEAN, ROOT, Dev
from tests.unit.agent.cli.test_audit import behind, figure, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAID_S_MAX = 420
EVERY_S = 1
ROWS = 2_000  # enough that a changed file has room for its metadata
pytestmark = [pytest.mark.services, pytest.mark.timeout(1200)]  # Spark, which waits for processors


class Watching:
    """The command while it runs, and its lines as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._lines = process, Queue[str]()
        self.others: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def says(self, topic: str) -> dict[str, Any]:
        """The next audit of a topic; what comes before it of others goes to `others`."""
        self.others = []
        while (found := json.loads(self._lines.get(timeout=SAID_S_MAX)))["topic"] != topic:
            self.others.append(found)
        said: dict[str, Any] = found
        return said

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its status when it is told to end."""
        self._process.send_signal(number)
        return self._process.wait(SAID_S_MAX)


@contextmanager
def watching(dev: Dev, *topics: str) -> Iterator[Watching]:
    """The command over these topics."""
    words = [*topics, "--continuous", "--every", str(EVERY_S), "--output", "json"]
    words += ["--jars", str(ensure("iceberg")[0].parent), "--java-home", str(java_home())]
    command = [sys.executable, "-W", "error", "-m", "agent", "table", "audit", *words]
    where = {**CLEAN, "FLOE_BOOTSTRAP": dev.bootstrap, "FLOE_HTTP": dev.http}
    with subprocess.Popen(command, env=where, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


@pytest.mark.thorough
def test_what_is_new_is_audited_by_turns_and_damage_is_told(dev: Dev) -> None:
    """A topic that is not there, or differs, keeps no other from its turn; one with nothing new has none."""
    for topic in ("goes-on", "harmed"):
        assert dev.run("topic", "create", topic, "--partitions", "2").status == 0
        assert dev.run("produce", topic, stdin="".join(f"value {n}\n" for n in range(ROWS))).status == 0
    assert dev.run("topic", "create", "never-filled").status == 0
    until(lambda: behind(dev, "harmed") == 0, "the table is late")
    (done,) = damage(["change"], "harmed", "floe.harmed", f"{dev.http}/iceberg", {})
    with watching(dev, "absent", "never-filled", "harmed", "goes-on") as audits:
        said = audits.says("absent")
        assert said["equal"] is None
        assert "'absent'" in said["error"]
        said = audits.says("harmed")
        assert [(each["partition"], each["offset"]) for each in said["findings"]] == [
            (done.partition, done.offset)
        ]
        until(lambda: figure(dev, "floe_audit_findings", "harmed") == 1, "nobody is told")
        compared = 0
        while compared < ROWS:
            compared += equal_records(audits.says("goes-on"))

        assert dev.run("produce", "goes-on", stdin="".join(f"value {n}\n" for n in range(20))).status == 0
        while compared < ROWS + 20:
            said = audits.says("goes-on")
            compared += equal_records(said)
            assert sum(each["offset"] for each in said["since"]) >= ROWS, "not all anew"
        assert compared == ROWS + 20
        until(lambda: figure(dev, "floe_audit_findings", "goes-on") == 0, "the agent tells of no audit")
        for _ in range(2):  # two rounds more
            assert audits.says("absent")["equal"] is None
        assert not audits.others, "nothing new has no turn, found equal or not"
        assert audits.end() == 1, "the last audit of one topic found something"


def equal_records(said: dict[str, Any]) -> int:
    """How many an audit compared, which found them equal."""
    assert said["equal"], said
    compared: int = said["topics"][0]["consumed"]
    return compared


def test_one_topic_or_continuous(dev: Dev) -> None:
    status, line = dev.fails("table", "audit", "a", "b")
    assert (status, "name one, or give --continuous" in line) == (2, True)
    assert dev.fails("table", "audit")[0] == 2


def test_no_agent_is_no_success(dev: Dev) -> None:
    jars = str(ensure("iceberg")[0].parent)
    away = ("--http", "http://127.0.0.1:1", "--jars", jars)
    status, line = dev.fails("table", "audit", "--continuous", "--rounds", "1", *away)
    assert (status, "127.0.0.1:1" in line) == (4, True)


class Idle:
    """A Spark that lives, and is asked for nothing else."""

    def range(self, _: int) -> Idle:
        return self

    def count(self) -> int:
        return 1


def test_it_ends_where_nothing_can_be_audited_any_more(
    dev: Dev, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys are those of its start: whoever starts it anew, as a kubelet does, has new ones taken."""
    monkeypatch.setattr(audit_continuous, "FAILED_S", 0.0)
    assert dev.run("topic", "create", "stays-empty").status == 0
    told: list[str] = []

    def audits(http: str, rounds: int, *topics: str) -> Continuous:
        given = Auditing("", dev.bootstrap, http, [], None, 0.0, None, since_last=True)
        return Continuous(given, topics, Pace(0.0, rounds), lambda topic, _: told.append(topic))

    def rounds(of: Continuous) -> None:
        of._rounds(cast("SparkSession", Idle()), tmp_path)

    with pytest.raises(Failure, match=r"no topic could be audited in 3 rounds in a row.*'not-there'"):
        rounds(audits(dev.http, 0, "not-there", "stays-empty"))
    assert told == ["not-there"] * FAILED_ROUNDS
    with pytest.raises(Failure, match=r"in 3 rounds in a row.*no agent answers at http://127.0.0.1:1"):
        rounds(audits("http://127.0.0.1:1", 0, "not-there"))
    goes_on = audits(dev.http, FAILED_ROUNDS + 2, "not-there", "stays-empty")
    goes_on._done["stays-empty"] = _Done(Standing("", {}, None), 0.0, equal=True)
    rounds(goes_on)
    monkeypatch.setattr(audit_continuous, "FAILED_S", 3_600.0)
    rounds(audits(dev.http, FAILED_ROUNDS + 2, "not-there"))
