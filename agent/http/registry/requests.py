"""What a request names: subjects in contexts, versions, flags, pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from starlette.requests import Request

from agent.http.answers import parse_json, read_body
from agent.http.registry.errors import (
    RegistryProblem,
    invalid_subject,
    invalid_version,
    subject_missing,
    version_missing,
)
from coordination.state.bounds import SCHEMA_ID_MAX
from coordination.state.subject_types import Subject, SubjectTable, SubjectVersion, context_of, meant
from coordination.state.subjects import NAME_LENGTH_MAX

DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY")
_T = TypeVar("_T")


def context_given(request: Request) -> str:
    """The context that the path begins with (/contexts/.x/…) as ":.x:"; empty: none, or the default one."""
    given = str(request.path_params.get("context", ""))
    if given in ("", DEFAULT_CONTEXT, ":.:"):
        return ""
    if given.startswith(":") and given.endswith(":"):
        given = given[1:-1]
    if not given.startswith(".") or ":" in given:
        raise RegistryProblem(42212, f"The specified context '{given}' is not valid.", 422)
    return f":{given}:"


def qualified(name: str, context: str) -> str:
    """The name with its context before it; those of the default one have none."""
    if name.startswith(":.:"):
        return name[3:]
    return name if name.startswith(":.") or not context else context + name


def subject_of(request: Request) -> str:
    """The subject that the path names. Raises RegistryProblem 42208."""
    given = str(request.path_params["subject"])
    name = qualified(given, context_given(request))
    bad = not name or name in _RESERVED or len(name) > NAME_LENGTH_MAX
    if bad or any(ord(letter) < 32 for letter in name) or name == context_of(name):
        raise invalid_subject(given)
    return name


def subject_meant(table: SubjectTable, request: Request) -> str:
    """The subject that the path names, or that what it names is an alias of. Raises RegistryProblem 42208."""
    return meant(table, subject_of(request))


def scope_of(request: Request) -> str:
    """What settings are for: a subject, a context (":.x:"), or all."""
    given = str(request.path_params.get("subject", ""))
    name = qualified(given, context_given(request))
    if name in _RESERVED or len(name) > NAME_LENGTH_MAX or any(ord(letter) < 32 for letter in name):
        raise invalid_subject(given)
    return name


def flag(request: Request, *names: str) -> bool:
    """Whether one of the names is true in the query; anything else but true is false, as there."""
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def paged(request: Request, found: Sequence[_T], most: int | None = None) -> list[_T]:
    """What `offset` and `limit` leave, and never more than `most`. Raises RegistryProblem 400."""
    offset, limit = max(_number(request, "offset", 0), 0), _number(request, "limit", -1)
    bounds = [each for each in (limit, most) if each is not None and each >= 0]
    return list(found[offset : offset + min(bounds)] if bounds else found[offset:])


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name)
    try:
        return default if given is None else int(given[:12])
    except ValueError:
        raise RegistryProblem(400, f"{name}={given!r} is no whole number") from None


def subject_held(table: SubjectTable, name: str, *, deleted: bool) -> Subject:
    """The subject; one whose versions are all deleted only where asked for. Raises RegistryProblem 40401."""
    subject = table.subjects.get(name)
    if subject is None or not (deleted or subject.live):
        raise subject_missing(name)
    return subject


def version_named(request: Request) -> int | None:
    """The version that the path names; None: the latest. Raises RegistryProblem 42202."""
    given = str(request.path_params["version"])
    if given in ("latest", "-1"):
        return None
    if not (given.isascii() and given.isdigit() and 0 < int(given[:11]) <= SCHEMA_ID_MAX):
        raise invalid_version(given)
    return int(given)


def version_held(subject: Subject, version: int | None, *, deleted: bool) -> SubjectVersion:
    """That version, or the latest (None). Raises RegistryProblem 40402."""
    if version is None:
        found = [one for one in subject.versions.values() if deleted or not one.deleted]
        if not found:
            raise version_missing("latest")
        return found[-1]
    one = subject.versions.get(version)
    if one is None or (one.deleted and not deleted):
        raise version_missing(version)
    return one


async def object_of(request: Request, bytes_max: int) -> Mapping[str, object]:
    """The body, a JSON object. Raises Problem 400 and 413, RegistryProblem 422."""
    found = parse_json(await read_body(request, bytes_max))
    if not isinstance(found, dict):
        raise RegistryProblem(422, "the body is no JSON object")
    return found


def prefixes(request: Request) -> tuple[str | None, str]:
    """Context (None: any) and beginning of the names that `subjectPrefix` asks for."""
    context = context_given(request)
    given = request.query_params.get("subjectPrefix")
    if given is None:
        return (context, "") if "context" in request.path_params else (None, "")
    if given.startswith(EVERY_CONTEXT):
        return None, given[len(EVERY_CONTEXT) :]
    name = qualified(given, context)
    return context_of(name), name.removeprefix(context_of(name))
