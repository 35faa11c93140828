"""Clients that are tortured are others' libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

LEFT = ("unclosed <socket", "unclosed transport", "loop is closed")
"""What is said of connections that a client gave up, in whatever test the collector comes by."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nothing of ours runs in this process but the torturer."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            for message in LEFT:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{message}:ResourceWarning"))
