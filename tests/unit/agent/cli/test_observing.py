"""`floe doctor`, `floe top`, `floe support-bundle`: real agents, and what is wrong with made-up ones."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.cli.observing.bundle import LEFT_OUT
from agent.cli.observing.cluster import samples_of
from agent.cli.observing.top import Line, lines
from agent.health.ailments import Ailment, Grade, ailments
from agent.health.told import Told
from tests.unit.agent.cli.conftest import Dev, fails

DAY_S = 86_400


def broker(name: str, unwell: str = "") -> dict[str, str]:
    return {"name": name, "http": f"{name}:8080", "unwell": unwell, "zone": "z"}


def agent(name: str = "a", metrics: str = "", at: float = 10.0, **status: Any) -> Told:
    """An agent that is well but for what is said."""
    well: dict[str, Any] = {
        "agent": name,
        "cluster": "c",
        "version": "1",
        "ready": True,
        "reasons": [],
        "feature_level": 2,
        "recent": [{"revision": 5, "state_hash": "x"}],
        "brokers": [broker("a"), broker("b")],
        "files": {},
    }
    empty = ("dependencies", "failing_jobs", "damaged", "refused", "defects", "tables")
    return Told(
        name, f"http://{name}", well | {key: [] for key in empty} | status, samples_of(metrics), at=at
    )


def found(*agents: Told, now_ms: int = 0) -> list[Ailment]:
    return ailments(agents, now_ms)


def test_a_sound_cluster_has_no_ailment() -> None:
    assert found(agent("a"), agent("b")) == []


CHECK: Mapping[str, Any] = {"name": "log", "ok": False, "message": "no leader", "for_s": 7.0}
PROCESS = {"name": "a.1", "ready": False, "replaced": 3, "last_end": "ended, SIGKILL"}
PLACE = {"topic": "t", "partition": 3, "from_offset": 4, "to_offset": 9, "reason": "lost"}
JOB = {"job": "snapshot", "failures": 3, "since": "noon", "error": "Denied"}
SICK: dict[str, tuple[Told, Grade, str]] = {
    "a dependency": (agent(dependencies=[CHECK], ready=False), Grade.WRONG, "log: no leader, for 7 s"),
    "starting": (agent(ready=False, reasons=["catching up"]), Grade.WRONG, "is not ready: catching up"),
    "a job": (agent(failing_jobs=[JOB]), Grade.WRONG, "snapshot has failed 3 times since noon: Denied"),
    "damage": (agent(damaged=[PLACE]), Grade.WRONG, "t-3: offsets 4 to 9 cannot be read: lost"),
    "refused": (
        agent(metrics='floe_produce_rejected_total{topic="t"} 2\n', refused=[{"message": "bad"}]),
        Grade.ODD,
        "2 batches were refused since its start, the newest: bad",
    ),
    "late": (agent(metrics="floe_event_loop_delay_seconds 1.5\n"), Grade.WRONG, "its loop is 1.5 s late"),
    "behind": (agent(metrics="floe_lag_seconds 9\n"), Grade.WRONG, "is 9 s behind the log"),
    "clock": (agent(metrics="floe_clock_skew_ms -3600000\n"), Grade.WRONG, "its clock is -3600 s off"),
    "buffer": (
        agent(metrics="floe_produce_buffered_bytes 90\nfloe_produce_buffer_bytes_max 100\n"),
        Grade.ODD,
        "its produce buffer is 90% full",
    ),
    "memory": (
        agent(metrics="floe_memory_limit_bytes 1048576\nfloe_memory_needed_bytes 2097152\n"),
        Grade.ODD,
        "may use 2 MiB of the 1 MiB it has",
    ),
    "a secret": (
        agent(files={"log.password_file": "changed"}),
        Grade.ODD,
        "the file of log.password_file: changed",
    ),
    "users": (agent(metrics="floe_users_file_failing 1\n"), Grade.WRONG, "its file of users cannot be used"),
    "a certificate": (
        agent(metrics=f'floe_tls_expires_seconds{{listener="K"}} {3 * DAY_S}\n'),
        Grade.WRONG,
        "the certificate of listener K ends in 3.0 days",
    ),
    "a defect": (agent(defects=[{"place": "p", "error": "E", "count": 2}]), Grade.ODD, "p: E, 2 times"),
    "a table": (
        agent(metrics='floe_table_seconds_behind{topic="t"} 900\n'),
        Grade.WRONG,
        "the table of t lacks a record that is 900 s old",
    ),
    "a table's problem": (
        agent(tables=[{"topic": "t", "problems": ["odd"]}]),
        Grade.ODD,
        "the table of t goes on with a problem: odd",
    ),
    "a process": (
        replace(agent(), processes=[PROCESS]),
        Grade.WRONG,
        "was replaced 3 times and is not ready; the one before: ended, SIGKILL",
    ),
    "aside": (
        agent("b", brokers=[broker("a", "the store"), broker("b")]),
        Grade.WRONG,
        "has stepped aside: the store",
    ),
}


@pytest.mark.parametrize(("told", "grade", "what"), SICK.values(), ids=SICK)
def test_each_ailment_is_told_with_a_remedy(told: Told, grade: Grade, what: str) -> None:
    (each,) = found(told)
    assert (each.grade, each.what.startswith(what), bool(each.remedy)) == (grade, True, True), each
    page = Path(each.page.partition("#")[0])
    assert (Path(__file__).parents[4] / page).exists()


def test_agents_that_disagree_are_told_first() -> None:
    other = agent("b", recent=[{"revision": 5, "state_hash": "y"}], version="2", cluster="d")
    first, *rest = found(agent("a", files={"x": "y"}), other)
    assert (first.where, "state differs at revision 5: a against b" in [e.what for e in [first, *rest]]) == (
        "cluster",
        True,
    )
    whats = " ".join(each.what for each in [first, *rest])
    assert ("several versions: 1, 2" in whats, "several clusters: c, d" in whats) == (True, True)


def test_who_does_not_answer_here_is_dead_only_if_others_say_so() -> None:
    silent = Told("b", "http://b", error="timed out")
    (unknown,) = found(agent("a"), silent)
    assert (unknown.grade, "cannot be reached from here (timed out)" in unknown.what) == (Grade.ODD, True)
    known = found(agent("a", brokers=[broker("a"), broker("b", "silent for 9 s")]), silent)
    assert [(each.grade, each.where) for each in known] == [(Grade.WRONG, "b")] * 2


COUNTED = """process_start_time_seconds {start}
floe_produce_bytes_total {bytes}
floe_put_seconds_count {puts}
floe_put_seconds_sum {sum}
"""


def test_rates_are_between_two_looks_and_begin_anew_with_the_agent() -> None:
    before = agent(metrics=COUNTED.format(start=1, bytes=0, puts=10, sum=1), at=10.0)
    now = agent(metrics=COUNTED.format(start=1, bytes=4 << 20, puts=30, sum=2), at=12.0)
    (line,) = lines([before], [now])
    assert (line.in_mib, line.puts, line.put_ms, line.zone) == (2.0, 10.0, 50.0, "z")
    again = agent(metrics=COUNTED.format(start=2, bytes=1 << 20, puts=1, sum=1), at=12.0)
    (fresh,) = lines([before], [again])
    assert (fresh.in_mib, fresh.put_ms) == (0.0, 1000.0)
    assert lines([before], [Told("a", "http://a", error="gone")]) == [Line("a", "", "no answer")]


def test_a_real_agent_is_looked_at(dev: Dev, tmp_path: Path) -> None:
    dev.run("topic", "create", "observed")
    dev.run("produce", "observed", "--value", "a secret record")
    told = json.loads(dev.run("doctor", "--output", "json").out)
    assert (told["agents"], told["answered"]) == (1, 1)
    assert [
        each for each in told["found"] if each["grade"] == Grade.WRONG and "loop" not in each["what"]
    ] == []
    assert dev.run("doctor").out.startswith("1 of 1 agents answer; ")
    (line,) = json.loads(dev.run("top", "--interval", "0.3", "--output", "json").out)
    assert (line["state"], line["memory_mib"] > 50) == ("ready", True)
    assert "out MiB/s" in dev.run("top", "--once", "-n", "0.2").out
    log = tmp_path / "agent.log"
    log.write_text("it began\n")
    target = tmp_path / "bundle.zip"
    packed = (
        "support-bundle",
        str(target),
        "--log",
        str(log),
        "--set",
        "store.secret_key=hidden",
        "--set",
        "store.access_key=k",
    )
    ran = dev.run(*packed, "--set", "log.url=sqlite:///tmp/x", "--set", "store.url=file:///tmp/y")
    assert ran.out.startswith(f"{target}: 1 of 1 agents, ")
    with zipfile.ZipFile(target) as archive:
        names = set(archive.namelist())
        text = b"".join(archive.read(name) for name in names)
        status = json.loads(archive.read("agents/dev/status.json"))
    assert {"doctor.json", "about.json", "settings.json", "logs/agent.log", "agents/dev/metrics.txt"} <= names
    assert (b"hidden" in text, b"a secret record" in text) == (False, False)
    assert all(each["message"] == LEFT_OUT for each in status["refused"])
    kept = target.read_bytes()
    assert dev.fails("support-bundle", str(target))[0] == 5
    assert target.read_bytes() == kept


def test_nobody_there_is_one_line() -> None:
    for command in (["doctor"], ["top", "--once"], ["support-bundle", "/tmp/never.zip"]):
        status, line = fails(*command, "--http", "http://127.0.0.1:1")
        assert (status, "no agent answers" in line) == (4, True)
    assert not Path("/tmp/never.zip").exists()


def test_who_is_drained_is_told_of_as_odd_and_not_as_ill() -> None:
    drained = [broker("a", "drained by root") | {"drained": True}, broker("b")]
    reasons = ["this agent has stepped aside: drained by root"]
    (one,) = found(agent("a", brokers=drained, ready=False, reasons=reasons), agent("b", brokers=drained))
    assert (one.grade, one.where, one.what) == (Grade.ODD, "a", "is drained by root")
    assert "floe drain a --undo" in one.remedy


def test_logs_that_are_called_alike_are_all_packed(dev: Dev, tmp_path: Path) -> None:
    """Those of agents are: each has its own folder, its pod's or its machine's."""
    files = [tmp_path / name for name in ("a/floe.log", "b/floe.log", "b/a/floe.log", "one.log")]
    for each in files:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(f"{each.relative_to(tmp_path)}\n")
    given = [
        word for each in (*files, files[0].parent / ".." / "a" / "floe.log") for word in ("--log", str(each))
    ]
    target = tmp_path / "bundle.zip"
    dev.run("support-bundle", str(target), *given)
    with zipfile.ZipFile(target) as archive:
        logs = {name: archive.read(name).decode() for name in archive.namelist() if name.startswith("logs/")}
    above = tmp_path.name
    assert logs == {
        f"logs/{above}/a/floe.log": "a/floe.log\n",
        "logs/b/floe.log": "b/floe.log\n",
        "logs/b/a/floe.log": "b/a/floe.log\n",
        "logs/one.log": "one.log\n",
    }
