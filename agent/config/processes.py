"""Several agents of one configuration on one machine (`agent.processes`): what differs from one to the next.

The first is what an agent alone would be, with its name, node id and ports, so that going from one process to
several and back moves nothing. The others have a number at the end of their name, and every port of theirs is
the first one's plus `agent.port_step` times that number. Memory is divided equally.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath

from agent.config import cgroup
from agent.config.base import MIB
from agent.config.plain import is_whole
from agent.config.rules import scheme
from agent.config.schema import Path
from agent.config.sources import Given
from agent.config.tree import Tree

PROCESSES: Path = ("agent", "processes")
LOG_URL: Path = ("log", "url")
SUPERVISOR_BYTES = 72 * MIB
"""What the process that watches the others holds (docs/operations.md, Memory)."""
PORT_MAX = 65535


def settle(chosen: dict[Path, Given], root: FilePath) -> int:
    """How many there are. What is left to the machine is written into `chosen`, with why."""
    given = chosen.get(PROCESSES)
    text = str(given.value).strip() if given is not None else "1"
    if not is_whole(text):
        return 1  # it is refused when the whole is looked at
    if int(text):
        return int(text)
    log = chosen.get(LOG_URL)
    if log is None or scheme(str(log.value)) != "etcd":
        chosen[PROCESSES] = Given(PROCESSES, 1, "one process: the log is not in etcd")
        return 1
    count = cgroup.cores(root)
    chosen[PROCESSES] = Given(PROCESSES, count, f"{count} cores")
    return count


def share(limit: int, count: int) -> int:
    """Bytes of a limit for all that each of so many may use."""
    return limit if count == 1 else max(1, (limit - SUPERVISOR_BYTES) // count)


def differences(config: Tree, name: str, number: int) -> Iterator[tuple[Path, object]]:
    """What process `number` has instead of what the first one has. `name`: the first one's."""
    more = config.agent.port_step * number
    yield ("agent", "name"), f"{name}.{number}"
    if config.agent.node_id >= 0:
        yield ("agent", "node_id"), config.agent.node_id + number
    for path, port in _ports(config):
        yield path, port + more
    for path, port in _advertised(config):
        yield path, port + more


def problem(config: Tree) -> str | None:
    """Why so many cannot be on one machine; None when they can. `config`: the first one's."""
    taken: dict[tuple[str, int], str] = {}
    remedy = "set agent.port_step, or other ports"
    if config.agent.supervisor_port:
        taken[config.http.host, config.agent.supervisor_port] = "agent.supervisor_port"
    for number in range(config.agent.processes):
        for path, first in _ports(config):
            port, what = first + number * config.agent.port_step, f"{'.'.join(path)} of process {number}"
            place = (_host(config, path), port)
            if port > PORT_MAX:
                return f"agent.processes: {what} would be {port}, and {PORT_MAX} is the last one: {remedy}"
            if place in taken:
                return f"agent.processes: {what} would be {port}, which {taken[place]} is: {remedy}"
            taken[place] = what
    return None


def _host(config: Tree, path: Path) -> str:
    section = getattr(config, path[0])
    return str((section[int(path[1])] if path[0] == "listeners" else section).host)


def _ports(config: Tree) -> Iterator[tuple[Path, int]]:
    """The ports that are bound, without those that are free ones anyway."""
    for index, listener in enumerate(config.listeners):
        if listener.port:
            yield ("listeners", str(index), "port"), listener.port
    for name, port in (("http", config.http.port), ("peers", config.peers.port)):
        if port:
            yield (name, "port"), port


def _advertised(config: Tree) -> Iterator[tuple[Path, int]]:
    """The ports that others are told, where they are not the bound ones."""
    for index, listener in enumerate(config.listeners):
        if listener.advertised_port:
            yield ("listeners", str(index), "advertised_port"), listener.advertised_port
    if config.http.advertised_port:
        yield ("http", "advertised_port"), config.http.advertised_port


def origins(number: int, count: int, found: Mapping[Path, object]) -> Iterator[tuple[Path, Given]]:
    """These values as given, by what they come from."""
    for path, value in found.items():
        yield path, Given(path, value, f"process {number} of {count}")
