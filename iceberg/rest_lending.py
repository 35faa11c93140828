"""Storage access for one table: keys of the store that read its folder, for a while, and nothing else.

What the specification calls vended credentials. Who lends them is the agent (`Lender`), as stores differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from iceberg.rest_errors import forbidden
from iceberg.rest_locations import PATHS
from iceberg.warehouse import OutsideWarehouse

if TYPE_CHECKING:
    from iceberg.rest_locations import Locations
    from iceberg.rest_pointers import Key

DELEGATION_HEADER: Final = "X-Iceberg-Access-Delegation"
VENDED: Final = "vended-credentials"
REFRESH: Final = "client.refresh-credentials-endpoint"
"""Where Java's S3FileIO fetches new keys when its own are about to end: relative to the catalog's URI."""
LEVELS: Final = "\x1f"


class Lender(Protocol):
    """Whoever lends keys."""

    async def lend(self, principal: str, folders: Sequence[str]) -> Mapping[str, str]:
        """Properties, under Iceberg's names, by which a client reads these folders (locations).

        Raises StoreError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lending:
    """Of one catalog."""

    lender: Lender
    locations: Locations

    async def added(self, loaded: Mapping[str, Any], key: Key, principal: str) -> dict[str, Any]:
        """A LoadTableResult with storage access."""
        credentials = await self.credentials(loaded["metadata"], key, principal)
        config = credentials[0]["config"]
        return {
            **loaded,
            "config": {**loaded["config"], **config, REFRESH: _refresh(key)},
            "storage-credentials": credentials,
        }

    async def credentials(
        self, metadata: Mapping[str, Any], key: Key, principal: str
    ) -> list[dict[str, Any]]:
        """One for each folder. Raises CatalogError 403, StoreError."""
        folders = self._folders(metadata, key)
        lent = dict(await self.lender.lend(principal, folders))
        return [{"prefix": folder, "config": lent} for folder in folders]

    def _folders(self, metadata: Mapping[str, Any], key: Key) -> list[str]:
        """Where the table's files are, as far as that is below the warehouse and no other table's."""
        properties = metadata.get("properties") or {}
        found = []
        for location in (metadata["location"], *(properties.get(each) for each in PATHS)):
            if not location:
                continue
            with suppress(OutsideWarehouse):
                folder = self.locations.folder(location)
                self._require_own(folder, key)
                found.append(folder)
        if not found:
            raise forbidden(f"{'.'.join(key)} is not below the warehouse: no keys are lent for its files")
        own = dict.fromkeys(found)
        return [each for each in own if not any(each != one and each.startswith(one) for one in own)]

    def _require_own(self, folder: str, key: Key) -> None:
        other = self.locations.neighbour(folder, key)
        if other is not None:
            raise forbidden(
                f"no keys are lent for {folder} of {'.'.join(key)}: table {other.namespace}.{other.name} has "
                "files there too"
            )


def _refresh(key: Key) -> str:
    namespace = quote(LEVELS.join(key[0].split(".")), safe="")
    return f"v1/namespaces/{namespace}/tables/{quote(key[1], safe='')}/credentials"
