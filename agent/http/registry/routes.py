"""Which path of Confluent's API is served by what. Subjects may hold slashes: longer paths come first."""

from __future__ import annotations

from starlette.routing import Route

from agent.http.asking import asking
from agent.http.parts import Parts
from agent.http.registry.about import AboutRoutes
from agent.http.registry.deletes import DeleteRoutes
from agent.http.registry.errors import Handler, told
from agent.http.registry.impact import ImpactRoutes
from agent.http.registry.judging import Reader
from agent.http.registry.requests import scope_of
from agent.http.registry.schemas import SchemaRoutes
from agent.http.registry.settings import SettingRoutes
from agent.http.registry.subjects import SubjectRoutes
from agent.http.registry.writes import WriteRoutes


def registry_routes(parts: Parts) -> list[Route]:
    """The registry's routes, and the same of one context under /contexts/{context}.

    No Mount: metrics are labelled by a route's template, and a mount would put the context's name into it.
    """
    subjects = SubjectRoutes(parts)
    table = _table(parts, subjects)
    inside = [(method, f"/contexts/{{context}}{path}", handler) for method, path, handler in table]
    rows = [*table, ("GET", "/contexts", subjects.contexts), *inside]
    return [
        Route(path, told(asking(parts, method, path, handler, scope_of)), methods=[method])
        for method, path, handler in rows
    ]


def _table(parts: Parts, subjects: SubjectRoutes) -> list[tuple[str, str, Handler]]:
    schemas, about, reader = SchemaRoutes(parts), AboutRoutes(parts), Reader()
    writes, touched = WriteRoutes(parts, reader), ImpactRoutes(parts, reader)
    deletes, settings = DeleteRoutes(parts), SettingRoutes(parts)
    subject = "/subjects/{subject:path}"
    version = f"{subject}/versions/{{version}}"
    tested = "/compatibility/subjects/{subject:path}/versions"
    return [
        ("GET", "/subjects", subjects.subjects),
        ("GET", f"{version}/schema", subjects.schema),
        ("GET", f"{version}/referencedby", subjects.referencedby),
        ("GET", version, subjects.version),
        ("DELETE", version, deletes.version),
        ("GET", f"{subject}/versions", subjects.versions),
        ("GET", f"{subject}/metadata", subjects.with_metadata),
        ("POST", f"{subject}/versions", writes.register),
        ("POST", subject, writes.look_up),
        ("DELETE", subject, deletes.subject),
        ("GET", "/schemas/types", schemas.types),
        ("GET", "/schemas/ids/{id}/schema", schemas.text),
        ("GET", "/schemas/ids/{id}/subjects", schemas.subjects),
        ("GET", "/schemas/ids/{id}/versions", schemas.versions),
        ("GET", "/schemas/ids/{id}", schemas.schema),
        ("GET", "/schemas/guids/{guid}/ids", schemas.ids),
        ("GET", "/schemas/guids/{guid}", schemas.by_guid),
        ("GET", "/schemas", subjects.schemas),
        ("POST", f"{tested}/{{version}}", writes.test_one),
        ("POST", tested, writes.test_all),
        ("POST", "/admin/subjects/{subject:path}/rules", writes.rules),
        ("POST", f"/admin{subject}/impact", touched.impact),
        ("GET", "/v1/metadata/id", about.scope),
        ("GET", "/v1/metadata/version", about.version),
        *_settings(settings),
    ]


def _settings(settings: SettingRoutes) -> list[tuple[str, str, Handler]]:
    return [
        row
        for end in ("", "/{subject:path}")
        for row in (
            ("GET", f"/config{end}", settings.config),
            ("PUT", f"/config{end}", settings.put_config),
            ("DELETE", f"/config{end}", settings.delete_config),
            ("GET", f"/mode{end}", settings.mode),
            ("PUT", f"/mode{end}", settings.put_mode),
            ("DELETE", f"/mode{end}", settings.delete_mode),
        )
    ]
