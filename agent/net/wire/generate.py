"""Writes agent/net/wire/generated/ from agent/net/wire/messages/.

`python -m agent.net.wire.generate` writes the files; `--check` only says whether they are stale, and exits
with 1 when they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.net.wire.generator import module
from agent.net.wire.generator.definition import load

HERE = Path(__file__).parent
MESSAGES = HERE / "messages"
GENERATED = HERE / "generated"


def generate() -> dict[str, str]:
    """File name to text, for every generated file. Raises DefinitionError."""
    apis = load(MESSAGES)
    return {"__init__.py": module.index(apis)} | {f"{api.module}.py": module.module(api) for api in apis}


def stale(files: dict[str, str]) -> list[str]:
    """Names of generated files that differ from these, are missing, or should not be there."""
    present = {path.name: path.read_text() for path in GENERATED.glob("*.py")}
    return sorted(name for name in files.keys() | present.keys() if files.get(name) != present.get(name))


def main(arguments: list[str]) -> int:
    """Run the command line; gives the exit status."""
    files = generate()
    changed = stale(files)
    if "--check" in arguments:
        for name in changed:
            print(f"stale: {GENERATED / name}; run python -m agent.net.wire.generate")
        return 1 if changed else 0
    GENERATED.mkdir(exist_ok=True)
    for name in changed:
        if name in files:
            (GENERATED / name).write_text(files[name])
        else:
            (GENERATED / name).unlink()
    print(f"{len(changed)} of {len(files)} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
