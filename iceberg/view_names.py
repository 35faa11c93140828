"""How views are told by names alone: Floe's own on a topic's table, and any view's metadata. Pure."""

from __future__ import annotations

import re

REDACTED = "_redacted"
"""What the name of the view on a topic's table has behind that of the table (redacted_view.py)."""
_NAME = re.compile(r"/\d+-[0-9a-f-]{36}\.view(\.x[0-9a-f]{16})?\.metadata\.json$")


def is_view(location: str) -> bool:
    """Whether the metadata at a location is that of a view."""
    return _NAME.search(location) is not None


def metadata_name(version: int, uuid: str) -> str:
    """The name of a metadata file that `is_view` knows."""
    return f"metadata/{version:05d}-{uuid}.view.metadata.json"
