"""The committed protobuf modules are what their .proto files generate; field numbers keep their meaning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coordination.commands import Command, CommitChunk, Entry

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["log", "snapshot"])
def test_generated_text_is_fresh(name: str, tmp_path: Path) -> None:
    source = f"coordination/proto/{name}.proto"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", source]
    subprocess.run(command, cwd=ROOT, check=True)
    fresh = (tmp_path / f"coordination/proto/{name}_pb2.py").read_text()
    assert fresh == (ROOT / f"coordination/proto/{name}_pb2.py").read_text(), (
        "run deploy/setup/generate_protos.sh"
    )


def test_numbers_that_agents_of_two_versions_share() -> None:
    assert {f.name: f.number for f in Entry.DESCRIPTOR.fields} == {
        "format": 1, "incarnation": 2, "sequence": 3, "proposed_ms": 4, "applied_revision": 5, "commands": 6,
        "applied_hash": 7, "asks": 8,
    }  # fmt: skip
    kinds = sorted(Command.DESCRIPTOR.fields, key=lambda f: f.number)
    assert [f.number for f in kinds][:28] == list(range(1, 29))
    assert [f.name for f in kinds][:5] == [
        "commit_chunk", "register_agent", "fence_incarnation", "create_topic", "delete_topic",
    ]  # fmt: skip
    assert [f.number for f in CommitChunk.DESCRIPTOR.fields] == list(range(1, 14))
