"""`floe` as a user runs it: arguments in, two streams and an exit status out."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import structlog

from agent.cli import main
from deploy.services.ports import free_port
from tests.equipment.certificates import Authority

ROOT = Path(__file__).resolve().parents[4]
START_S_MAX = 60
COMMAND_S_MAX = 420  # two below the bound of a test with Spark: on a busy machine one takes minutes
STOP_S_MAX = 30
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("FLOE_")}


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    status: int
    out: str
    err: str


def floe(*arguments: str, stdin: str = "", **environment: str) -> Ran:
    """Run one command to its end, warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "agent", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**CLEAN, **environment},
        timeout=COMMAND_S_MAX,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def inside(*arguments: str, stdin: str = "", **environment: str) -> Ran:
    """The same in this process, which is quicker."""
    out, err = io.StringIO(), io.StringIO()
    with _own_log(), pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in set(os.environ) - set(CLEAN):
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
    status = ended.value.code
    assert isinstance(status, int)
    return Ran(status, out.getvalue(), err.getvalue())


@contextmanager
def _own_log() -> Iterator[None]:
    """What a command makes of the process's log ends with it."""
    root, configured = logging.getLogger(), structlog.is_configured()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        if not configured:
            structlog.reset_defaults()


def fails(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str]:
    """Run a command that fails: its status and its one line. No traceback, nothing on standard output."""
    ran = inside(*arguments, stdin=stdin, **environment)
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    if arguments[0] == "serve" and line.startswith("{"):  # its log is JSON where nobody reads it
        told = json.loads(line)
        assert (told["level"], told["status"]) == ("critical", ran.status), line
        return ran.status, f"floe: {told['reason']}"
    assert line.startswith("floe: "), line
    return ran.status, line


@dataclass(frozen=True, slots=True)
class Dev:
    """A running `floe dev`."""

    process: subprocess.Popen[str]
    data_dir: Path
    bootstrap: str
    http: str
    secured: str = ""
    """host:port of another listener, by TLS and with a login (`command_config`)."""

    @property
    def command_config(self) -> str:
        """That file."""
        return str(self.data_dir.parent / "client.properties")

    def run(self, *arguments: str, stdin: str = "", status: int = 0) -> Ran:
        """Run a command against it, which must end with that status."""
        ran = inside(*arguments, stdin=stdin, FLOE_BOOTSTRAP=self.bootstrap, FLOE_HTTP=self.http)
        assert ran.status == status, (arguments, ran)
        return ran

    def fails(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        """Run a command against it that fails."""
        return fails(*arguments, stdin=stdin, FLOE_BOOTSTRAP=self.bootstrap, FLOE_HTTP=self.http)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end and release its stream; returns the exit status."""
        assert self.process.stdout is not None
        status = self.process.wait(STOP_S_MAX)
        self.process.stdout.close()
        return status


def start_dev(data_dir: Path, *arguments: str) -> Dev:
    """Start `floe dev` on free ports and wait until it says where to point clients."""
    command = [sys.executable, "-W", "error", "-m", "agent", "dev", "--data-dir", str(data_dir)]
    with (data_dir.parent / "dev.err").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--kafka-port", "0", "--http-port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=CLEAN,
        )
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if "Ctrl-C" in line:
            break
    kafka = re.search(r"bootstrap.servers=(\S+)", told)
    http = re.search(r"(http://\S+)/iceberg", told)
    if kafka is None or http is None:
        process.kill()
        process.wait()
        raise AssertionError(f"floe dev did not start: {told}{(data_dir.parent / 'dev.err').read_text()}")
    return Dev(process, data_dir, kafka[1], http[1])


def secured_listener(folder: Path, port: int) -> Iterator[str]:
    """Options of a listener by TLS, where `root` logs in; what clients need goes to `client.properties`."""
    authority = Authority(folder / "authority")
    pair, password = authority.pair("server"), "root-password"
    listener: dict[str, object] = {"name": "SECURED", "host": "127.0.0.1", "port": port}
    listener |= {"advertised_host": "localhost", "protocol": "SASL_SSL", "sasl_mechanisms": "SCRAM-SHA-512"}
    listener |= {"tls_cert_file": pair.cert, "tls_key_file": pair.key}
    settings = {f"listeners.1.{name}": value for name, value in listener.items()}
    settings |= {"sasl.admin_user": "root", "sasl.admin_password": password}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="root" password="{password}";'
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.cert,
    }
    lines = (f"{name}={value}\n" for name, value in properties.items())
    (folder / "client.properties").write_text("".join(lines))
    for name, value in settings.items():
        yield from ("--set", f"{name}={value}")


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A `floe dev` shared by the session: use topics of your own."""
    folder = tmp_path_factory.mktemp("dev")
    running = start_dev(folder / "data", *secured_listener(folder, port := free_port()))
    yield replace(running, secured=f"localhost:{port}")
    assert running.stop() == 0
