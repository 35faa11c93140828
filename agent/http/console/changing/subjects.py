"""A subject's compatibility level, by the registry's settings."""

from __future__ import annotations

from collections.abc import Sequence

from agent.http.answers import Problem
from agent.http.asking import require_subject
from agent.http.console.changing.plans import (
    BadFields,
    Errors,
    Field,
    Form,
    Given,
    Plan,
    Refusal,
    controls,
    hidden,
)
from agent.http.console.markup import many, url
from agent.http.console.schemas import HERE
from agent.http.needs import READ_SUBJECT, WRITE_SETTINGS
from agent.http.parts import Parts
from agent.http.registry.errors import RegistryProblem
from agent.http.registry.judging import level_of
from agent.http.registry.settings import changed
from coordination.commands import PutSubjectSettings
from coordination.config_types import NAME_SHOWN_MAX
from coordination.kafka_codes import Code
from coordination.state.subject_types import Compatibility, Settings
from schema.registry.compatibility import LEVELS


class SubjectLevel:
    """PUT /config/SUBJECT."""

    name, here = "subject-level", HERE

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def form(self, given: Given, errors: Errors) -> Form:
        """Which level."""
        subject = self._subject(given)
        now = level_of(self._parts.replica.state.subjects, subject)
        field = Field("level", "Level", f"Versions are compared by it. Now: {now}.", LEVELS, preset=now)
        fields = many((hidden({"subject": subject}), controls([field], given, errors)))
        return Form(f"Compatibility of {subject}", HERE, fields)

    async def plan(self, given: Given) -> Plan:
        """One level."""
        parts, subject, level = self._parts, self._subject(given), given.get("level", "")
        if level not in LEVELS:
            raise BadFields({"level": f"{level[:100]!r} is none of {', '.join(LEVELS)}"})

        def look() -> object:
            table = parts.replica.state.subjects
            own = table.settings.get(subject, Settings()).compatibility
            return subject in table.subjects, own, level_of(table, subject)

        async def do(rehearse: bool) -> Sequence[Refusal]:
            try:
                require_subject(parts, WRITE_SETTINGS, subject)
            except Problem as problem:
                told = f"{problem.message}: {problem.remedy}"
                return [Refusal("", Code.CLUSTER_AUTHORIZATION_FAILED, told)]
            if not rehearse:
                await _put(parts, subject, level)
            return []

        return Plan(
            f"Compatibility of {subject}",
            given,
            [("Level", level_of(parts.replica.state.subjects, subject), level)],
            look,
            look(),
            do,
            (f"Schema {subject}", url("/console/schema", subject=subject)),
        )

    def _subject(self, given: Given) -> str:
        name = given.get("subject", "")
        require_subject(self._parts, READ_SUBJECT, name)
        if name not in self._parts.replica.state.subjects.subjects:
            raise Problem(404, f"subject {name[:NAME_SHOWN_MAX]!r} does not exist", "see the list of schemas")
        return name


async def _put(parts: Parts, subject: str, level: str) -> None:
    change = PutSubjectSettings(scope=subject, compatibility=Compatibility.Value(level))
    try:
        await changed(parts, change)
    except RegistryProblem as problem:
        raise Problem(problem.status, problem.message) from None
