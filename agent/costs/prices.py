"""A price list: the defaults are those of one region of one cloud; a TOML file replaces any of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from agent.config.base import Section

FILE_BYTES_MAX = 64 * 1024
HOURS_PER_MONTH = 730
"""As clouds reckon a month: a year's hours by twelve."""
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3_600

Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class PricesError(Exception):
    """A file of prices is refused: one line that names the file, the field, the value and the remedy."""


class Prices(Section):
    """US dollars, or whatever `currency` says. GiB are 2^30 bytes."""

    name: str = "AWS us-east-1, on-demand list prices, S3 Standard, m7g and gp3"
    """What the list is of."""

    as_of: str = "2026-06"
    """When it was looked at."""

    source: str = "aws.amazon.com: s3/pricing, ec2/pricing/on-demand, ebs/pricing"
    """Where it can be looked at."""

    currency: str = "USD"
    """Of every price."""

    put_per_1000: Price = 0.005
    """1,000 PUTs."""

    get_per_1000: Price = 0.0004
    """1,000 GETs."""

    list_per_1000: Price = 0.005
    """1,000 LISTs."""

    delete_per_1000: Price = 0.0
    """1,000 DELETE requests."""

    object_gib_month: Price = 0.023
    """A GiB in the object store for a month."""

    vcpu_hour: Price = 0.0408
    """A virtual core with some 4 GiB of memory for an hour (m7g.large: 0.0816 for two)."""

    block_gib_month: Price = 0.08
    """A GiB of block storage for a month."""

    block_mib_s_included: Price = 125.0
    """MiB/s of a broker's block storage that cost nothing. No price, but part of the offer."""

    block_mib_s_month: Price = 0.04
    """Each further MiB/s for a month."""

    between_zones_gib: Price = 0.02
    """A GiB from one zone to another: 0.01 for who sends and 0.01 for who receives."""


def load_prices(file: Path | None) -> Prices:
    """The list of a TOML file over the defaults; None: the defaults. Raises PricesError."""
    if file is None:
        return Prices()
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PricesError(f"{file}: {error.strerror}: name a TOML file that can be read") from None
    if len(content) > FILE_BYTES_MAX:
        raise PricesError(f"{file}: above {FILE_BYTES_MAX} bytes: that is no price list")
    try:
        tree = tomllib.loads(content.decode())
    except ValueError as error:  # no UTF-8, no TOML
        raise PricesError(f"{file}: {error}: write TOML such as put_per_1000 = 0.005") from None
    try:
        return Prices.model_validate(tree)
    except ValidationError as error:
        raise PricesError(_problem(file, error)) from None


def _problem(file: Path, error: ValidationError) -> str:
    """The first problem in one line."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{file}: {field} is no price: the list has {', '.join(Prices.model_fields)}"
    message = first["msg"]
    return f"{file}: {field}: {message[:1].lower()}{message[1:]} (given: {first['input']!r})"
