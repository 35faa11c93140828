"""Price lists: the defaults, a file over them, and files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.costs import Prices, PricesError, load_prices
from agent.costs.prices import FILE_BYTES_MAX


def written(folder: Path, text: str) -> Path:
    """A file of prices."""
    file = folder / "prices.toml"
    file.write_text(text)
    return file


def test_a_file_replaces_what_it_names(tmp_path: Path) -> None:
    found = load_prices(written(tmp_path, 'name = "ours"\nput_per_1000 = 1\nvcpu_hour = 0.02\n'))
    assert found == Prices(name="ours", put_per_1000=1.0, vcpu_hour=0.02)
    assert found.get_per_1000 == Prices().get_per_1000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("put = 1", r"put is no price: the list has name, .*put_per_1000"),
        ("put_per_1000 = -0.1", r"put_per_1000: .*greater than or equal to 0 \(given: -0.1\)"),
        ("vcpu_hour = nan", r"vcpu_hour: .* \(given: nan\)"),
        ("vcpu_hour = inf", r"vcpu_hour: .*finite.* \(given: inf\)"),
        ('vcpu_hour = "0.1"', r"vcpu_hour: .*valid number \(given: '0.1'\)"),
        ("vcpu_hour = true", r"vcpu_hour: .*valid number \(given: True\)"),
        ("put_per_1000", "write TOML such as"),
        ("[s3]\nput = 1", "s3 is no price"),
    ],
)
def test_what_is_no_price_is_refused_with_its_name_and_value(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PricesError, match=told):
        load_prices(written(tmp_path, text))


def test_files_that_cannot_be_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PricesError, match="No such file or directory: name a TOML file"):
        load_prices(tmp_path / "none.toml")
    with pytest.raises(PricesError, match=f"above {FILE_BYTES_MAX} bytes"):
        load_prices(written(tmp_path, "#" * (FILE_BYTES_MAX + 1)))
    (tmp_path / "latin").write_bytes(b'name = "\xff"')
    with pytest.raises(PricesError, match="write TOML"):
        load_prices(tmp_path / "latin")
