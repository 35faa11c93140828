"""The jobs that publish tables to other catalogs, as configured."""

from __future__ import annotations

from collections.abc import Sequence

from agent.background.tables import warehouse_of
from agent.config import Config
from agent.config.catalogs import CatalogConfig
from coordination.replica import Replica
from iceberg.publish.glue import GlueCatalog, GlueOptions
from iceberg.publish.other import OtherCatalog
from iceberg.publish.plan import Rules
from iceberg.publish.publisher import Publisher, PublishOptions
from iceberg.publish.rest import RestCatalog, RestOptions
from iceberg.publish.sql import SqlCatalog, SqlOptions
from objectstore.store import ObjectStore


def publishers_of(config: Config, replica: Replica, store: ObjectStore) -> list[Publisher]:
    """One job for each of `catalogs`. Nothing is reached yet."""
    return [
        Publisher(replica, store, warehouse_of(config), other_catalog(each), _options(each))
        for each in config.catalogs
    ]


def late_of(publishers: Sequence[Publisher]) -> dict[str, dict[str, float]]:
    """Catalog → topic → seconds that its entry is behind, of the catalogs that this agent publishes to."""
    return {each.options.name: each.late() for each in publishers if each.publishes}


def _options(config: CatalogConfig) -> PublishOptions:
    return PublishOptions(
        name=config.name,
        kind=config.type,
        rules=Rules(config.namespace, config.topics),
        interval_s=config.interval_ms / 1000,
        check_s=config.check_s,
        retry_s_max=config.retry_ms_max / 1000,
        entries_per_pass_max=config.entries_per_pass_max,
        requests_in_flight_max=config.requests_in_flight_max,
        drops=config.replace == "drop",
    )


def other_catalog(config: CatalogConfig) -> OtherCatalog:
    """The client of one configured catalog. Nothing is reached yet."""
    timeout_s, most = config.timeout_ms / 1000, config.requests_in_flight_max
    if config.type == "sql":
        password = config.password.get_secret_value()
        name = config.catalog or config.name
        return SqlCatalog(SqlOptions(config.uri, name, config.user, password, timeout_s, most))
    if config.type == "glue":
        return GlueCatalog(
            GlueOptions(
                config.region,
                config.catalog,
                config.uri,
                config.access_key.get_secret_value(),
                config.secret_key.get_secret_value(),
                timeout_s,
                most,
            )
        )
    return RestCatalog(
        RestOptions(
            config.uri,
            config.warehouse,
            config.credential.get_secret_value(),
            config.token.get_secret_value(),
            config.oauth_uri,
            config.scope,
            {name: value.get_secret_value() for name, value in config.headers.items()},
            config.ca_file,
            timeout_s,
            most,
        )
    )
