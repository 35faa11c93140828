"""Where tables live: full locations (what Iceberg metadata names) ↔ keys of the store."""

from __future__ import annotations

from dataclasses import dataclass

from objectstore.naming import key_below


class OutsideWarehouse(ValueError):
    """The location is not below the store's root: this agent can neither read nor write it."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """`root` is the store's URL (file:///abs/dir, s3://bucket/prefix); tables live in `folder` below it."""

    root: str
    folder: str = "tables"

    @classmethod
    def of(cls, store_url: str, warehouse_url: str) -> Warehouse:
        """The warehouse at `warehouse_url`, which must lie below the store's URL. Raises OutsideWarehouse."""
        root, url = store_url.rstrip("/"), warehouse_url.rstrip("/")
        if not url.startswith(f"{root}/"):
            raise OutsideWarehouse(f"warehouse {url} is not below the store {root}")
        return cls(root, url.removeprefix(f"{root}/"))

    @property
    def location(self) -> str:
        """The warehouse's own URL, without a slash at its end."""
        return f"{self.root}/{self.folder}"

    def locate(self, key: str) -> str:
        """The full location of a key."""
        return f"{self.root}/{key}"

    def key(self, location: str) -> str:
        """The key of a full location. Raises OutsideWarehouse."""
        found = key_below(self.root, location)
        if found is None:
            raise OutsideWarehouse(f"{location} is not below {self.root}")
        return found


def s3_client_config(
    *, endpoint: str, access_key: str, secret_key: str, region: str, session_token: str = ""
) -> dict[str, str]:
    """Storage access for clients of the catalog (Iceberg's S3 property names); what is empty is left out."""
    config = {
        "s3.endpoint": endpoint,
        "s3.access-key-id": access_key,
        "s3.secret-access-key": secret_key,
        "s3.session-token": session_token,
        "s3.region": region,
        "client.region": region,
        "s3.path-style-access": "true" if endpoint else "",
    }
    return {name: value for name, value in config.items() if value}
