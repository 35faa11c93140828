"""Metadata of views as plain dicts (Iceberg's view spec, version 1): made, changed, and checked. Pure.

A view's pointer stands among the tables' in the state, so that a name is of one of them; the name of its
metadata file tells which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pyiceberg.view.metadata import ViewMetadata

from iceberg.rest_errors import CatalogError, bad_request, commit_failed, forbidden
from iceberg.rest_refusals import REFUSALS

View = dict[str, Any]

FORMAT_VERSION = 1
VERSIONS_DEFAULT = 10
VERSIONS_MAX = 1_000  # that `version.history.num-entries` may keep
UPDATES_MAX = 1_000  # of one commit
VERSIONS_PROPERTY = "version.history.num-entries"
DROP_DIALECT_PROPERTY = "replace.drop-dialect.allowed"
OWN_PREFIX = "floe."

_LAST = -1  # in a commit: what was added last


def created(request: Mapping[str, Any], location: str, uuid: str, now_ms: int) -> View:
    """The first metadata of a view. Raises CatalogError 400 and 403."""
    empty: View = {
        "view-uuid": uuid,
        "format-version": FORMAT_VERSION,
        "location": location,
        "schemas": [],
        "current-version-id": 0,
        "versions": [],
        "version-log": [],
        "properties": {},
    }
    version = _object(request, "view-version")
    updates = [
        {"action": "set-properties", "updates": request.get("properties") or {}},
        {"action": "add-schema", "schema": {**_object(request, "schema"), "schema-id": 0}},
        {"action": "add-view-version", "view-version": {**version, "version-id": 1, "schema-id": _LAST}},
        {"action": "set-current-view-version", "view-version-id": _LAST},
    ]
    return changed(empty, updates, now_ms)


def require(base: View, requirements: Iterable[Mapping[str, Any]]) -> None:
    """Raises CatalogError 409 for a requirement that does not hold, 400 for one that is not known."""
    for each in requirements:
        if each.get("type") != "assert-view-uuid":
            raise bad_request(f"requirement {each.get('type')!r}: a view knows assert-view-uuid")
        if str(each.get("uuid")) != base["view-uuid"]:
            raise commit_failed(
                f"Requirement failed: view UUID does not match: expected {each.get('uuid')} != "
                f"{base['view-uuid']}"
            )


def changed(base: View, updates: Sequence[Mapping[str, Any]], now_ms: int) -> View:
    """The metadata after the updates. Raises CatalogError 400 and 403."""
    if len(updates) > UPDATES_MAX:
        raise bad_request(f"{len(updates)} updates: one commit has {UPDATES_MAX} at most")
    work = _Work(base, now_ms)
    for each in updates:
        do = _UPDATES.get(str(each.get("action")))
        if do is None:
            raise bad_request(f"update {each.get('action')!r}: a view knows {', '.join(sorted(_UPDATES))}")
        do(work, each)
    found = work.finished()
    try:
        ViewMetadata.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise bad_request(f"view metadata: {place}: {first['msg']}") from error
    except REFUSALS as error:
        raise bad_request(f"view metadata: {error}") from error
    return found


class _Work:
    """Metadata under change, and what was added last."""

    def __init__(self, base: View, now_ms: int) -> None:
        self.view: View = {
            **base,
            "schemas": list(base["schemas"]),
            "versions": list(base["versions"]),
            "version-log": list(base["version-log"]),
            "properties": dict(base.get("properties") or {}),
        }
        self._before = _version(base, base["current-version-id"])
        self._now_ms = now_ms
        self._schema: int | None = None
        self._added: int | None = None

    def assign_uuid(self, update: Mapping[str, Any]) -> None:
        """Which a view keeps for ever."""
        if str(update.get("uuid")) != self.view["view-uuid"]:
            raise bad_request("Cannot reassign uuid")

    def upgrade(self, update: Mapping[str, Any]) -> None:
        """There is one version of the format."""
        if update.get("format-version") != FORMAT_VERSION:
            raise bad_request(f"format-version {update.get('format-version')}: views have {FORMAT_VERSION}")

    def set_location(self, update: Mapping[str, Any]) -> None:
        """Where later metadata goes."""
        location = update.get("location")
        if not isinstance(location, str) or not location:
            raise bad_request(f"set-location: {location!r} is no location")
        self.view["location"] = location.rstrip("/")

    def set_properties(self, update: Mapping[str, Any]) -> None:
        """Also those that there are."""
        given = update.get("updates")
        if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
            raise bad_request("set-properties: updates is an object of strings")
        _refuse_own(given)
        self.view["properties"].update(given)

    def remove_properties(self, update: Mapping[str, Any]) -> None:
        """Those that are not there are passed over."""
        removals = update.get("removals") or []
        if not isinstance(removals, list) or not all(isinstance(each, str) for each in removals):
            raise bad_request("remove-properties: removals is a list of strings")
        _refuse_own(removals)
        for each in removals:
            self.view["properties"].pop(each, None)

    def add_schema(self, update: Mapping[str, Any]) -> None:
        """One that is there already is not added again."""
        given = _object(update, "schema")
        fields = given.get("fields")
        same = [each["schema-id"] for each in self.view["schemas"] if each["fields"] == fields]
        last = max((each["schema-id"] for each in self.view["schemas"]), default=-1)
        number = same[0] if same else last + 1
        if not same:
            self.view["schemas"].append({**given, "schema-id": number})
        self._schema = number

    def add_version(self, update: Mapping[str, Any]) -> None:
        """One that is there already, but for its time, is not added again."""
        given = _object(update, "view-version")
        if not isinstance(given.get("timestamp-ms"), int):
            raise bad_request("view-version: timestamp-ms is a whole number")
        if given.get("schema-id") == _LAST:
            if self._schema is None:
                raise bad_request("Cannot set last added schema: no schema has been added")
            given["schema-id"] = self._schema
        if given.get("schema-id") not in [each["schema-id"] for each in self.view["schemas"]]:
            raise bad_request(f"Cannot add version with unknown schema: {given.get('schema-id')}")
        dialects = _dialects(given)
        for each in dialects:
            if dialects.count(each) > 1:
                told = f"Invalid view version: Cannot add multiple queries for dialect {each}"
                raise CatalogError(400, "IllegalArgumentException", told)  # as Java's clients expect it
        for each in self.view["versions"]:
            if _content(each) == _content(given):
                self._added = each["version-id"]
                return
        known = [each["version-id"] for each in self.view["versions"]]
        wanted = given.get("version-id")
        fresh = isinstance(wanted, int) and 0 < wanted < 2**31 - 1 and wanted > max(known, default=0)
        given["version-id"] = self._added = wanted if fresh else max(known, default=0) + 1
        self.view["versions"].append(given)

    def set_current(self, update: Mapping[str, Any]) -> None:
        """Of versions that there are."""
        number = update.get("view-version-id")
        if number == _LAST:
            if self._added is None:
                raise bad_request("Cannot set last version id: no current version id has been set")
            number = self._added
        found = _version(self.view, number)
        if found is None:
            raise bad_request(f"Cannot set current version to unknown version: {number}")
        if number != self.view["current-version-id"]:
            self.view["current-version-id"] = number
            at_ms = found["timestamp-ms"] if number == self._added else self._now_ms
            self.view["version-log"].append({"timestamp-ms": at_ms, "version-id": number})

    def finished(self) -> View:
        """With as many versions as it shall keep. Raises CatalogError 400."""
        current = _version(self.view, self.view["current-version-id"])
        if current is None:
            raise bad_request("Invalid view: no versions were added")
        allowed = self.view["properties"].get(DROP_DIALECT_PROPERTY, "false").lower() == "true"
        if self._before is not None and not allowed:
            lost = sorted(set(_dialects(self._before)) - set(_dialects(current)))
            if lost:
                raise bad_request(
                    f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_PROPERTY}=false): "
                    f"{', '.join(lost)}"
                )
        return _expired(self.view)


_UPDATES: Mapping[str, Callable[[_Work, Mapping[str, Any]], None]] = {
    "assign-uuid": _Work.assign_uuid,
    "upgrade-format-version": _Work.upgrade,
    "set-location": _Work.set_location,
    "set-properties": _Work.set_properties,
    "remove-properties": _Work.remove_properties,
    "add-schema": _Work.add_schema,
    "add-view-version": _Work.add_version,
    "set-current-view-version": _Work.set_current,
}


def _expired(view: View) -> View:
    """Without the oldest versions, the history before them, and schemas that no version has."""
    told = view["properties"].get(VERSIONS_PROPERTY, str(VERSIONS_DEFAULT))
    if not told.isdecimal() or not 1 <= int(told) <= VERSIONS_MAX:
        raise bad_request(f"{VERSIONS_PROPERTY} {told!r}: a number from 1 to {VERSIONS_MAX}")
    newest = sorted(view["versions"], key=lambda each: each["version-id"], reverse=True)[: int(told)]
    ids = {each["version-id"] for each in newest} | {view["current-version-id"]}
    versions = [each for each in view["versions"] if each["version-id"] in ids]
    log = view["version-log"][-VERSIONS_MAX:]
    first = max((at + 1 for at, each in enumerate(log) if each["version-id"] not in ids), default=0)
    schemas = {each["schema-id"] for each in versions}
    return {
        **view,
        "versions": versions,
        "version-log": log[first:],
        "schemas": [each for each in view["schemas"] if each["schema-id"] in schemas],
    }


def _content(version: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        version.get("schema-id"),
        version.get("summary"),
        version.get("representations"),
        version.get("default-catalog"),
        version.get("default-namespace"),
    )


def _dialects(version: Mapping[str, Any]) -> list[str]:
    found = version.get("representations")
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise bad_request("view-version: representations is a list of queries, of at least one")
    return [str(each.get("dialect", "")).lower() for each in found]


def _version(view: View, number: object) -> dict[str, Any] | None:
    return next((each for each in view["versions"] if each["version-id"] == number), None)


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name)
    if not isinstance(found, dict):
        raise bad_request(f"{name}: an object is needed")
    return dict(found)


def _refuse_own(names: Iterable[str]) -> None:
    own = sorted(name for name in names if name.startswith(OWN_PREFIX))
    if own:
        raise forbidden(f"properties {', '.join(own)}: names that begin with {OWN_PREFIX} are Floe's own")
