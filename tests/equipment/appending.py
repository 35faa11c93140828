"""The two ways in which apply appends batches: natively, where that was compiled, and by chunks.py alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coordination.state import chunks

WALKS: dict[str, Any] = {"native": chunks._following} if chunks.NATIVE else {}
"""The native walk."""
WAYS: dict[str, Any] = {**WALKS, "python": None}
"""Both."""


@contextmanager
def appending(walk: Any) -> Iterator[None]:
    """Batches are appended with this walk; None: by chunks.py alone."""
    before, chunks._following = chunks._following, walk
    try:
        yield
    finally:
        chunks._following = before
