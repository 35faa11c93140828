"""Tar archives, with whichever Python is there."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, into: Path) -> None:
    """Everything in it, below `into`: by the library's filter for data where it has one. Debian's 3.11.2 has
    none; whatever is unpacked here is named by its hash or is the project's own."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)
        opened.extractall(into)
