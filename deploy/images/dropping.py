"""What of Debian's packages no image needs, but for what their licences want kept beside what is given on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

DOC, LICENCES = Path("usr/share/doc"), Path("usr/share/common-licenses")


def drop(root: Path, folders: Sequence[str]) -> None:
    """Remove these below `root`, but for each package's copyright and the licences that it names."""
    for folder in folders:
        top = root / folder
        if top.is_symlink() or not top.is_dir():
            continue
        for path in (*sorted(top.rglob("*"), reverse=True), top):  # what a folder holds comes before it
            if _kept(path, path.relative_to(root)):
                continue
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                with suppress(OSError):  # it holds what is kept
                    path.rmdir()


def _kept(path: Path, name: Path) -> bool:
    """A package that has another's copyright is a link in place of a folder."""
    of_package = name.parent == DOC and path.is_symlink()
    copyright_ = name.parent.parent == DOC and name.name == "copyright"
    return of_package or copyright_ or LICENCES in name.parents
