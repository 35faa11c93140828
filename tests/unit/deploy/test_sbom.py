"""The bill of materials, and that no dependency comes without a hash."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from deploy.sbom import Unlike, with_hashes

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted([*ROOT.glob("requirements*.lock"), *(ROOT / "deploy" / "setup").glob("*.lock")])


def test_the_locks_are_all_there() -> None:
    assert [each.name for each in LOCKS] == [
        "engines.lock",
        "gateway.lock",
        "sbom.lock",
        "site.lock",
        "requirements-agent.lock",
        "requirements.lock",
    ]


@pytest.mark.parametrize(
    "lock", [*LOCKS, ROOT / "deploy" / "setup" / "requirements-bootstrap.txt"], ids=lambda p: p.name
)
def test_no_dependency_comes_without_a_hash_or_names_an_index(lock: Path) -> None:
    text = lock.read_text()
    wanted = [each for each in re.split(r"\n(?=[A-Za-z0-9])", text) if re.match(r"[A-Za-z0-9]", each)]
    assert wanted
    for each in wanted:
        assert re.match(r"[A-Za-z0-9._-]+(\[.*\])?==", each), each
        assert "--hash=sha256:" in each, each
    assert "--index-url" not in re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    assert "://" not in re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


def test_javascripts_lock_has_hashes_too() -> None:
    lock = json.loads((ROOT / "deploy" / "setup" / "node" / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert packages
    assert all(each.get("integrity", "").startswith("sha") for each in packages.values())


def test_the_image_installs_what_the_bill_says() -> None:
    assert (
        "--require-hashes -r requirements-agent.lock"
        in (ROOT / "deploy" / "images" / "Containerfile").read_text()
    )
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == "floe-streaming"


HASHED = {"type": "distribution", "url": "u", "hashes": [{"alg": "SHA-256", "content": "00"}]}


def bill(*components: dict[str, object]) -> dict[str, object]:
    return {"components": list(components)}


def test_what_is_installed_gets_its_hashes_and_keeps_what_it_has() -> None:
    site = {"type": "website", "url": "s"}
    seen = bill({"name": "A_b", "version": "1", "externalReferences": [site]})
    locked = bill(
        {"name": "a-b", "version": "1", "externalReferences": [HASHED, {"type": "other", "url": "x"}]},
        {"name": "other", "version": "2"},
    )
    (found,) = with_hashes(seen, locked)["components"]
    assert found["externalReferences"] == [site, HASHED]


@pytest.mark.parametrize(
    "locked",
    [[], [{"name": "a", "version": "2", "externalReferences": [HASHED]}], [{"name": "a", "version": "1"}]],
)
def test_what_the_lock_does_not_have_is_no_bill(locked: list[dict[str, object]]) -> None:
    with pytest.raises(Unlike, match=r"a 1 has no hash in requirements-agent\.lock"):
        with_hashes(bill({"name": "a", "version": "1"}), bill(*locked))
