"""Subjects of the registry, and one of them: its versions, and the text of one."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.asking import may_subject, require_subject
from agent.http.console.listing import asked, form, listed, ways, word
from agent.http.console.markup import Content, Html, in_pieces, link, many, pairs, table, tag, url
from agent.http.console.offers import offered
from agent.http.console.shell import Page
from agent.http.console.words import number
from agent.http.needs import READ_SUBJECT, SHOW_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.judging import level_of
from agent.http.registry.shown import guid
from coordination.state.subject_types import RegisteredSchema, Subject, SubjectVersion
from objectstore.turns import in_turns

HERE: Final = "/console/schemas"
VERSIONS: Final = 100
"""Of a subject that are shown, the newest."""
TEXT_CHARS_MAX: Final = 100_000
"""Of a schema that are shown; the registry's API tells it whole."""


class Schemas:
    """Makes both pages."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def several(self, request: Request) -> Page:
        """Subjects that may be described."""
        parts, look = self._parts, asked(request)
        subjects = parts.replica.state.subjects.subjects
        found = await listed(subjects, look, lambda name: may_subject(parts, SHOW_SUBJECT, name))
        rows = [self._row(subjects[name]) for name in found.names if name in subjects]
        heads = ("Subject", "Type", "Newest#", "Versions#", "Compatibility")
        live = many((ways(HERE, look, found), table(heads, rows, "no such subject")))
        return Page("Schemas", HERE, live, form(HERE, look, "subject"))

    def _row(self, one: Subject) -> tuple[Content, ...]:
        subjects, live = self._parts.replica.state.subjects, one.live
        newest = live[-1] if live else None
        schema = None if newest is None else subjects.schemas.get(newest.schema_id)
        kind = None if schema is None else schema.schema_type
        version = "deleted" if newest is None else newest.version
        to = link(one.name, url("/console/schema", subject=one.name))
        return to, kind, version, number(len(live)), str(level_of(subjects, one.name))

    async def one(self, request: Request) -> Page:
        """Of a subject that may be described."""
        name = word(request, "subject")
        require_subject(self._parts, READ_SUBJECT, name)
        subjects = self._parts.replica.state.subjects
        subject = subjects.subjects.get(name)
        if subject is None or not subject.versions:
            raise Problem(404, f"subject {name!r} does not exist", "see the list of schemas")
        live = subject.live or list(subject.versions.values())
        wanted = whole(request, "version", live[-1].version)
        version = subject.versions.get(wanted)
        if version is None:
            raise Problem(404, f"subject {name!r} has no version {wanted}", "see its page for those it has")
        schema = subjects.schemas[version.schema_id]
        shown = list(subject.versions.values())[: -VERSIONS - 1 : -1]
        rows = [_version(name, each, subjects.schemas[each.schema_id]) for each in shown]
        text = await in_turns(in_pieces(schema.text[:TEXT_CHARS_MAX]))
        content = many(
            (
                *_told(version, schema, text),
                tag("h2", f"Versions ({len(subject.versions):,})"),
                table(("Version#", "Id#", "Type", "State"), rows),
            )
        )
        stays = offered(self._parts, name, "subject-level")
        return Page(f"Schema {name}", HERE, content, stays, refreshes=False)


def _told(version: SubjectVersion, schema: RegisteredSchema, text: Html) -> tuple[Content, ...]:
    facts: dict[str, Content] = {
        "Version": version.version,
        "Id": schema.schema_id,
        "Guid": guid(schema.identity),
        "Type": schema.schema_type,
        "Refers to": ", ".join(f"{each.name} ({each.subject} {each.version})" for each in schema.references)
        or None,
    }
    cut = len(schema.text) > TEXT_CHARS_MAX
    more = tag("p", f"The first {TEXT_CHARS_MAX:,} characters; the registry tells all.") if cut else None
    return pairs(facts), tag("pre", text), more


def _version(name: str, one: SubjectVersion, schema: RegisteredSchema) -> tuple[Content, ...]:
    to = link(str(one.version), url("/console/schema", subject=name, version=one.version))
    return to, one.schema_id, schema.schema_type, "deleted" if one.deleted else "live"
