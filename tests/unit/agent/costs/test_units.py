"""Amounts with units: what is understood, and what is refused rather than guessed."""

from __future__ import annotations

import pytest

from agent.costs.units import bytes_of, rate_of, seconds_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1B", 1),
        ("1kB", 1_000),
        ("16KiB", 16_384),
        ("1.5 MiB", 1_572_864),
        ("1GB", 1e9),
        ("2TiB", 2 * 1024**4),
    ],
)
def test_bytes_are_of_ten_or_of_two_as_they_are_written(text: str, expected: float) -> None:
    assert bytes_of(text) == expected


def test_rates_are_of_seconds() -> None:
    assert rate_of("100MiB/s") == 100 * 1024**2


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 0.25), ("90s", 90), ("2m", 120), ("36h", 129_600), ("7d", 604_800)]
)
def test_times_have_a_unit(text: str, expected: float) -> None:
    assert seconds_of(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    ["", "100", "MiB", "1mib", "1 MB/s", "-1MB", "1e3MB", "nanMB", "1,5GB", "1KB", "٣MB", " 1MB", "1MB\n"],
)
def test_bytes_that_could_mean_something_else_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number and one of B, kB, MB"):
        bytes_of(text)


@pytest.mark.parametrize("text", ["100MiB", "100MiB/", "100MiB/m", "100MiB/s/s", "100MiBps"])
def test_a_rate_without_its_second_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate: write bytes a second"):
        rate_of(text)


@pytest.mark.parametrize("text", ["0s", "0.0MiB", f"{'9' * 400}d"])
def test_nothing_and_without_end_are_no_amounts(text: str) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        (bytes_of if text.endswith("B") else seconds_of)(text)
