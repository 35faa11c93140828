"""The site of docs/ (mkdocs.yml): its navigation names every page, and nothing outside is linked from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.site import inside

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def named(nav: object) -> Iterator[str]:
    """The pages of a navigation, however deep."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list | dict):
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from named(each)


def test_the_navigation_names_every_page_once() -> None:
    nav = list(named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(nav) == sorted(pages)


@pytest.mark.parametrize(
    ("page", "text", "told"),
    [
        ("spark.md", "[chart](../helm/README.md#zones)", "chart (`helm/README.md`)"),
        ("spark.md", "[helm/README.md](../helm/README.md)", "helm/README.md"),
        ("tutorials/a.md", "[chart](../../helm/README.md)", "chart (`helm/README.md`)"),
        ("tutorials/a.md", "[limits](../limits.md#x)", "[limits](../limits.md#x)"),
        ("spark.md", "[here](#jobs) [there](https://spark.apache.org)", "[here](#jobs) [there](https://spark.apache.org)"),
    ],
)  # fmt: skip
def test_only_links_that_leave_the_pages_become_text(page: str, text: str, told: str) -> None:
    assert inside(text, page) == told
