"""A hook of mkdocs (mkdocs.yml): what a page of docs/ links to outside of docs/ is named there, not linked.

The repository's own view follows such links; a site that is looked at alone has nothing behind them.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """mkdocs calls this with each page's text before it is rendered."""
    return inside(markdown, page.file.src_uri)


def inside(markdown: str, page: str) -> str:
    """The text with links that lead out of docs/ as text. `page`: its path below docs/."""

    def told(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/") or path == "docs":
            return link[0]
        return text if path in text else f"{text} (`{path}`)"

    return LINK.sub(told, markdown)
