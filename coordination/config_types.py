"""What a config of Kafka's kind is: its type, its bounds, and whether a value may stand in it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
VALUE_LENGTH_MAX = 4096  # characters of one config value
NAME_SHOWN_MAX = 256  # characters of a client's text in a message


def shown(text: str) -> str:
    """A client's text as messages quote it: cut, since a message must fit into one of Kafka's strings."""
    return text if len(text) <= NAME_SHOWN_MAX else f"{text[:NAME_SHOWN_MAX]}…"


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

    Values are refused in the words of Kafka's ConfigDef. `in_effect` is False for a config that Floe accepts
    and shows but does not act on. `also` is one more number that is allowed, outside of
    the bounds. Below feature level `known_from` the name is unknown. `check` tells what is wrong with a value
    that has the form.
    """

    name: str
    type: ConfigType
    default: str
    doc: str
    low: float = -LONG_MAX
    high: float = LONG_MAX
    choices: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    form: str = ""  # what the pattern means, for people
    in_effect: bool = False
    also: int | None = None
    known_from: int = 1
    check: Callable[[str], str | None] | None = None

    def refusal(self, value: str) -> str | None:
        """Why `value` is not allowed, naming config, value and what is; None when it is."""
        if len(value) > VALUE_LENGTH_MAX:
            length = f"{len(value)} characters exceed the limit of {VALUE_LENGTH_MAX}"
            return self._invalid(shown(value), length)
        items = [value]
        if self.type is ConfigType.LIST and self.pattern is None:
            items = [item.strip() for item in value.split(",")] if value.strip() else []
            if "" in items:
                return f"Configuration '{self.name}' values must not be empty."
        for item in items:
            problem = _CHECKS[self.type](self, item)
            if problem is not None:
                return self._invalid(item, problem)
        return None

    def _invalid(self, value: str, problem: str) -> str:
        return f"Invalid value {value} for configuration {self.name}: {problem}"


def _check_boolean(config: Config, value: str) -> str | None:
    if value.lower() in ("true", "false"):
        return None
    return "Expected value to be either true or false"


def _check_number(config: Config, value: str) -> str | None:
    if not _NUMBER[config.type].fullmatch(value):
        return f"Not a number of type {config.type.name}"
    number = float(value) if config.type is ConfigType.DOUBLE else int(value)
    if not math.isfinite(number):
        return f"Not a number of type {config.type.name}"
    if config.type in _RANGE and not -_RANGE[config.type] - 1 <= number <= _RANGE[config.type]:
        return f"Not a number of type {config.type.name}"
    if number == config.also or config.low <= number <= config.high:
        return None
    if config.also is not None:
        return f"Value must be between {config.low} and {config.high} or equal to {config.also}"
    if number < config.low:
        return f"Value must be at least {config.low}"
    return f"Value must be no more than {config.high}"


def _check_string(config: Config, value: str) -> str | None:
    if config.choices and value not in config.choices:
        return f"String must be one of: {', '.join(config.choices)}"
    if config.pattern is not None and not config.pattern.fullmatch(value):
        return f"It does not look like {config.form or config.pattern.pattern}"
    return config.check(value) if config.check is not None else None


_RANGE = {ConfigType.INT: INT_MAX, ConfigType.SHORT: (1 << 15) - 1, ConfigType.LONG: LONG_MAX}
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
    ConfigType.LIST: _check_string,
}


def split_list(value: str) -> list[str]:
    """The items of a list config, without blanks."""
    return [item.strip() for item in value.split(",") if item.strip()]
