"""/config and /mode: what applies to all, to a context, to a subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import require_subject
from agent.http.barrier import barrier, submit
from agent.http.needs import READ_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.errors import (
    RegistryProblem,
    config_missing,
    invalid_compatibility,
    invalid_mode,
    mode_missing,
    not_permitted,
    subject_missing,
)
from agent.http.registry.judging import level_name
from agent.http.registry.requests import flag, object_of, qualified, scope_of
from agent.http.registry.shown import answer
from coordination.commands import PutSubjectSettings, command
from coordination.state.subject_types import (
    GLOBAL,
    Compatibility,
    Mode,
    Normalize,
    Settings,
    context_of,
    in_force,
)
from coordination.state.subjects import NAME_LENGTH_MAX
from coordination.state.types import Refused
from schema.registry.compatibility import LEVELS

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
UNKNOWN_CONFIGS = (
    *("compatibilityPolicy", "validateFields", "defaultMetadata", "overrideMetadata"),
    *("defaultRuleSet", "overrideRuleSet"),
)
"""What Confluent's registry has and Floe's does not. Refused: nobody shall believe that it is in force."""


class SettingRoutes:
    """Reads after a read barrier, writes through the log."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def _settings(self, request: Request) -> tuple[str, Settings, Settings]:
        """The scope, what was set for it and what is in force there."""
        scope = scope_of(request)
        await barrier(self._parts)
        table = self._parts.replica.state.subjects
        return scope, table.settings.get(scope, Settings()), in_force(table, scope)

    async def config(self, request: Request) -> Response:
        """The config of the scope; of what is above it where `defaultToGlobal` says so."""
        scope, own, applies = await self._settings(request)
        if scope == GLOBAL or flag(request, "defaultToGlobal"):
            return answer(_config(applies, default=True))
        if own.config == Settings():
            raise config_missing(scope)
        return answer(_config(own, default=False))

    async def put_config(self, request: Request) -> Response:
        """Set what the body names; answers with it."""
        scope = scope_of(request)
        body = await object_of(request, self._parts.config.http.body_bytes_max)
        for name in UNKNOWN_CONFIGS:
            if body.get(name) not in (None, {}, "", False):
                raise not_permitted(f"Floe's registry has no {name}")
        change = PutSubjectSettings(scope=scope)
        said: dict[str, Any] = {}
        level = body.get("compatibility", body.get("compatibilityLevel"))
        if level is not None:
            said["compatibility"] = _one_of(level, LEVELS, invalid_compatibility())
            change.compatibility = Compatibility.Value(said["compatibility"])
        if body.get("normalize") is not None:
            said["normalize"] = _truth("normalize", body["normalize"])
            change.normalize = Normalize.ON if said["normalize"] else Normalize.OFF
        said |= _names_given(self._parts, scope, body, change)
        if not said:
            raise invalid_compatibility()
        await changed(self._parts, change)
        return answer(said)

    async def delete_config(self, request: Request) -> Response:
        """Back to what is above it; answers with what was set."""
        scope, own, applies = await self._settings(request)
        if scope != GLOBAL and own.config == Settings():
            raise subject_missing(scope)
        await changed(self._parts, PutSubjectSettings(scope=scope, clear_config=True))
        return answer(_config(own if scope != GLOBAL else applies, default=scope == GLOBAL))

    async def mode(self, request: Request) -> Response:
        """The mode of the scope; of what is above it where `defaultToGlobal` says so."""
        scope, own, applies = await self._settings(request)
        if scope == GLOBAL or flag(request, "defaultToGlobal"):
            return answer({"mode": _mode(applies.mode)})
        if not own.mode:
            raise mode_missing(scope)
        return answer({"mode": _mode(own.mode)})

    async def put_mode(self, request: Request) -> Response:
        """Set the mode; answers with it."""
        scope = scope_of(request)
        body = await object_of(request, self._parts.config.http.body_bytes_max)
        mode = _one_of(body.get("mode"), MODES, invalid_mode())
        if mode == "READONLY_OVERRIDE" and scope != GLOBAL:
            raise invalid_mode()
        force = flag(request, "force")
        await changed(self._parts, PutSubjectSettings(scope=scope, mode=Mode.Value(mode), force=force))
        return answer({"mode": mode})

    async def delete_mode(self, request: Request) -> Response:
        """Back to what is above it; answers with what was set."""
        scope, own, applies = await self._settings(request)
        if scope != GLOBAL and not own.mode:
            raise subject_missing(scope)
        await changed(self._parts, PutSubjectSettings(scope=scope, clear_mode=True))
        return answer({"mode": _mode(own.mode or applies.mode)})


async def changed(parts: Parts, change: PutSubjectSettings) -> None:
    """Put the settings. Raises RegistryProblem where they are refused, and Problem 503 and 504."""
    result = await submit(parts, command(change))
    if isinstance(result, Refused):
        raise not_permitted(result.message)


def _one_of(given: object, known: tuple[str, ...], problem: RegistryProblem) -> str:
    """The name in capitals, as they may be given in any."""
    name = given.upper() if isinstance(given, str) else ""
    if name not in known:
        raise problem
    return name


def _truth(what: str, given: object) -> bool:
    """True or false, also as texts, which Confluent's registry takes. Raises RegistryProblem 422."""
    known = {"true": True, "false": False}
    found = known.get(given.lower()) if isinstance(given, str) else given
    if not isinstance(found, bool):
        raise RegistryProblem(422, f"{what}: give true or false")
    return found


def _config(settings: Settings, *, default: bool) -> Mapping[str, object]:
    shown: dict[str, object] = {}
    if settings.compatibility or default:
        shown["compatibilityLevel"] = level_name(settings.compatibility)
    if settings.normalize:
        shown["normalize"] = settings.normalize == Normalize.ON
    if settings.alias:
        shown["alias"] = settings.alias
    if settings.compatibility_group:
        shown["compatibilityGroup"] = settings.compatibility_group
    return shown


def _names_given(
    parts: Parts, scope: str, body: Mapping[str, object], change: PutSubjectSettings
) -> dict[str, str]:
    """Alias and group of a body, put into the change; empty, or null, unsets one. Raises RegistryProblem,
    and Problem 403 for the alias of a subject that one may not read."""
    said = {}
    for name in ("alias", "compatibilityGroup"):
        if name in body:
            said[name] = _name(name, body[name])
    if "alias" in said:
        if said["alias"] and scope == context_of(scope):  # so is that of all
            raise not_permitted(f"alias {said['alias']!r} is given for no subject: PUT /config/SUBJECT")
        change.alias = qualified(said["alias"], "")
        if change.alias:
            require_subject(parts, READ_SUBJECT, change.alias)
    if "compatibilityGroup" in said:
        change.compatibility_group = said["compatibilityGroup"]
    return said


def _name(what: str, given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or len(given) > NAME_LENGTH_MAX or any(ord(each) < 32 for each in given):
        raise not_permitted(f"{what}: give a text of at most {NAME_LENGTH_MAX} printable characters")
    return given


def _mode(number: int) -> str:
    known: Any = number or Mode.READWRITE
    return Mode.Name(known)
