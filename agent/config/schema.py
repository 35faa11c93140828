"""The settings by their dotted names, read off the types; and the nearest name to a wrong one."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

Path = tuple[str, ...]
"""A setting's place in the tree: ("listeners", "0", "port")."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `path` holds `*` where a list's index or a free key stands."""

    path: Path
    field: FieldInfo

    @property
    def name(self) -> str:
        """Its dotted name."""
        return ".".join(self.path)

    @property
    def secret(self) -> bool:
        """Its value is never shown."""
        kind = self.field.annotation
        return kind is SecretStr or (typing.get_origin(kind) is dict and SecretStr in typing.get_args(kind))


def element_model(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a list field holds, as in `listeners`; None for other fields."""
    if typing.get_origin(field.annotation) not in (tuple, list):
        return None
    first = typing.get_args(field.annotation)[0]
    return first if isinstance(first, type) and issubclass(first, BaseModel) else None


def section_model(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field is, or None when it is a setting."""
    kind = field.annotation
    if isinstance(kind, UnionType) or not isinstance(kind, type):
        return None
    return kind if issubclass(kind, BaseModel) else None


def settings(model: type[BaseModel], prefix: Path = ()) -> Iterator[Setting]:
    """Every setting of a model, in the order of its definition."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        section, element = section_model(field), element_model(field)
        if section is not None:
            yield from settings(section, path)
        elif element is not None:
            yield from settings(element, (*path, "*"))
        elif typing.get_origin(field.annotation) is dict:
            yield Setting((*path, "*"), field)
        else:
            yield Setting(path, field)


def matches(pattern: Path, path: Path) -> bool:
    """`path` is the setting `pattern`, where `*` stands for any one part."""
    return len(pattern) == len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=True))


def find(model: type[BaseModel], path: Path) -> Setting | None:
    """The setting at `path`, or None when there is none."""
    return next((s for s in settings(model) if matches(s.path, path)), None)


def is_section(model: type[BaseModel], path: Path) -> bool:
    """`path` is a group of settings, such as `produce` or `listeners.0`."""
    return any(matches(s.path[: len(path)], path) for s in settings(model) if len(s.path) > len(path))


def nearest(model: type[BaseModel], path: Path) -> str:
    """The dotted name nearest to a wrong one (always one: the closest there is)."""
    wrong = ".".join(path)
    names = {s.name.replace("*", path[1] if len(path) > 2 else "0"): None for s in settings(model)}
    sections = dict.fromkeys(s.path[0] for s in settings(model))
    candidates = [*names, *(sections if len(path) == 1 else ())]
    same_section = [n for n in candidates if n.startswith(path[0] + ".")]
    leaf = {n.rpartition(".")[2]: n for n in reversed(candidates)}
    close = (
        difflib.get_close_matches(wrong, same_section, 1, 0.6)
        or difflib.get_close_matches(wrong, candidates, 1, 0.6)
        or [leaf[m] for m in difflib.get_close_matches(path[-1], list(leaf), 1, 0.6)]
        or difflib.get_close_matches(wrong, candidates, 1, 0.0)
    )
    return str(close[0])


def leaves(tree: Mapping[str, object], prefix: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every leaf of a tree of plain values; an empty group counts as a leaf."""
    for key, value in tree.items():
        path = (*prefix, str(key))
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        elif isinstance(value, list | tuple) and value:
            yield from leaves({str(i): item for i, item in enumerate(value)}, path)
        else:
            yield path, value
