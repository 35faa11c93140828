"""Values of the command line that are right as they stand, taken without what typer checks values with.

Typer asks pydantic about each value, also about those that were not given; importing it is half of what a
short command costs. Whatever is not plainly right is left to typer, which also says what is wrong with it.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperOption

_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_UNKNOWN = object()
_METHOD = "get_runtime_param"


def take_plainly() -> None:
    """From now on every option and argument of this process takes plain values by itself."""
    for kind in (TyperOption, TyperArgument):
        of_typer: Any = getattr(kind, _METHOD)
        if not isinstance(of_typer, _Quickly):
            setattr(kind, _METHOD, _Quickly(of_typer))


class _Quickly:
    """In the place of typer's method that gives what turns a parameter's words into its value."""

    def __init__(self, of_typer: Any) -> None:
        self._of_typer = of_typer

    def __get__(self, parameter: Any, kind: type) -> Any:
        return self if parameter is None else lambda: _Quick(parameter, self._of_typer)


class _Quick:
    """Takes the value of one parameter, or lets typer do so."""

    def __init__(self, parameter: Any, of_typer: Any) -> None:
        self._of_typer = of_typer
        self._annotation = parameter.type_descriptor.annotation
        self._lowest, self._highest = getattr(parameter, "min", None), getattr(parameter, "max", None)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The parameter's value, as typer would give it."""
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many and isinstance(value, list | tuple) and get_origin(self._annotation) is list:
            (kind,) = get_args(self._annotation)
            found: Any = [self._plain(kind, each) for each in value]
            known = _UNKNOWN not in found
        else:
            found = self._plain(self._annotation, value)
            known = found is not _UNKNOWN
        return found if known else self._of_typer(param).coerce(value, param=param, ctx=ctx)

    def _plain(self, kind: Any, value: Any) -> Any:
        if kind is str:
            return value if isinstance(value, str) else _UNKNOWN
        if kind is int:
            return self._integer(value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return next((each for each in kind if value in (each, each.value)), _UNKNOWN)
        return _UNKNOWN

    def _integer(self, value: Any) -> Any:
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if type(value) is not int:
            return _UNKNOWN
        low = self._lowest is None or value >= self._lowest
        high = self._highest is None or value <= self._highest
        return value if low and high else _UNKNOWN
