"""Every command of docs/schemas.md runs as it stands there, in its order, against one `floe dev`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.agent.cli.conftest import ROOT, Dev, Ran, start_dev

PAGE = (ROOT / "docs" / "schemas.md").read_text()
FILES = {
    "money.avsc": '{"type": "record", "name": "Money", "fields": [{"name": "units", "type": "long"}]}',
    "price.json": '{"type": "object", "properties": {"units": {"type": "integer"}}}',
    "item.json": '{"type": "object", "properties": {"price": {"$ref": "price.json"}}}',
}
"""What the page takes as given."""

STATUS = re.compile(r"# status (\d)")
"""How the page says that a command ends with another status than 0."""


def commands() -> Iterator[str]:
    """Commands of the page's sh blocks; one that goes on over lines, or holds a document, is one."""
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        yield from re.findall(r"(?:.*<<'END'\n(?:.*\n)*?END\n|(?:.*\\\n)+.*\n|.+\n)", block)


def run(dev: Dev, command: str) -> Ran:
    """A command as a reader types it; `floe` in this process, which is quicker."""
    status = int(found[1]) if (found := STATUS.search(command)) else 0
    if command.startswith("floe "):
        return dev.run(*shlex.split(command, comments=True)[1:], status=status)
    here = command.replace("http://localhost:8080", dev.http)
    ran = subprocess.run(["sh", "-ec", here], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == status, (command, ran)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_every_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it says what the page says of it."""
    every = list(commands())
    assert len(every) >= 30
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    dev = start_dev(tmp_path / "data")
    try:
        monkeypatch.chdir(tmp_path)
        dev.run("topic", "create", "clicks")
        ran = {command.split("  #")[0].strip(): run(dev, command) for command in every}
    finally:
        stopped = dev.stop()
    assert stopped == 0
    said = {command: one.out + one.err for command, one in ran.items()}
    assert "line 1, column 9" in said["""floe produce orders --subject orders-value -v '{"idd": 8}'"""]
    assert "FIELD_SCALAR_KIND_CHANGED" in said["floe schema check orders-value broken.proto"]
    assert "new column value.note (string)" in said["floe schema impact orders-value shop/wider.proto"]
    assert "version 2" in said["floe schema register orders-value shop/wider.proto"]
    shown = [json.loads(line)["value"] for line in ran["floe consume orders"].out.splitlines()]
    assert shown == [{"id": "7", "amount": 12.5}, {"id": "8", "note": "by hand"}]
