"""What can be wrong with bytes from the wire."""

from __future__ import annotations


class WireError(Exception):
    """Bytes that are not the message they claim to be. The connection they came from must be closed.

    Definite: nothing of the message has been acted on.
    """


class UnsupportedVersion(WireError):
    """A version of an API outside the range that this agent speaks."""
