"""Which URLs are the source's, and what they are called in the copy. Pure.

A URL is the source's when it is the source's own, or goes on behind it with a slash: `s3://b/main2/x` is not
below `s3://b/main`. What follows stays byte for byte, `%` included: keys are not encoded in these URLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_S3, _S3_ALIASES = "s3://", ("s3a://", "s3n://")
_FILE, _JAVA_FILE = "file:///", "file:/"
KEPT = frozenset(("schema", "schemas"))
"""Of metadata: a column's default may be a text that looks like a URL, and is a value of rows."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """URLs of two buckets and prefixes, without a slash at their ends. Each key is in both."""

    source: str
    target: str

    @classmethod
    def of(cls, source: str, target: str) -> Prefix:
        """The same, of URLs as people write them."""
        return cls(source.rstrip("/"), target.rstrip("/"))

    def moved(self, url: str) -> str | None:
        """What this URL of the source is in the copy, spelled alike; None where it is not of the source.

        What lies below the copy already is not moved again, where the copy lies below the source.
        """
        plain, spelled = _plain(url, self.source)
        if plain != self.source and not plain.startswith(f"{self.source}/"):
            return None
        if self.target.startswith(f"{self.source}/") and self.there(plain):
            return None
        moved = self.target + plain.removeprefix(self.source)
        scheme = _S3 if spelled in _S3_ALIASES else _FILE
        return spelled + moved.removeprefix(scheme) if spelled and moved.startswith(scheme) else moved

    def there(self, url: str) -> bool:
        """Whether a URL is of the copy."""
        plain, _ = _plain(url, self.target)
        return plain == self.target or plain.startswith(f"{self.target}/")

    def everywhere(self, value: Any, known: Mapping[str, str]) -> Any:
        """JSON with each text that is a URL of the source as it is called in the copy; names stay.

        `known`: what became of some of them otherwise. Columns (KEPT) stay.
        """
        if isinstance(value, str):
            return known.get(value) or self.moved(value) or value
        if isinstance(value, list):
            return [self.everywhere(each, known) for each in value]
        if isinstance(value, dict):
            return {
                name: each if name in KEPT else self.everywhere(each, known) for name, each in value.items()
            }
        return value


def _plain(url: str, root: str) -> tuple[str, str]:
    """The URL in the root's spelling, and how its own began where that was another (warehouse.py)."""
    for alias in _S3_ALIASES if root.startswith(_S3) else ():
        if url.startswith(alias):
            return _S3 + url.removeprefix(alias), alias
    if root.startswith(_FILE) and url.startswith(_JAVA_FILE) and not url.startswith(_FILE):
        return _FILE + url.removeprefix(_JAVA_FILE), _JAVA_FILE
    return url, ""
