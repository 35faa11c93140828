"""Keys of the bucket that the catalog lends its clients, as configured (`catalog.vending_…`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.config import Config
from agent.dependencies import keys_of_store
from coordination.clock import Clock
from iceberg.warehouse import s3_client_config
from objectstore.credentials import Keys, Role
from objectstore.store import StoreError

if TYPE_CHECKING:
    from objectstore.lending import KeyLender

EXPIRES_AT = "s3.session-token-expires-at-ms"
"""When the keys end, Unix milliseconds, as Iceberg's S3FileIO is told."""


class CatalogLender:
    """Lends keys of the store's bucket (iceberg/rest_lending.py)."""

    def __init__(self, config: Config, lender: KeyLender) -> None:
        self._config, self._lender = config, lender

    async def lend(self, principal: str, folders: Sequence[str]) -> Mapping[str, str]:
        """See iceberg.rest_lending.Lender."""
        store = self._config.store
        lent = await self._lender.lend(principal, [_parted(each)[1] for each in folders])
        found = s3_client_config(
            endpoint=store.endpoint,
            access_key=lent.access,
            secret_key=lent.secret,
            session_token=lent.token,
            region=store.region,
        )
        return {**found, EXPIRES_AT: str(lent.expires_ms)}


def lender_of(config: Config, clock: Clock) -> CatalogLender | None:
    """None where no keys are lent."""
    catalog, store = config.catalog, config.store
    if not catalog.vending_role_arn:
        return None
    from objectstore.lending import Bounds, KeyLender  # boto3 costs memory, which others do not pay

    role = Role(
        arn=catalog.vending_role_arn,
        url=catalog.vending_sts_url or store.endpoint,
        region=store.region,
        keys=partial(_told, keys_of_store(config, clock)),
        duration_s=catalog.vending_s,
        timeout_s=catalog.vending_timeout_ms / 1000,
        ca_file=store.ca_file,
    )
    bounds = Bounds(catalog.vending_in_flight_max, catalog.vending_entries_max)
    return CatalogLender(config, KeyLender(role, _parted(store.url)[0], bounds, clock.now_ms))


def _told(keys: Callable[[], Keys | None]) -> Keys | None:
    """The agent's own, as they are now; None: the environment's. Raises StoreError."""
    try:
        return keys()
    except (OSError, ValueError) as error:
        raise StoreError(f"the keys that others are lent by cannot be read: {error}") from error


def _parted(location: str) -> tuple[str, str]:
    """Bucket and key of a location."""
    bucket, _, key = location.partition("://")[2].partition("/")
    return bucket, key
