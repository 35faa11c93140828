"""One configuration from all sources: defaults < program < file < environment < flags.

A later source replaces single settings of an earlier one. What is unknown or contradicts itself is
refused with its name, its place and the nearest valid name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from agent.config import cgroup, memory, processes
from agent.config.errors import ConfigError
from agent.config.model import Config
from agent.config.plain import is_whole
from agent.config.schema import Path, element_model, find, is_section, leaves, nearest
from agent.config.sources import ENV_FILE, Given, from_env, from_file, from_flags, from_tree
from agent.config.templates import SETTINGS, BadTemplate, resolve

DEFAULT = "default"
MEMORY: Path = ("agent", "memory_bytes_max")
MASK = "********"
_LOGIN = re.compile(r"://[^/\s'\"]*@")
"""A user and password in a URL, where they do not belong."""
REMEDIES: dict[Path, str] = {
    (
        "log",
    ): "log.url is not set: etcd://host:2379/prefix for a cluster, sqlite:///absolute/file for one process",
    (
        "store",
    ): "store.url is not set: s3://bucket/prefix for a cluster, file:///absolute/folder for one process",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and for every setting that is not a default where it came from."""

    config: Config
    origins: Mapping[Path, str]
    memory_bytes: int | None = None
    """What this agent may use: `agent.memory_bytes_max`, or its control group's limit; None: no limit."""
    file: FilePath | None = None
    """The file among the sources."""

    @property
    def memory_problem(self) -> str | None:
        """Why an agent cannot work with that; None when it can."""
        return self._about_memory(memory.problem)

    @property
    def memory_warning(self) -> str | None:
        """Why it may be too little; None when it is not."""
        return self._about_memory(memory.warning)

    def _about_memory(self, ask: Callable[[Config, int, Mapping[Path, str]], str | None]) -> str | None:
        return None if self.memory_bytes is None else ask(self.config, self.memory_bytes, self.origins)


def load(
    file: FilePath | None = None,
    flags: Iterable[str] = (),
    *,
    base: Mapping[str, object] | None = None,
    base_origin: str = "floe dev",
    environment: Mapping[str, str] | None = None,
    root: FilePath = cgroup.ROOT,
    process: int = 0,
    advertises: bool = True,
) -> Loaded:
    """Read every source and check the whole. `file` defaults to $FLOE_CONFIG. Raises ConfigError.

    `root`: the folder in which /proc and /sys tell of this process's control group. `process`: of which one
    of `agent.processes`, from 0. `advertises`: False where only an agent's log and store are wanted.
    """
    environment = os.environ if environment is None else environment
    if file is None and environment.get(ENV_FILE):
        file = FilePath(environment[ENV_FILE])
    given = [
        *from_tree(base or {}, base_origin),
        *(from_file(file) if file is not None else []),
        *from_env(environment, Config),
        *from_flags(flags),
    ]
    chosen: dict[Path, Given] = {}
    for item in given:
        _refuse_unknown(item)
        chosen[item.path] = item
    if advertises:
        _fill_in(chosen, environment)
    else:
        _leave_out(chosen)
    count = processes.settle(chosen, root)
    limit = _fit_memory(chosen, root, count)
    config = _checked(chosen)
    if count > 1:
        config = _of_process(config, chosen, process)
    return Loaded(
        config,
        {path: item.origin for path, item in chosen.items()},
        config.agent.memory_bytes_max or limit,
        file,
    )


def _checked(chosen: Mapping[Path, Given]) -> Config:
    """What was chosen as a whole. Raises ConfigError."""
    tree = _tree(chosen.values())
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_problem(error.errors()[0], chosen)) from None


def _of_process(config: Config, chosen: dict[Path, Given], process: int) -> Config:
    """One of several; `config` is the first one's. Raises ConfigError."""
    problem, count = processes.problem(config), config.agent.processes
    if problem is not None:
        raise ConfigError(problem)
    if process >= count:
        raise ConfigError(f"process {process}: agent.processes is {count}, and the first one is 0")
    if process == 0:
        return config
    found = dict(processes.differences(config, config.agent_name, process))
    chosen.update(processes.origins(process, count, found))
    return _checked(chosen)


def _fit_memory(chosen: dict[Path, Given], root: FilePath, count: int) -> int | None:
    """Scale what nobody gave to the memory there is for one of `count` agents, and return that, bytes."""
    asked = str(chosen[MEMORY].value) if MEMORY in chosen else ""
    known = int(asked) if is_whole(asked) else 0
    limit = known or cgroup.memory_bytes(root)
    if limit is None:
        return None
    limit = processes.share(limit, count)
    if count > 1 and known:
        chosen[MEMORY] = replace(chosen[MEMORY], value=limit, origin=f"{asked} bytes of {count} processes")
    given = {path: item.value for path, item in chosen.items()}
    for path, value in memory.scaled(limit, given).items():
        chosen[path] = Given(path, value, f"{memory.SCALED} {limit} bytes")
    return limit


def _fill_in(chosen: dict[Path, Given], environment: Mapping[str, str]) -> None:
    """Replace the placeholders in what is advertised."""
    name, zone = (
        str(chosen[path].value) if path in chosen else "" for path in (("agent", "name"), ("agent", "zone"))
    )
    for path, item in list(chosen.items()):
        if path[-1] not in SETTINGS or not isinstance(item.value, str):
            continue
        try:
            chosen[path] = replace(item, value=resolve(item.value, name, zone, environment))
        except BadTemplate as error:
            raise ConfigError(f"{item.origin}: {'.'.join(path)}: {error}") from None


def _leave_out(chosen: dict[Path, Given]) -> None:
    """Advertise nothing where placeholders would say what: only an agent's own place has their values."""
    for path, item in list(chosen.items()):
        if path[-1] in SETTINGS and "{" in str(item.value):
            chosen[path] = replace(item, value=SETTINGS[path[-1]])


def _refuse_unknown(item: Given) -> None:
    name = ".".join(item.path)
    if find(Config, item.path) is not None:
        return
    if is_section(Config, item.path):
        raise ConfigError(f"{item.origin}: {name} is a group of settings, not a value")
    raise ConfigError(f"{item.origin}: unknown setting {name}; did you mean {nearest(Config, item.path)}?")


def _tree(given: Collection[Given]) -> dict[str, object]:
    """The given values as nested mappings; numbered keys under a list's name become a list."""
    root: dict[str, object] = {}
    for item in given:
        place = root
        for part in item.path[:-1]:
            place = place.setdefault(part, {})  # type: ignore[assignment]  # only groups hold groups
        place[item.path[-1]] = item.value
    for name, field in Config.model_fields.items():
        numbered = root.get(name)
        if isinstance(numbered, dict) and element_model(field) is not None:
            origins = dict.fromkeys(item.origin for item in given if item.path[0] == name)
            root[name] = _as_list(name, numbered, ", ".join(origins))
    return root


def _as_list(name: str, numbered: Mapping[str, object], origins: str) -> list[object]:
    wanted = [str(index) for index in range(len(numbered))]
    if sorted(numbered) != sorted(wanted):
        raise ConfigError(
            f"{origins}: {name}: the entries {', '.join(sorted(numbered))} must be numbered from 0"
        )
    return [numbered[index] for index in wanted]


def _problem(error: ErrorDetails, chosen: Mapping[Path, Given]) -> str:
    """One line for one of pydantic's errors: place, setting, what is wrong, what was given."""
    return _LOGIN.sub(f"://{MASK}@", _said(error, chosen))


def _said(error: ErrorDetails, chosen: Mapping[Path, Given]) -> str:
    path = tuple(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return REMEDIES.get(path[:1], f"{'.'.join(path)} is not set")
    message = error["msg"].removeprefix("Value error, ")
    item = chosen.get(path)
    if item is None:  # a rule over several settings: its message names them
        named = [g for p, g in chosen.items() if _names(message, ".".join(p))]
        origins = ", ".join(dict.fromkeys(g.origin for g in named))
        return f"{origins}: {message}" if origins else message
    setting = find(Config, path)
    shown = MASK if setting is not None and setting.secret else repr(item.value)
    return f"{item.origin}: {'.'.join(path)}: {message[:1].lower()}{message[1:]} (given: {shown})"


def _names(message: str, name: str) -> bool:
    """The message speaks of this setting (and not of a longer name) or of its whole section."""
    words = message.replace(",", " ").replace(";", " ").replace("=", " ").replace(":", " ").split()
    return name in words or name.partition(".")[0] in words


def in_force(loaded: Loaded) -> list[tuple[str, str, str]]:
    """Every setting as (dotted name, value as text with secrets masked, where it came from)."""
    rows = []
    for path, value in leaves(plain(loaded.config)):
        rows.append((".".join(path), _text(value), loaded.origins.get(path, DEFAULT)))
    return rows


def plain(model: BaseModel) -> dict[str, object]:
    """A section as a tree of plain values, with secrets masked."""
    tree: dict[str, object] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            value = plain(value)
        elif isinstance(value, tuple):
            value = [plain(item) if isinstance(item, BaseModel) else item for item in value]
        elif isinstance(value, dict):
            value = {key: _masked(item) for key, item in value.items()}
        tree[name] = _masked(value)
    return tree


def _masked(value: object) -> object:
    if not isinstance(value, SecretStr):
        return value
    return MASK if value.get_secret_value() else ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value in ({}, []) else str(value)
