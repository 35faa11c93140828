"""Entries in the AWS Glue Data Catalog, as Iceberg's GlueCatalog and pyiceberg write them.

UpdateTable with the version that was looked at is a compare-and-swap. Columns are shown to people and to
Athena's list of tables; engines read the metadata file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from iceberg.publish.other import (
    PAGES_S_MAX,
    CatalogAway,
    CatalogFailed,
    Entry,
    EntryChanged,
    EntryUnanswered,
    Key,
    Pointer,
)

TEXT_MAX = 300  # characters of what Glue says
_AWAY = {
    "ExpiredTokenException",
    "IncompleteSignature",
    "InternalServiceException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "OperationTimeoutException",
    "RequestExpired",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "ThrottlingException",
    "UnrecognizedClientException",
}
_DENIED = "AccessDeniedException"  # of one table or database: Lake Formation and IAM deny by resource
_TYPES = {
    "long": "bigint",
    "time": "string",
    "uuid": "string",
    "timestamptz": "timestamp",
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class GlueOptions:
    """`catalog_id`: the account's number; empty: that of the credentials. Empty keys: the environment's."""

    region: str
    catalog_id: str = ""
    endpoint: str = ""
    access_key: str = ""
    secret_key: str = ""
    timeout_s: float = 5.0
    connections_max: int = 4


class GlueCatalog:
    """See OtherCatalog. Threads share it. Names are in lower case there."""

    shows_metadata = True

    def __init__(self, options: GlueOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Any = None
        self.call_s_max = PAGES_S_MAX
        self._whose = {"CatalogId": options.catalog_id} if options.catalog_id else {}

    def spelled(self, key: Key) -> Key:
        return key[0].lower().replace(".", "_"), key[1].lower()

    def names(self, namespace: str) -> Mapping[str, str | None]:
        def pages(glue: Any) -> dict[str, str | None]:
            found: dict[str, str | None] = {}
            for page in glue.get_paginator("get_tables").paginate(DatabaseName=namespace, **self._whose):
                found.update({each["Name"]: _location(each) for each in page["TableList"]})
            return found

        return self._ask(pages, missing={})

    def look(self, key: Key) -> Entry | None:
        def table(glue: Any) -> Entry | None:
            found = glue.get_table(DatabaseName=key[0], Name=key[1], **self._whose)["Table"]
            return Entry(_location(found), str(found.get("VersionId", "")))

        return self._ask(table, missing=None)

    def create(self, key: Key, pointer: Pointer) -> None:
        given = _table_input(key[1], pointer, {})

        def created(glue: Any) -> bool:
            glue.create_table(DatabaseName=key[0], TableInput=given, **self._whose)
            return True

        if not self._ask(created, missing=False):
            with suppress(EntryChanged):  # another one of its tables may have made it meanwhile
                self._ask(
                    lambda glue: glue.create_database(DatabaseInput={"Name": key[0]}, **self._whose),
                    missing=None,
                )
            if not self._ask(created, missing=False):
                raise EntryChanged(f"database {key[0]} is gone meanwhile")

    def replace(self, key: Key, entry: Entry, pointer: Pointer) -> None:
        given = _table_input(key[1], pointer, {"previous_metadata_location": entry.location})

        def replaced(glue: Any) -> bool:
            glue.update_table(
                DatabaseName=key[0],
                TableInput=given,
                SkipArchive=True,
                VersionId=entry.version,
                **self._whose,
            )
            return True

        if not entry.version:
            raise CatalogFailed(f"{'.'.join(key)}: Glue says no version of it, so it cannot be compared")
        if not self._ask(replaced, missing=False):
            raise EntryChanged(f"{'.'.join(key)} is gone meanwhile")

    def drop(self, key: Key, entry: Entry) -> None:
        self._ask(
            lambda glue: glue.delete_table(DatabaseName=key[0], Name=key[1], **self._whose), missing=None
        )

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _ask(self, ask: Callable[[Any], _T], missing: _T) -> _T:
        """What `ask` returns of the client; `missing` where there is no such table or database."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return ask(self._opened())
        except ClientError as error:
            code, said = str(error.response["Error"].get("Code", "")), str(error)[:TEXT_MAX]
            if code == "EntityNotFoundException":
                return missing
            if code in ("AlreadyExistsException", "ConcurrentModificationException"):
                raise EntryChanged(said) from error
            if code == _DENIED:
                raise EntryUnanswered(
                    f"{said} (look at what its keys may, in IAM and Lake Formation)"
                ) from error
            if code in _AWAY or error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                raise CatalogAway(f"{said} (look at its keys and region in the configuration)") from error
            raise CatalogFailed(said) from error
        except BotoCoreError as error:
            raise CatalogAway(
                f"Glue is not reached: {type(error).__name__}: {str(error)[:TEXT_MAX]}"
            ) from error

    def _opened(self) -> Any:
        import boto3
        from botocore.config import Config

        with self._lock:
            if self._client is None:
                options = self._options
                self._client = boto3.session.Session().client(
                    "glue",
                    region_name=options.region,
                    endpoint_url=options.endpoint or None,
                    aws_access_key_id=options.access_key or None,
                    aws_secret_access_key=options.secret_key or None,
                    config=Config(
                        connect_timeout=options.timeout_s,
                        read_timeout=options.timeout_s,
                        retries={"total_max_attempts": 1},
                        max_pool_connections=options.connections_max,
                    ),
                )
            return self._client


def _location(table: Mapping[str, Any]) -> str:
    """Where an entry points; empty for what is no Iceberg table."""
    parameters = table.get("Parameters") or {}
    is_iceberg = str(parameters.get("table_type", "")).upper() == "ICEBERG"
    return str(parameters.get("metadata_location", "")) if is_iceberg else ""


def _table_input(name: str, pointer: Pointer, more: Mapping[str, str]) -> dict[str, Any]:
    found = pointer.metadata
    fields: list[dict[str, Any]] = next(
        (each["fields"] for each in found["schemas"] if each["schema-id"] == found["current-schema-id"]), []
    )
    return {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {"table_type": "ICEBERG", "metadata_location": pointer.location, **more},
        "StorageDescriptor": {"Columns": [_column(each) for each in fields], "Location": found["location"]},
    }


def _column(field: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {
        "iceberg.field.id": str(field["id"]),
        "iceberg.field.optional": str(not field["required"]).lower(),
        "iceberg.field.current": "true",
    }
    return {"Name": field["name"], "Type": glue_type(field["type"]), "Parameters": parameters}


def glue_type(kind: str | Mapping[str, Any]) -> str:
    """An Iceberg type, as its JSON has it, in the words of Glue (Iceberg's IcebergToGlueConverter)."""
    if isinstance(kind, str):
        if kind.startswith("fixed"):
            return "binary"
        return _TYPES.get(kind, kind.replace(" ", ""))
    match kind["type"]:
        case "struct":
            inner = (f"{each['name']}:{glue_type(each['type'])}" for each in kind["fields"])
            return f"struct<{','.join(inner)}>"
        case "list":
            return f"array<{glue_type(kind['element'])}>"
        case _:
            return f"map<{glue_type(kind['key'])},{glue_type(kind['value'])}>"
