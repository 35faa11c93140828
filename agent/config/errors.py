"""The one error that loading a configuration raises."""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration is refused. One line: the place it came from, the setting, the remedy."""
