"""The table of docs/benchmarks.md: what one bench refreshes, and what it leaves alone."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench.figure import Figure

PAGE = f"""# Benchmarks

{bench.BEGIN}

| figure | value | peer | ratio | goal | met |
|---|---|---|---|---|---|
| freezing | 9.00 ms |  |  |  |  |
| a fetch | 1.00 ms |  |  |  |  |

{bench.END}

What they mean.
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "benchmarks.md"
    path.write_text(PAGE)
    monkeypatch.setattr(bench, "PAGE", path)
    return path


def test_one_bench_takes_the_places_of_its_own_rows(page: Path) -> None:
    bench.publish([Figure("freezing", 1.5, "ms"), Figure("thawing", 2.0, "ms")], whole=False)
    fresh = "| freezing | 1.50 ms |  |  |  |  |"
    added = "| a fetch | 1.00 ms |  |  |  |  |\n| thawing | 2.00 ms |  |  |  |  |"
    before = "| freezing | 9.00 ms |  |  |  |  |"
    last = "| a fetch | 1.00 ms |  |  |  |  |"
    assert page.read_text() == PAGE.replace(before, fresh).replace(last, added)


def test_all_benches_leave_no_row_of_before(page: Path) -> None:
    bench.publish([Figure("thawing", 2.0, "ms")], whole=True)
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert rows[1:] == ["| thawing | 2.00 ms |  |  |  |  |"]


@pytest.mark.parametrize("name", bench.benches(""))
def test_a_bench_has_figures(name: str) -> None:
    assert callable(importlib.import_module(f"tests.bench.{name}").figures)
