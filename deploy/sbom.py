"""`python -m deploy.sbom`: the bill of materials of the agent's image, as CycloneDX JSON (`make sbom`).

An environment is made of the image's lock, hash by hash, and looked at: names, versions, licences, what needs
what. The hashes of all archives that the lock allows are put to it. The same lock gives the same bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements-agent.lock"
BUILD = ROOT / "build" / "sbom"
BILL = BUILD / "floe.cdx.json"
_UV, _PYTHON = ROOT / ".venv" / "bin" / "uv", ROOT / ".venv" / "bin" / "python"
SPECIFICATION = "1.6"

Bill = dict[str, Any]


class Unlike(Exception):
    """The environment is not what the lock says; the message names what differs."""


def environment(folder: Path, lock: Path) -> Path:
    """Its Python, with exactly what the lock says."""
    python = folder / "bin" / "python"
    _run(_UV, "venv", "-q", "--allow-existing", "--python", _PYTHON, folder)
    _run(_UV, "pip", "sync", "-q", "--python", python, "--require-hashes", lock)
    return python


def made() -> Bill:
    """The bill. Raises Unlike, and CalledProcessError where an archive is not what the lock says."""
    tool = environment(BUILD / "tool", ROOT / "deploy" / "setup" / "sbom.lock").parent / "cyclonedx-py"
    image = environment(BUILD / "image", LOCK)
    shared = (
        "--of",
        "JSON",
        "--sv",
        SPECIFICATION,
        "--output-reproducible",
        "--pyproject",
        ROOT / "pyproject.toml",
    )
    seen = json.loads(_run(tool, "environment", *shared, image))
    locked = json.loads(_run(tool, "requirements", *shared, LOCK))
    return with_hashes(seen, locked)


def with_hashes(seen: Bill, locked: Bill) -> Bill:
    """The environment's bill with the archives of the lock's. Raises Unlike.

    The lock also has what other platforms need; what is installed must be in it.
    """
    archives = {_key(each): each.get("externalReferences", []) for each in locked["components"]}
    for component in seen["components"]:
        found = [each for each in archives.get(_key(component), []) if each.get("hashes")]
        if not found:
            raise Unlike(f"{component['name']} {component['version']} has no hash in {LOCK.name}: make lock")
        component["externalReferences"] = [*component.get("externalReferences", []), *found]
    return seen


def _key(component: Bill) -> tuple[str, str]:
    return component["name"].lower().replace("_", "-").replace(".", "-"), component["version"]


def _run(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    """Write the bill; its path on standard output."""
    try:
        bill = made()
    except Unlike as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    BILL.parent.mkdir(parents=True, exist_ok=True)
    BILL.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(BILL.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
