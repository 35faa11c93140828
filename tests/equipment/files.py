"""Files that change without a sign: their times, sizes and inodes stay."""

from __future__ import annotations

import os
from pathlib import Path


def unseen(path: Path, content: bytes) -> None:
    """Replace what the file holds, of the same length, where nothing but reading it tells; as when a right to
    read it comes and goes."""
    known = path.stat()
    assert len(content) == known.st_size
    path.write_bytes(content)
    os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))
