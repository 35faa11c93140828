"""Where settings come from: a YAML file, FLOE_ variables, --set flags; each value with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

import yaml
from pydantic import BaseModel

from agent.config.errors import ConfigError
from agent.config.schema import Path, leaves, settings

ENV_PREFIX = "FLOE_"
ENV_FILE = "FLOE_CONFIG"
FILE_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Given:
    """A value that some source gave, and where."""

    path: Path
    value: object
    origin: str


def from_tree(tree: Mapping[str, object], origin: str) -> list[Given]:
    """Values set by the program itself, such as the embedded defaults."""
    return [Given(path, value, origin) for path, value in leaves(tree)]


def from_file(file: FilePath) -> list[Given]:
    """The settings of a YAML file. Raises ConfigError naming the file and the line."""
    try:
        with file.open("rb") as stream:
            text = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{file}: larger than {FILE_BYTES_MAX} bytes; is it a configuration?")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return list(_walk(loader, node, (), str(file))) if node is not None else []
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_problem(file, error)) from None
    except ValueError as error:
        raise ConfigError(f"{file}: not a YAML file: {error}") from None


def _yaml_problem(file: FilePath, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = f"{mark.line + 1}" if mark is not None else "1"
        return f"{file}:{line}: not valid YAML: {error.problem or error.context}"
    return f"{file}: not valid YAML: {' '.join(str(error).split())}"


def _walk(loader: yaml.SafeLoader, node: yaml.Node, path: Path, file: str) -> Iterator[Given]:
    """The leaves below a node, with line numbers; a key given twice is refused."""
    place = f"{file}:{node.start_mark.line + 1}"
    if len(path) > DEPTH_MAX:
        raise ConfigError(f"{place}: nested too deep")
    if not path and not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{place}: a configuration is a mapping of sections, such as `log:`")
    if isinstance(node, yaml.MappingNode) and node.value:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node, deep=True))
            if key in seen:
                raise ConfigError(f"{file}:{key_node.start_mark.line + 1}: {key!r} is given twice")
            seen.add(key)
            yield from _walk(loader, value_node, (*path, key), file)
    elif isinstance(node, yaml.SequenceNode) and node.value:
        for index, child in enumerate(node.value):
            yield from _walk(loader, child, (*path, str(index)), file)
    else:
        value = loader.construct_object(node, deep=True)
        if value is not None and value != {}:  # `store:` with nothing below it says nothing
            yield Given(path, value, place)


def from_env(environment: Mapping[str, str], model: type[BaseModel]) -> list[Given]:
    """FLOE_SECTION__KEY variables; FLOE_LISTENERS__0__PORT reaches into a list.

    Variables without a double underscore are not ours (Kubernetes sets FLOE_SERVICE_HOST and the
    like), except when only the second underscore is missing. Raises ConfigError for those.
    """
    flat = {"_".join(s.path).upper(): "__".join(s.path).upper() for s in settings(model)}
    given = []
    for name in sorted(environment):
        rest = name.removeprefix(ENV_PREFIX)
        if not name.startswith(ENV_PREFIX) or name == ENV_FILE:
            continue
        if "__" in rest:
            path = tuple(part.lower() for part in rest.split("__"))
            given.append(Given(path, environment[name], f"environment {name}"))
        elif rest in flat and not environment[name].startswith(("tcp://", "udp://")):
            raise ConfigError(f"environment {name}: not a setting; did you mean {ENV_PREFIX}{flat[rest]}?")
    return given


def from_flags(assignments: Iterable[str]) -> list[Given]:
    """`section.key=value` assignments of --set. Raises ConfigError."""
    given = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {assignment!r}: write --set section.key=value")
        given.append(Given(tuple(name.strip().split(".")), value, "--set"))
    return given
