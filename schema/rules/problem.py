"""A rule that cannot be used, as it is told. Apart from trial.py, which loads the library."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A rule that cannot be used. `field` is empty for a message's rule; `rule` where it has no id."""

    message: str
    field: str
    rule: str
    text: str

    def __str__(self) -> str:
        place = f"{self.message}.{self.field}" if self.field else self.message
        return f"{place}: {f'rule {self.rule}: ' if self.rule else ''}{self.text}"
