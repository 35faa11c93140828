"""Placeholders in what an agent advertises, so that all pods of a set share one configuration.

`{pod}` the pod's name (POD_NAME, else agent.name, else the host's name), `{ordinal}` the number at its end
and `{ordinal+31000}` that plus a number, `{zone}` agent.zone, `{node}` NODE_NAME, `{ip}` POD_IP, `{env:NAME}`
any variable. Resolved once, when the configuration is loaded.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

KNOWN = "{pod}, {ordinal}, {ordinal+N}, {zone}, {node}, {ip} and {env:NAME}"
SETTINGS = {"advertised_host": "", "advertised_port": 0}
"""The settings that may hold them, in any section, and their defaults."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ORDINAL = re.compile(r"ordinal(?:\+(\d{1,9}))?")
_LAST_NUMBER = re.compile(r".*-(\d{1,9})")


class BadTemplate(ValueError):
    """A placeholder that is not known or has no value here."""


def resolve(text: str, name: str, zone: str, environment: Mapping[str, str]) -> str:
    """`text` with every placeholder replaced; `name` is agent.name. Raises BadTemplate."""
    resolved = _PLACEHOLDER.sub(lambda found: _value(found[1], name, zone, environment), text)
    if "{" in resolved or "}" in resolved:
        raise BadTemplate(f"{text!r} has a brace without its partner; placeholders are {KNOWN}")
    return resolved


def _value(word: str, name: str, zone: str, environment: Mapping[str, str]) -> str:
    pod = environment.get("POD_NAME") or name or socket.gethostname()
    ordinal = _ORDINAL.fullmatch(word)
    if ordinal:
        number = _LAST_NUMBER.fullmatch(pod)
        if number is None:
            raise BadTemplate(
                f"{{{word}}}: the pod's name {pod!r} does not end in -<number> (a StatefulSet's does)"
            )
        return str(int(number[1]) + int(ordinal[1] or 0))
    if word == "pod":
        return pod
    if word == "zone":
        return _needed(zone, "{zone}", "agent.zone")
    variable = {"node": "NODE_NAME", "ip": "POD_IP"}.get(word) or word.removeprefix("env:")
    if variable == word:
        raise BadTemplate(f"{{{word}}} is not known; placeholders are {KNOWN}")
    return _needed(environment.get(variable, ""), f"{{{word}}}", f"the variable {variable}")


def _needed(value: str, placeholder: str, source: str) -> str:
    if not value:
        raise BadTemplate(f"{placeholder} has no value: set {source}")
    return value
