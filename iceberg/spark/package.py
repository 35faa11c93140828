"""`python -m iceberg.spark.package floe-spark.zip`: what users of Spark need of Floe, for `--py-files`.

The modules that `iceberg.spark` exports names of, and what those need: they import pyspark and themselves
only.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

MODULES = (
    "session", "watermark", "topics", "reading", "sinks", "jobs",
    "commands", "decoding", "flat", "backfill", "rewriting", "procedures", "maintenance",
    "replay", "replay_writer",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[2]
_STAMP = (2026, 1, 1, 0, 0, 0)  # the same sources give the same bytes


def build(path: Path) -> Path:
    """Write the archive; returns its path."""
    names = ["iceberg/__init__.py", "iceberg/spark/__init__.py"]
    names += [f"iceberg/spark/{module}.py" for module in MODULES]
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name, _STAMP), (_ROOT / name).read_bytes())
    return path


def main() -> int:
    """Write the archive that the command line names."""
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".zip"):
        print("usage: python -m iceberg.spark.package PATH.zip", file=sys.stderr)
        return 2
    print(build(Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
