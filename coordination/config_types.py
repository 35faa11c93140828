"""What a config of Kafka's kind is: its type, its bounds, and whether a value may stand in it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
VALUE_LENGTH_MAX = 4096  # characters of one config value

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")  # Python's int() takes more than Kafka does: blanks, underscores


class ConfigType(IntEnum):
    """Types as DescribeConfigs reports them (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Config:
    """One config. `low` and `high` bound numbers, inclusive; `choices` bounds strings and list items.

    `in_effect` is False for what Floe accepts for compatibility only.
    """

    name: str
    type: ConfigType
    default: str
    doc: str
    low: float = -LONG_MAX
    high: float = LONG_MAX
    choices: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    in_effect: bool = False

    def refusal(self, value: str) -> str | None:
        """Why `value` is not allowed, naming field, value and remedy; None when it is."""
        if len(value) > VALUE_LENGTH_MAX:
            return f"{self.name}: {len(value)} characters exceed the limit of {VALUE_LENGTH_MAX}"
        return _CHECKS[self.type](self, value)


def _check_boolean(config: Config, value: str) -> str | None:
    if value.lower() in ("true", "false"):
        return None
    return f"{config.name}: {value!r} is no boolean; use true or false"


def _check_number(config: Config, value: str) -> str | None:
    if not _NUMBER[config.type].fullmatch(value):
        return f"{config.name}: {value!r} is no {config.type.name.lower()}"
    number = float(value) if config.type is ConfigType.DOUBLE else int(value)
    if not math.isfinite(number):
        return f"{config.name}: {value} is too large"
    low, high = config.low, config.high
    if config.type in _RANGE:
        low, high = max(low, -_RANGE[config.type] - 1), min(high, _RANGE[config.type])
    if low <= number <= high:
        return None
    return f"{config.name}: {value} is outside [{low}, {high}]"


def _check_string(config: Config, value: str) -> str | None:
    if config.choices and value not in config.choices:
        return f"{config.name}: {value!r} is not one of {', '.join(config.choices)}"
    if config.pattern is not None and not config.pattern.fullmatch(value):
        return f"{config.name}: {value!r} does not look like {config.pattern.pattern}"
    return None


def _check_list(config: Config, value: str) -> str | None:
    if config.pattern is not None:
        return _check_string(config, value)
    for item in split_list(value):
        if config.choices and item not in config.choices:
            return f"{config.name}: {item!r} is not one of {', '.join(config.choices)}"
    return None


_RANGE = {ConfigType.INT: INT_MAX, ConfigType.SHORT: (1 << 15) - 1}
_NUMBER = {
    ConfigType.INT: _WHOLE,
    ConfigType.SHORT: _WHOLE,
    ConfigType.LONG: _WHOLE,
    ConfigType.DOUBLE: re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]{1,19})?([eE][+-]?[0-9]{1,3})?"),
}
_CHECKS = {
    ConfigType.BOOLEAN: _check_boolean,
    ConfigType.STRING: _check_string,
    ConfigType.INT: _check_number,
    ConfigType.SHORT: _check_number,
    ConfigType.LONG: _check_number,
    ConfigType.DOUBLE: _check_number,
    ConfigType.LIST: _check_list,
}


def split_list(value: str) -> list[str]:
    """The items of a list config, without blanks."""
    return [item.strip() for item in value.split(",") if item.strip()]
