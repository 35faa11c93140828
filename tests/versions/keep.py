"""`python -m tests.versions.keep`: keep what the code of the newest level writes, for the versions after it.

To be run once per level, by the last commit before a release that is to be upgraded from. It writes the code
(an archive of HEAD's packages), entries, the snapshot after them, and what the code made of them.
"""

from __future__ import annotations

import json
import lzma
import subprocess

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.versions.kept import HERE, folder, run

PACKAGES = ("agent", "coordination", "iceberg", "objectstore", "schema")
ENTRIES = 1_000
SEED = 6  # by which the rare commands that test_versions.py asks for have an effect


def keep(level: int) -> None:
    """Write the level's folder."""
    root, into = HERE.parents[1], folder(level)
    into.mkdir(exist_ok=True)
    command = ["git", "archive", "--format=tar", "HEAD", *PACKAGES]
    archive = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    (into / "code.tar.xz").write_bytes(lzma.compress(archive, preset=9 | lzma.PRESET_EXTREME))
    told = run(root, "make", into, "--level", level, "--entries", ENTRIES, "--seed", SEED)
    (into / "told.json").write_text(
        json.dumps({"hash": told["hashes"][-1], "revision": told["revision"]}, indent=1) + "\n"
    )


if __name__ == "__main__":
    keep(FEATURE_LEVEL_MAX)
