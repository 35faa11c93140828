"""What a newcomer meets first: quick answers, empty topics, lines through a pipe, one agent per folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.app import COMMANDS
from agent.version import VERSION
from tests.unit.agent.cli.conftest import CLEAN, ROOT, Dev, floe, inside, start_dev

IMPORTED = (
    "import sys; sys.argv[1:] = {words!r}\n"
    "from agent.cli import main\n"
    "try: main()\nfinally: print(*sys.modules)"
)
HEAVY = {"boto3", "aiokafka", "pyarrow", "pyiceberg", "structlog", "obstore", "grpc", "uvloop", "rich"}
HEAVY |= {"pydantic", "pydantic_core", "google", "http", "yaml"}
CODECS = "agent.net.wire.generated."


def modules(*words: str) -> set[str]:
    """The top-level modules that a command has imported when it ends, and the Kafka codecs."""
    script = IMPORTED.format(words=list(words))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=CLEAN, check=False
    )
    found = done.stdout.splitlines()[-1].split()
    return {name if name.startswith(CODECS) else name.partition(".")[0] for name in found}


def test_the_version_imports_nothing(dev: Dev) -> None:
    found = modules("--version")
    assert "agent" in found
    assert not found & {*HEAVY, "typer", "asyncio"}
    assert inside("--version").out == f"{VERSION}\n"


def test_a_command_imports_what_it_needs(dev: Dev) -> None:
    found = modules("topic", "list", "--bootstrap", dev.bootstrap)
    assert not found & HEAVY
    assert {name for name in found if name.startswith(CODECS)} == {
        f"{CODECS}api_versions",
        f"{CODECS}metadata",
    }


@pytest.mark.parametrize(
    "words",
    [
        ("group", "list"),
        ("topic", "describe", "some"),
        ("topic", "create", "some", "--partitions", "3", "--config", "retention.ms=1"),
        ("topic", "config", "some", "--set", "retention.ms=2", "--output", "json"),
        ("topic", "delete", "some", "other"),
    ],
)
def test_plain_values_are_taken_without_pydantic(words: tuple[str, ...]) -> None:
    """Also of a command that fails, here because no agent is there."""
    assert not modules(*words, "--bootstrap", "127.0.0.1:1") & {"pydantic", "pydantic_core"}


def test_every_command_is_found_and_shown() -> None:
    shown = inside("--help").out
    for name in COMMANDS:
        assert name in shown
        assert inside(name, "--help").status == 0


def test_shell_completion_knows_the_commands() -> None:
    environment = {"_FLOE_COMPLETE": "complete_bash", "COMP_WORDS": "floe to", "COMP_CWORD": "1"}
    assert sorted(floe(**environment).out.split()) == ["top", "topic"]


def test_reading_a_topic_without_records_ends_well(dev: Dev) -> None:
    dev.run("topic", "create", "empty", "--partitions", "3")
    consumed = dev.run("consume", "empty")
    assert (consumed.out, consumed.err) == ("", "0 records\n")
    dev.run("produce", "empty", "-v", "one")
    assert dev.run("consume", "empty", "--latest").err == "0 records\n"


def test_a_line_in_a_pipe_is_readable_before_the_next_one_comes(dev: Dev) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "agent", "produce", "piped", "-b", dev.bootstrap, "--http", dev.http],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=CLEAN,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    for number in range(2):
        process.stdin.write(f"line {number}\n".encode())
        process.stdin.flush()
        seen: list[str] = []
        while len(seen) <= number:  # the test's own timeout bounds it
            ran = inside("consume", "piped", FLOE_BOOTSTRAP=dev.bootstrap, FLOE_HTTP=dev.http)
            seen = ran.out.splitlines()
        assert json.loads(seen[-1])["value"] == f"line {number}"
    process.stdin.close()
    told = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(30), told.splitlines()[-1].split()[0]) == (0, "2")


def test_what_is_no_text_is_refused_by_its_number(dev: Dev) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "produce", "binary", "-b", dev.bootstrap, "--http", dev.http],
        input=b"fine\n\xff\xfe\n",
        capture_output=True,
        cwd=ROOT,
        env=CLEAN,
        check=False,
    )
    assert done.returncode == 2
    assert b"record 2 cannot be read" in done.stderr


def test_a_folder_belongs_to_one_agent(tmp_path: Path) -> None:
    first = start_dev(tmp_path / "data")
    try:
        second = floe(*("dev", "--data-dir", str(tmp_path / "data"), "--kafka-port", "0", "--http-port", "0"))
        assert (second.status, second.out) == (5, "")
        assert f"in use by another floe dev (process {first.process.pid})" in second.err
    finally:
        assert first.stop() == 0
    again = start_dev(tmp_path / "data")
    assert again.stop() == 0


def test_the_audit_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else real(name, *rest)\n"
        "sys.modules['pyspark'] = None\n"
        "sys.argv[1:] = ['table', 'audit', 'orders']\nfrom agent.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, env=CLEAN, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("floe: the audit needs PySpark")
    assert "extra" in done.stderr
