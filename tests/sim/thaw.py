"""Frozen dataclasses of the product are made three times as quickly when nothing guards them.

Each field of one goes through `object.__setattr__`, and a run makes some hundred thousand of them. That
nobody sets a field of a frozen one is for mypy, which looks at all of the product, and for its unit tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

PACKAGES = frozenset({"agent", "coordination", "iceberg", "objectstore", "schema"})
_done: set[type] = set()


def thaw() -> None:
    """From here on, in this process: those of all modules that are loaded, once."""
    for kind in () if _done else list(_frozen()):
        _done.add(kind)
        if all(each.init and not each.kw_only and each.default_factory is MISSING for each in fields(kind)):
            _thaw(kind)


def _frozen() -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES:
            for kind in vars(module).values():
                params = vars(kind).get("__dataclass_params__") if isinstance(kind, type) else None
                if params is not None and params.frozen and params.init and kind not in _done:
                    yield kind


def _thaw(kind: Any) -> None:
    names = [each.name for each in fields(kind)]
    lines = [f"self.{name} = {name}" for name in names]
    lines += ["self.__post_init__()"] if hasattr(kind, "__post_init__") else []
    source = f"def __init__({', '.join(['self', *names])}):\n " + "\n ".join(lines or ["pass"])
    made: dict[str, Any] = {}
    exec(source, made)  # as dataclasses does it
    made["__init__"].__defaults__ = kind.__init__.__defaults__
    kind.__setattr__, kind.__delattr__ = object.__setattr__, object.__delattr__
    kind.__init__ = made["__init__"]
