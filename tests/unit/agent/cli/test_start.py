"""Starting, stopping and not starting: statuses and single lines, with no agent there or a wrong one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import agent_http
from agent.cli.serving import NO_LOG, followed
from agent.config import load
from deploy.services.ports import free_port
from tests.unit.agent.cli.conftest import CLEAN, STOP_S_MAX, Dev, fails, floe, inside, start_dev

NOBODY = ("127.0.0.1:1", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("topic", "create"), 2, "floe topic --help"),
        (("dev", "--kafka-port", "99999"), 2, "less than or equal to 65535"),
        (("topic", "list", "--bootstrap", "nowhere"), 2, "'nowhere' is not host:port"),
        (("topic", "list", "--bootstrap", "h:70000"), 2, "'h:70000' is not host:port, with a port from 1 to"),
        (("topic", "list", "--bootstrap", "h:²"), 2, "'h:²' is not host:port"),
        (("topic", "list", "--bootstrap", "h:0"), 2, "'h:0' is not host:port"),
        (("topic", "list", "--bootstrap", "a..b:9092"), 4, "a..b:9092: no name of a host"),
        (("topic", "create", "x", "--partitions", "3000000000"), 2, "'--partitions'"),
        (("topic", "config", "x", "--partitions", "3000000000"), 2, "'--partitions'"),
        (("bench", "--partitions", "3000000000"), 2, "'--partitions'"),
        (("status", "--http", "ftp://x"), 2, "http:// or https://"),
        (("status", "--http", "http://h:70000"), 2, "'http://h:70000' is not http://host:port"),
        (("status", "--http", "http://h:²"), 2, "'http://h:²' is not http://host:port"),
        (("status", "--http", "http://a..b"), 2, "'http://a..b' is not http://host:port"),
        (("status", "--http", "http://[::1"), 2, "'http://[::1' is not http://host:port"),
        (
            ("schema", "register", "s", "pyproject.toml", "--type", "AVRO", "--reference", "a=b@²"),
            2,
            "'a=b@²'",
        ),
        (("schema", "import", "http://h:70000"), 2, "'http://h:70000' is no URL of a registry"),
        (("schema", "import", "http://a..b"), 2, "'http://a..b' is no URL of a registry"),
        (("serve", "--processes", "9" * 5_000), 2, "give a number from 1 to"),
        (
            ("topic", "list", "--bootstrap", NOBODY[0]),
            4,
            "no agent is reached (127.0.0.1:1: Connection refused)",
        ),
        (("consume", "x", "--bootstrap", NOBODY[0]), 4, "no agent is reached"),
        (("produce", "x", "-v", "1", "--bootstrap", NOBODY[0]), 4, "start one with `floe dev`"),
        (("status", "--http", NOBODY[1]), 4, "Connection refused"),
        (("table", "list", "--http", NOBODY[1]), 4, "Connection refused"),
        (("config",), 3, "log.url is not set"),
        (("serve",), 3, "log.url is not set"),
        (("serve", "--config", "/absent.yaml"), 3, "/absent.yaml: cannot be read"),
        (("serve", "--set", "produce.lingerms=3"), 3, "did you mean produce.linger_ms?"),
        (("dev", "--set", "tables.intervalms=3"), 3, "did you mean tables.interval_ms?"),
        (("check", "--set", "log.url=foo:"), 3, "log.url 'foo:' must begin with"),
        (
            ("bucket", "check", "--set", "log.url=memory:", "--set", "store.url=file:///x"),
            2,
            "is no S3 bucket",
        ),
    ],
)
def test_a_wrong_command_is_one_line_and_a_status(arguments: tuple[str, ...], status: int, part: str) -> None:
    got, line = fails(*arguments)
    assert (got, part in line) == (status, True), line


def test_an_unknown_key_of_a_file_is_named_with_its_line_and_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "floe.yaml"
    file.write_text("log:\n  url: x\nproduce:\n  chunk_byte_max: 1\n")
    expected = (
        f"floe: {file}:4: unknown setting produce.chunk_byte_max; did you mean produce.chunk_bytes_max?"
    )
    assert fails("serve", "--config", str(file)) == (3, expected)
    file.write_text("log: {url: [\n")
    status, line = fails("config", FLOE_CONFIG=str(file))
    assert (status, line.startswith(f"floe: {file}:2: not valid YAML")) == (3, True)


def test_config_prints_what_is_in_force_and_from_where(tmp_path: Path) -> None:
    file = tmp_path / "floe.yaml"
    file.write_text("log: {url: 'etcd://a:1/x'}\nstore: {url: 's3://b/c', access_key: AKIA}\n")
    ran = inside(
        *("config", "--config", str(file), "--set", "produce.linger_ms=9", "--output", "json"),
        FLOE_STORE__SECRET_KEY="hunter2",
    )
    rows = {row["setting"]: (row["value"], row["from"]) for row in json.loads(ran.out)}
    assert rows["log.url"] == ("etcd://a:1/x", f"{file}:1")
    assert rows["produce.linger_ms"] == ("9", "--set")
    assert rows["store.secret_key"] == ("********", "environment FLOE_STORE__SECRET_KEY")
    assert rows["fetch.wait_ms_max"][1] == "default"
    assert "hunter2" not in ran.out + ran.err


def test_a_replica_takes_the_file_of_the_clusters_agents(tmp_path: Path) -> None:
    """Where tables lie in the cluster's bucket is not below the URL of the copy that is followed."""
    file = tmp_path / "floe.yaml"
    file.write_text("store: {url: 's3://floe/main'}\ntables: {warehouse: 's3://floe/main/lake'}\n")
    config = load(file, followed("s3://floe-copy/main"), base=NO_LOG, environment={}).config
    assert config.warehouse == "s3://floe-copy/main/tables"


def test_help_tells_a_newcomer_where_to_begin() -> None:
    for arguments in ((), ("--help",), ("-h",)):
        shown = inside(*arguments)
        assert shown.status == (0 if arguments else 2)
        assert "floe dev" in shown.out
        assert "Exit status" in shown.out
    assert "--key-separator" in inside("produce", "--help").out
    assert inside("--version").out == "0.1.0\n"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Dev]:
    """A `floe dev` of this test's own."""
    running = start_dev(tmp_path / "data")
    yield running
    running.process.kill()
    running.ended()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_on_a_signal_and_keeps_what_was_acknowledged(own: Dev, number: signal.Signals) -> None:
    assert own.run("produce", "kept", "-v", "one").status == 0
    own.process.send_signal(number)
    assert own.ended() == 0
    assert "Traceback" not in (own.data_dir.parent / "dev.err").read_text()
    again = start_dev(own.data_dir)
    assert json.loads(again.run("consume", "kept").out)["value"] == "one"
    assert again.stop() == 0


def test_check_finds_what_is_wrong_and_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = (
            *("--set", f"log.url=sqlite://{tmp_path}/log", "--set", f"store.url=file://{tmp_path}/store"),
            *("--set", "listeners.0.port=0", "--set", "http.host=127.0.0.1", "--set", f"http.port={port}"),
        )
        ran = inside("check", *settings, "--output", "json")
    found = {row["check"]: row for row in json.loads(ran.out)}
    assert (ran.status, [name for name, row in found.items() if not row["ok"]]) == (1, ["http"])
    assert "choose another port" in found["http"]["remedy"]
    assert set(found) >= {"log", "store", "conditional PUT", "clock", "cluster", "listeners PLAINTEXT"}
    assert list((tmp_path / "store").rglob("*preflight/*")) == []


def test_the_reason_of_an_end_is_a_line_of_the_log_in_its_form() -> None:
    """JSON where lines are collected, also when there is no configuration to say so; text for people."""
    settings = ("--set", "produce.lingerms=3")
    told = json.loads(inside("serve", *settings).err)
    assert (told["event"], told["level"], told["status"]) == ("this agent ends", "critical", 3)
    assert "did you mean produce.linger_ms?" in told["reason"]
    for asked in (("--set", "logging.format=console"), ()):
        plain = inside("serve", *settings, *asked, FLOE_LOGGING__FORMAT="console").err
        assert plain.startswith("floe: --set: unknown setting produce.lingerms"), plain
    assert inside("dev", *settings).err.startswith("floe: "), "for people"


def test_memory_is_compared_with_caches_by_serve_and_by_check(tmp_path: Path) -> None:
    settings = (
        *("--set", f"log.url=sqlite://{tmp_path}/log", "--set", f"store.url=file://{tmp_path}/store"),
        *("--set", "listeners.0.port=0", "--set", "http.port=0", "--set", "agent.memory_bytes_max=314572800"),
    )
    ran = floe("serve", *settings)  # a process of its own: one that is not refused would serve for ever
    assert (ran.status, "300 MiB are too few" in ran.err) == (3, True), ran
    for more, expected in (((), (1, False)), (("--set", "tables.enabled=false"), (0, True))):
        checked = inside("check", *settings, *more, "--output", "json")
        (row,) = (row for row in json.loads(checked.out) if row["check"] == "memory")
        assert (checked.status, row["ok"]) == expected, row
        assert row["found"].startswith("300 MiB (agent.memory_bytes_max), of which up to ")


def test_check_beside_its_own_agent_is_fine_and_another_agents_ports_are_taken(own: Dev) -> None:
    kafka, http = (address.rpartition(":")[2] for address in (own.bootstrap, own.http))
    data = own.data_dir
    settings = (
        *("--set", f"log.url=sqlite://{data}/log.sqlite", "--set", f"store.url=file://{data}/store"),
        *("--set", "listeners.0.host=127.0.0.1", "--set", f"listeners.0.port={kafka}"),
        *("--set", "http.host=127.0.0.1", "--set", f"http.port={http}", "--output", "json"),
    )
    ran = inside("check", *settings, "--set", "agent.name=dev")
    found = {row["check"]: row for row in json.loads(ran.out)}
    assert ran.status == 0, found
    for name in ("http", "listeners PLAINTEXT"):
        assert "is used by this agent itself, ready" in found[name]["found"]
    ran = inside("check", *settings, "--set", "agent.name=other")
    wrong = {row["check"] for row in json.loads(ran.out) if not row["ok"]}
    assert (ran.status, wrong) == (1, {"http", "listeners PLAINTEXT"})


def test_check_without_log_and_store_names_both() -> None:
    ran = inside(
        *(
            "check",
            "--output",
            "json",
            "--set",
            "log.url=etcd://127.0.0.1:1/x",
            "--set",
            "store.url=s3://bucket/x",
        ),
        *("--set", "store.endpoint=http://127.0.0.1:1", "--set", "store.allow_http=true"),
        *("--set", "store.access_key=a", "--set", "store.secret_key=b", "--set", "listeners.0.port=0"),
        *("--set", "http.port=0"),
    )
    rows = {row["check"]: row for row in json.loads(ran.out) if not row["ok"]}
    failed = {name: row["remedy"] for name, row in rows.items()}
    for name in ("log", "store", "bucket exists"):
        assert "Connection refused" in rows[name]["found"], rows[name]
    assert (ran.status, set(failed) >= {"log", "store"}) == (1, True)
    assert "log.url" in failed["log"]
    assert "store.endpoint" in failed["store"]


def test_a_bucket_of_another_cluster_is_refused_by_serve_and_by_check(own: Dev) -> None:
    assert own.stop() == 0
    theirs = own.data_dir
    settings = (
        *("--set", f"log.url=sqlite://{theirs}/log.sqlite", "--set", f"store.url=file://{theirs}/store"),
        *("--set", "listeners.0.port=0", "--set", "http.port=0", "--set", "cluster.name=mine"),
    )
    ran = floe("serve", *settings, "--set", "logging.level=error")
    *_, last = map(json.loads, ran.err.splitlines())
    assert (ran.status, last["status"], last["level"]) == (5, 5, "critical")
    assert "belongs to cluster 'floe'" in last["reason"]
    checked = {row["check"]: row for row in json.loads(inside("check", *settings, "--output", "json").out)}
    assert checked["cluster"]["ok"] is False


def test_a_taken_port_is_told_with_its_address(own: Dev, tmp_path: Path) -> None:
    port = own.bootstrap.rpartition(":")[2]
    status, line = fails("dev", "--data-dir", str(tmp_path / "b"), "--kafka-port", port, "--http-port", "0")
    assert (status, port in line) == (1, True), line


def test_output_that_nobody_reads_any_more_is_no_error(own: Dev) -> None:
    assert own.run("produce", "long", stdin="x\n" * 5000).status == 0
    script = f"{sys.executable} -m agent consume long | head -n 1; exit ${{PIPESTATUS[0]}}"
    environment = {"FLOE_BOOTSTRAP": own.bootstrap, "FLOE_HTTP": own.http, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.count("\n"), "Traceback" in done.stderr) == (0, 1, False)


def test_without_its_log_an_agent_waits_alive_and_leaves_when_told(tmp_path: Path) -> None:
    """Rule 10: it does not crash, it says why it is not ready, and a signal ends it."""
    port = free_port()
    command = [sys.executable, "-m", "agent", "serve", "--set", "log.url=etcd://127.0.0.1:1/x"]
    settings = (
        f"store.url=file://{tmp_path}/s",
        "listeners.0.port=0",
        "http.host=127.0.0.1",
        f"http.port={port}",
    )
    assigned = [part for setting in settings for part in ("--set", setting)]
    with subprocess.Popen([*command, *assigned], stderr=subprocess.PIPE, text=True, env=CLEAN) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "waiting for the log" in line)
        assert json.loads(told)["level"] == "warning"
        http = f"http://127.0.0.1:{port}"
        assert agent_http.ask(http, "/livez") == {"alive": True, "reasons": []}
        status = inside("status", "--http", http)
        assert (status.status, status.out.startswith("NOT READY: log: ")) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S_MAX) == 0
