"""docs/operations.md and README.md name only commands, metrics, settings and addresses that are there."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from agent.cli.app import app
from agent.config import Config
from agent.telemetry.supervised import SupervisorMetrics
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from objectstore.naming import FINGERPRINT_KEY
from tests.compat.conftest import Embedded

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
README = (ROOT / "README.md").read_text()
SECTIONS = "|".join(Config.model_fields)


def test_every_metric_is_there(embedded: Embedded) -> None:
    with urllib.request.urlopen(f"{embedded.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    lines += generate_latest(SupervisorMetrics().registry).decode().splitlines()
    there = {line.split()[2] for line in lines if line.startswith("# HELP")}
    there |= {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}
    named = set(re.findall(r"(?<!\.)\b(?:floe|process)_[a-z_]+\b", OPERATIONS))
    assert len(named) > 15
    # A histogram is listed by its base name until it has seen a value for its labels.
    known = {name for name in named if re.sub(r"_(bucket|count)$", "", name) in there or name in there}
    assert named - known == set()


def test_every_setting_is_there() -> None:
    named = set(re.findall(rf"`({SECTIONS})\.(\w+)", OPERATIONS.replace(FINGERPRINT_KEY, "")))
    assert len(named) > 15
    for section, key in named:
        assert key in Config.model_fields[section].annotation.model_fields, f"{section}.{key}"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(/[a-z]+(?:\.\w+)?)`", OPERATIONS))))
def test_every_address_answers(embedded: Embedded, path: str) -> None:
    with urllib.request.urlopen(embedded.http + path, timeout=60) as answer:
        assert answer.status == 200


@pytest.mark.services
def test_a_bucket_is_found_missing_prepared_and_found_fit(etcd: Etcd, minio: Minio, tmp_path: Path) -> None:
    name = f"prepared-{tmp_path.name}".replace("_", "-")[:63].strip("-")
    settings = clustered(
        etcd=etcd.endpoint,
        bucket_url=f"s3://{name}/prod",
        store=minio,
    )
    file = FloeAgent("check", settings, tmp_path).config_file  # never started

    def floe(*words: str) -> tuple[int, dict[str, str]]:
        done = CliRunner().invoke(app, [*words, "--config", str(file), "--output", "json"])
        return done.exit_code, {
            row.pop("check", "") or row["subject"]: row["remedy"] for row in json.loads(done.stdout)
        }

    status, remedies = floe("check")
    assert status == 1
    assert "floe bucket prepare" in remedies["bucket exists"]
    assert floe("bucket", "prepare")[0] == 0
    assert floe("bucket", "check")[0] == 0
    status, remedies = floe("check")
    assert status == 0
    assert not any(remedies.values())


def test_an_address_that_is_not_there_is_404(embedded: Embedded) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{embedded.http}/nothing", timeout=60)


@pytest.mark.parametrize(
    "command",
    sorted(
        set(
            re.findall(
                r"\bfloe ((?:bucket |cluster config |group |topic |table |upgrade )?[a-z]+(?:-[a-z]+)*)\b",
                OPERATIONS + README,
            )
        )
    ),
)
def test_every_command_is_there(command: str) -> None:
    assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0


def test_every_flag_of_the_commands_is_there() -> None:
    lines = re.findall(r"^(?:.*\| )?(floe [^#\n]+)", README + OPERATIONS, re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        words = line.split()[1:]
        depth = 2 if words[0] in ("topic", "table", "bucket", "upgrade", "restore") else 1
        said = CliRunner().invoke(app, [*words[:depth], "--help"]).output
        for flag in (word for word in words if word.startswith("--")):
            assert flag in said, f"{line}: {flag}"
