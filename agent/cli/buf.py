"""A buf workspace or module: which folders its import paths begin in, and which files it has.

buf.yaml of v1beta1, v1 and v2, and buf.work.yaml. Nothing is fetched from a registry of buf's: what a module
depends on there has to be exported first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from agent.cli.failures import Failure, Status, usage

FILES_MAX = 10_000
YAML_BYTES_MAX = 1 << 20
MODULE, WORKSPACE = "buf.yaml", "buf.work.yaml"
VERSIONS = ("v1beta1", "v1", "v2")


class Root(NamedTuple):
    """Where import paths begin, and what below it counts. Folders; `includes` empty: all."""

    folder: Path
    includes: tuple[Path, ...] = ()
    excludes: tuple[Path, ...] = ()

    def has(self, file: Path) -> bool:
        """Whether a file below it counts."""
        inside = not self.includes or any(file.is_relative_to(each) for each in self.includes)
        return inside and not any(file.is_relative_to(each) for each in self.excludes)


def roots(folder: Path) -> list[Root]:
    """The roots of a workspace or module. Raises Failure for what is none."""
    if not folder.is_dir():
        raise usage(f"--buf {folder}: no such folder")
    if (folder / WORKSPACE).is_file():
        named = _texts(folder / WORKSPACE, _read(folder / WORKSPACE), "directories")
        return [root for name in named for root in _of_module(_below(folder, name, WORKSPACE))]
    if not (folder / MODULE).is_file():
        raise usage(f"--buf {folder}: it has no {MODULE} and no {WORKSPACE}; name the folder of one")
    return _of_module(folder)


def files(found: list[Root]) -> dict[str, Path]:
    """Import path → file, sorted, of all that the roots have. Raises Failure."""
    held: dict[str, Path] = {}
    for root in found:
        for file in _protos(root):
            name = file.relative_to(root.folder).as_posix()
            if name in held:
                raise usage(f'"{name}" is in {held[name]} and in {file}: an import path has one file')
            held[name] = file
            if len(held) > FILES_MAX:
                raise usage(f"--buf: more than {FILES_MAX} files")
    if not held:
        raise usage(f"--buf: no .proto file below {', '.join(str(root.folder) for root in found)}")
    return dict(sorted(held.items()))


def _protos(root: Root) -> Iterator[Path]:
    yield from (file for file in sorted(root.folder.rglob("*.proto")) if file.is_file() and root.has(file))


def _of_module(folder: Path) -> list[Root]:
    place = folder / MODULE
    if not place.is_file():
        return [Root(folder)]  # as buf takes a folder of a workspace that says nothing of itself
    told = _read(place)
    version = told.get("version")
    if version not in VERSIONS:
        raise usage(f"{place}: version {version!r} is not one of {', '.join(VERSIONS)}")
    if version == "v2":
        return _of_version_2(folder, place, told)
    build = told.get("build") or {}
    if not isinstance(build, dict):
        raise usage(f"{place}: build is no mapping")
    names = _texts(place, build, "roots") if version == "v1beta1" else ()
    excludes = tuple(_below(folder, each, place) for each in _texts(place, build, "excludes"))
    return [Root(_below(folder, each, place), (), excludes) for each in names or (".",)]


def _of_version_2(folder: Path, place: Path, told: Mapping[str, Any]) -> list[Root]:
    modules = told.get("modules") or [{"path": "."}]
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise usage(f"{place}: modules is no list of mappings")
    return [
        Root(
            _below(folder, str(each.get("path", ".")), place),
            tuple(_below(folder, name, place) for name in _texts(place, each, "includes")),
            tuple(_below(folder, name, place) for name in _texts(place, each, "excludes")),
        )
        for each in modules
    ]


def _texts(place: Path, told: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = told.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise usage(f"{place}: {name} is no list of texts")
    return tuple(found)


def _below(folder: Path, name: str, place: Path | str) -> Path:
    """A path of the file, which must not lead out of the folder. Raises Failure."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise usage(f"{place}: {name!r} leads out of {folder}")
    found = folder / path
    if not found.exists():
        raise usage(f"{place}: there is no {found}")
    return found


def _read(place: Path) -> Mapping[str, Any]:
    import yaml  # imported here: most commands do without

    try:
        with place.open("rb") as source:
            content = source.read(YAML_BYTES_MAX + 1)
        if len(content) > YAML_BYTES_MAX:
            raise usage(f"{place} has more than {YAML_BYTES_MAX} bytes")
        told = yaml.safe_load(content)
    except (OSError, yaml.YAMLError) as error:
        raise Failure(Status.FAILED, f"{place} cannot be read: {error}") from None
    if not isinstance(told, dict):
        raise usage(f"{place} holds no mapping: give version and modules")
    return told
