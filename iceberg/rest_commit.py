"""Applies another engine's requirements and updates to a table's metadata. Pure, on pyiceberg's models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataUtil,
    TableMetadataV1,
    TableMetadataV3,
    new_table_metadata,
)
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import IcebergBaseModel

from iceberg import ledger, lineage, rest_ids, rest_stamps
from iceberg.rest_errors import bad_request, commit_failed, forbidden
from iceberg.rest_refs import is_ref
from iceberg.rest_refusals import REFUSALS

FORMAT_VERSION_MAX = 3
OWN_PREFIX = "floe."
ENGINE_NAME_MAX = 100  # characters


def parse_commit(body: Mapping[str, Any]) -> CommitTableRequest:
    """The request of a commit. Raises CatalogError 400."""
    try:
        return CommitTableRequest.model_validate({"identifier": _NO_IDENTIFIER, **body})
    except REFUSALS as error:
        raise bad_request(f"commit request: {_first(error)}") from error


_NO_IDENTIFIER = {"namespace": [], "name": "-"}


def is_creation(request: CommitTableRequest) -> bool:
    """Whether the commit makes a new table (a staged creation)."""
    return any(isinstance(each, AssertCreate) for each in request.requirements)


def apply(
    request: CommitTableRequest, base: Mapping[str, Any] | None, location: str | None, now_ms: int
) -> dict[str, Any]:
    """The metadata after the commit. `base` is the table at `location`, None when there is none; `now_ms` the
    cluster's clock.

    Raises CatalogError: 409 when a requirement does not hold, or a snapshot was made on an older table; 400
    for updates that make no sense, 403 for changes of Floe's own properties.
    """
    current = require(request, base)
    rest_stamps.require_loadable(request, base, now_ms)
    row_id = _next_row_id(request, current)
    empty = TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())
    updates = tuple(_there(rest_ids.settled(request.updates, current), current))
    upgrades = [*filter(_is_upgrade, updates)]
    try:
        updated = update_table_metadata(
            _upgraded(current or empty) if upgrades else current or empty,
            tuple(each for each in updates if each not in upgrades),
            enforce_validation=current is None,
            metadata_location=location,
        )
        content = _dump(updated, row_id)
    except REFUSALS as error:
        raise bad_request(f"the updates cannot be applied: {error}") from error
    return rest_stamps.stamped(content, request, base, location, now_ms)


def _there(updates: Iterable[TableUpdate], current: TableMetadata | None) -> Iterator[TableUpdate]:
    """The updates, of properties to remove only those that there are: the reference ignores others."""
    names = set(current.properties) if current is not None else set()
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            names |= update.updates.keys()
        if isinstance(update, RemovePropertiesUpdate):
            removals = [each for each in dict.fromkeys(update.removals) if each in names]
            names -= {*removals}
            yield update.model_copy(update={"removals": removals})
        else:
            yield update


def _is_upgrade(update: TableUpdate) -> bool:
    """Whether a table becomes one of format version 3 by it, which pyiceberg 0.12 does not apply."""
    return isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == lineage.VERSION


def _upgraded(found: TableMetadata) -> TableMetadata:
    """The table as one of format version 3."""
    told = {**dict(found), "format_version": lineage.VERSION}
    return found if isinstance(found, TableMetadataV3) else TableMetadataV3.model_construct(**told)


def _next_row_id(request: CommitTableRequest, current: TableMetadata | None) -> int:
    """The first id that no row has after the commit, of a table of format version 3 (lineage.py).

    Raises CatalogError 409 where a snapshot was made on an older table, so that engines make it anew, and 400
    where it does not say which ids it gave.
    """
    row_id = 0
    numbers = any(
        isinstance(each, UpgradeFormatVersionUpdate) and each.format_version >= 3 for each in request.updates
    )
    if isinstance(current, TableMetadataV3):
        numbers, row_id = True, current.next_row_id or 0
    if not numbers:
        return row_id
    for update in request.updates:
        if not isinstance(update, AddSnapshotUpdate):
            continue
        given = update.snapshot
        if given.first_row_id is None or given.added_rows is None or given.added_rows < 0:
            raise bad_request(
                f"snapshot {given.snapshot_id} of a v3 table has no first-row-id and added-rows"
            )
        if given.first_row_id < row_id:
            raise commit_failed(
                f"Requirement failed: first-row-id {given.first_row_id}, the table is at {row_id}"
            )
        row_id = given.first_row_id + given.added_rows
    return row_id


def require(request: CommitTableRequest, base: Mapping[str, Any] | None) -> TableMetadata | None:
    """The table that the commit is made to, once it may be. Raises CatalogError 409 and 403."""
    _check_properties(request)
    current = _model(base) if base is not None else None
    try:
        for requirement in request.requirements:
            requirement.validate(current)
    except CommitFailedException as error:
        raise commit_failed(_unmet(requirement, error)) from error
    except REFUSALS as error:
        raise bad_request(f"requirement {requirement.type}: {error}") from error
    return current


def replacement(request: CommitTableRequest) -> Snapshot | None:
    """The snapshot of a commit that does nothing but to make it the table, and to replace what is there."""
    given: Snapshot | None = None
    for update in request.updates:
        match update:
            case AddSnapshotUpdate() if given is None:
                given = update.snapshot
            case SetSnapshotRefUpdate() if given is not None:
                named = update.ref_name, update.type, update.snapshot_id
                if named != ("main", "branch", given.snapshot_id):
                    return None
            case _:
                return None
    replaces = (
        given is not None and given.summary is not None and given.summary.operation is Operation.REPLACE
    )
    return given if replaces else None


def engine_of(snapshot: Snapshot) -> str:
    """Which engine made a snapshot, as it says."""
    told = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return told.get("engine-name", "")[:ENGINE_NAME_MAX] or "an engine"


_UNMET = {
    AssertCreate: "table already exists",
    AssertTableUUID: "UUID does not match",
    AssertLastAssignedFieldId: "last assigned field id changed",
    AssertCurrentSchemaId: "current schema changed",
    AssertLastAssignedPartitionId: "last assigned partition id changed",
    AssertDefaultSpecId: "default partition spec changed",
    AssertDefaultSortOrderId: "default sort order changed",
}
"""What the reference says of a requirement that does not hold (UpdateRequirement.java)."""


def _unmet(requirement: TableRequirement, error: CommitFailedException) -> str:
    words = _UNMET.get(type(requirement))
    detail = str(error).rpartition(": ")[2]
    return str(error) if words is None else f"Requirement failed: {words}: {detail}"


def create(request: CreateTableRequest, location: str, now_ms: int) -> dict[str, Any]:
    """The first metadata of a table. `now_ms`: the cluster's clock. Raises CatalogError 400 and 403."""
    properties = dict(request.properties)
    _refuse_own(properties)
    try:
        found = new_table_metadata(
            request.table_schema,
            request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            request.write_order or UNSORTED_SORT_ORDER,
            location,
            properties,
        )
        content = {**_dump(found, 0), "last-updated-ms": now_ms}
    except REFUSALS as error:
        raise bad_request(f"table {request.name}: {error}") from error
    if found.format_version < lineage.VERSION:
        return content
    given = json.loads(request.table_schema.model_dump_json())
    return {**content, "schemas": [rest_ids.with_defaults(each, given) for each in content["schemas"]]}


def parse_create(body: Mapping[str, Any]) -> CreateTableRequest:
    """The request of a creation. Raises CatalogError 400."""
    try:
        return CreateTableRequest.model_validate({**_UNSAID, **body})
    except REFUSALS as error:
        raise bad_request(f"create request: {_first(error)}") from error


_UNSAID = {"location": None, "partition-spec": None, "write-order": None, "stage-create": False}


def guard_topic_table(request: CommitTableRequest, topic: str) -> None:
    """A topic's table takes properties, tags and branches (rest_refs.py), and replacements (foreign.py).

    Raises CatalogError 403 for anything else, 400 for refs that cannot be.
    """
    if replacement(request) is not None:
        return
    for update in request.updates:
        if not isinstance(update, SetPropertiesUpdate | RemovePropertiesUpdate) and not is_ref(update):
            raise forbidden(
                f"{update.action} refused: this table is written by Floe alone, from topic {topic!r}; "
                "properties, tags and branches may be set, and files be rewritten with the same rows "
                f"(operation replace). {_REMEDIES.get(update.action, _ELSEWHERE)}"
            )


def guard_latest_table(request: CommitTableRequest, topic: str) -> None:
    """The table of a topic's newest rows takes properties. Raises CatalogError 403 for anything else."""
    for update in request.updates:
        if not isinstance(update, SetPropertiesUpdate | RemovePropertiesUpdate):
            raise forbidden(
                f"{update.action} refused: this table is written by Floe alone, from topic {topic!r}; "
                f"properties may be set. {_ELSEWHERE}"
            )


_ELSEWHERE = "What shall be changed or deleted belongs into the topic, or into a table of your own"
_COLUMNS = "Its columns follow the message that is bound to the topic (floe topic bind)"
_SORTED = "It is sorted as its topic's config floe.table.sort says (floe topic config)"
_PARTITIONED = "It is partitioned as its topic's config floe.table.partition says (floe topic config)"
_REMEDIES = {
    "remove-snapshots": "For a shorter history set its property history.expire.max-snapshot-age-ms",
    "add-schema": _COLUMNS,
    "set-current-schema": _COLUMNS,
    "add-spec": _PARTITIONED,
    "set-default-spec": _PARTITIONED,
    "add-sort-order": _SORTED,
    "set-default-sort-order": _SORTED,
    "upgrade-format-version": f"It has the format version that its topic's config {lineage.CONFIG} says",
}


def _check_properties(request: CommitTableRequest) -> None:
    for update in request.updates:
        if isinstance(update, SetPropertiesUpdate):
            _refuse_own(update.updates)
        if isinstance(update, RemovePropertiesUpdate):
            _refuse_own(dict.fromkeys(update.removals))


def _refuse_own(properties: Mapping[str, object]) -> None:
    own = sorted(name for name in properties if name.startswith(OWN_PREFIX))
    if own:
        raise forbidden(f"properties {', '.join(own)}: names that begin with {OWN_PREFIX} are Floe's own")


def topic_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """(topic id in hexadecimal, topic) whose table this is; empty for any other table."""
    properties = metadata.get("properties") or {}
    return ledger.owner(metadata), str(properties.get(ledger.TOPIC_PROPERTY, ""))


def _model(metadata: Mapping[str, Any]) -> TableMetadata:
    if metadata.get("encryption-keys"):
        raise bad_request("the table has encryption keys, which this catalog would lose: it takes no commits")
    try:
        return TableMetadataUtil.parse_raw(json.dumps(metadata))
    except REFUSALS as error:
        raise bad_request(f"the table's metadata cannot be read: {_first(error)}") from error


def _dump(found: TableMetadata, row_id: int) -> dict[str, Any]:
    """The metadata as it is stored. `row_id`: the first that no row has, of format version 3."""
    if found.format_version > FORMAT_VERSION_MAX:
        raise bad_request(
            f"format-version {found.format_version}: this catalog commits tables up to {FORMAT_VERSION_MAX}"
        )
    # pyiceberg's own method refuses version 3, which its models have all the same.
    content: dict[str, Any] = json.loads(IcebergBaseModel.model_dump_json(found, exclude_none=True))
    return {**content, lineage.NEXT: row_id} if found.format_version >= lineage.VERSION else content


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(str(each) for each in first['loc'])}: {first['msg']}"
