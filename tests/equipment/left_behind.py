"""What libraries of others leave to the garbage collector, which then warns in whatever test runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

LEFT = ("unclosed <socket", "unclosed transport", "loop is closed")
"""Of connections that a client gave up."""


def allow(items: Iterable[pytest.Item], folder: Path) -> None:
    """These warnings fail no test below `folder`, in whose process nothing of ours serves."""
    for item in items:
        if item.path.is_relative_to(folder):
            for message in LEFT:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{message}:ResourceWarning"))
