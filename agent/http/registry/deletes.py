"""Deleting versions and subjects: hidden first, then for good."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import require_subject
from agent.http.barrier import barrier, submit
from agent.http.needs import WRITE_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.errors import (
    RegistryProblem,
    not_permitted,
    referred_to,
    subject_deleted,
    subject_missing,
    subject_not_deleted,
    version_deleted,
    version_missing,
    version_not_deleted,
)
from agent.http.registry.requests import flag, subject_meant, version_held, version_named
from agent.http.registry.shown import answer
from coordination.commands import DeleteSchemaVersions, command
from coordination.kafka_codes import Code
from coordination.state.subject_types import Subject
from coordination.state.subjects import referring
from coordination.state.types import Done, Refused


class DeleteRoutes:
    """Deletes through the log. What apply refuses is told by what the state then is."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def subject(self, request: Request) -> Response:
        """All versions of a subject; answers with their numbers."""
        permanent = flag(request, "permanent")
        await barrier(self._parts)
        name = subject_meant(self._parts.replica.state.subjects, request)
        require_subject(self._parts, WRITE_SUBJECT, name)  # an alias may be newer than the first asking
        deleted = await self._delete(name, [], permanent=permanent)
        return answer(list(deleted))

    async def version(self, request: Request) -> Response:
        """One version; answers with its number."""
        number, permanent = version_named(request), flag(request, "permanent")
        await barrier(self._parts)
        name = subject_meant(self._parts.replica.state.subjects, request)
        require_subject(self._parts, WRITE_SUBJECT, name)  # an alias may be newer than the first asking
        subject = self._held(name)
        if number is None:
            number = version_held(subject, None, deleted=permanent).version
        (deleted,) = await self._delete(name, [number], permanent=permanent)
        return answer(deleted)

    async def _delete(self, name: str, versions: list[int], *, permanent: bool) -> tuple[int, ...]:
        message = DeleteSchemaVersions(subject=name, version=versions, permanent=permanent)
        result = await submit(self._parts, command(message))
        if isinstance(result, Refused):
            raise self._why(result, name, versions, permanent=permanent)
        assert isinstance(result, Done)
        return result.value  # type: ignore[return-value]  # as apply says

    def _held(self, name: str) -> Subject:
        subject = self._parts.replica.state.subjects.subjects.get(name)
        if subject is None:
            raise subject_missing(name)
        return subject

    def _why(self, result: Refused, name: str, versions: list[int], *, permanent: bool) -> RegistryProblem:
        """A refusal in Confluent's words."""
        if result.code not in (Code.RESOURCE_NOT_FOUND, Code.INVALID_REQUEST, Code.DUPLICATE_RESOURCE):
            return not_permitted(result.message)
        subject = self._held(name)
        if result.code is Code.DUPLICATE_RESOURCE:
            return self._referred_to(subject, versions, permanent=permanent)
        if not versions:
            return subject_not_deleted(name) if permanent else subject_deleted(name)
        if result.code is Code.INVALID_REQUEST:
            return version_not_deleted(name, versions[0])
        return (
            version_deleted(name, versions[0])
            if versions[0] in subject.versions
            else version_missing(versions[0])
        )

    def _referred_to(self, subject: Subject, versions: list[int], *, permanent: bool) -> RegistryProblem:
        """Which of the versions is."""
        state = self._parts.replica.state
        named = versions or list(subject.versions)
        found = (one for one in named if referring(state, subject.name, one, deleted=permanent))
        return referred_to(subject.name, next(found, named[0]))
