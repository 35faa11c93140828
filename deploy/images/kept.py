"""Layers that are kept between builds: one is made anew only when what it is made of has changed.

Below build/images: NAME.layer, and NAME.json with its digests and the fingerprint of what it was made of.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from deploy.images.oci import Layer, layer

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "images"


def kept_layer(
    name: str, made_of: str, fill: Callable[[Path], None], owners: Mapping[str, int] | None = None
) -> Layer:
    """The layer of the root that `fill` makes in the folder it is given. Raises what `fill` raises."""
    target, stamp = OUTPUT / f"{name}.layer", OUTPUT / f"{name}.json"
    if target.exists() and stamp.exists() and (told := json.loads(stamp.read_text()))["made_of"] == made_of:
        return Layer(target, told["digest"], told["diff_id"], told["size"])
    OUTPUT.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as scratch:
        fill(Path(scratch) / "root")
        made = layer(Path(scratch) / "root", Path(scratch) / "packed", owners)
        made.path.replace(target)
    told = {"made_of": made_of, "digest": made.digest, "diff_id": made.diff_id, "size": made.size}
    stamp.write_text(json.dumps(told))
    return Layer(target, made.digest, made.diff_id, made.size)


def of_files(files: Iterable[Path]) -> str:
    """A fingerprint of files of this tree, their names and contents, but for what is compiled from others."""
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and file.suffix not in (".pyc", ".so"):
            digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()
