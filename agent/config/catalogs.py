"""The section that says to which other catalogs tables are published (docs/catalogs.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from agent.config.base import Section
from agent.config.sections import NAME_PATTERN

NAMESPACE_PATTERN = r"^([A-Za-z0-9_.-]|\{namespace\}){1,255}$"


class CatalogConfig(Section):
    """Another catalog that topics' tables are published to. Give all agents the same (docs/catalogs.md)."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Name of the catalog in metrics, /status and messages."""

    type: Literal["rest", "sql", "glue"]
    """`rest`: an Iceberg REST catalog. `sql`: a database as Iceberg's JDBC catalog and pyiceberg's use it.
    `glue`: the AWS Glue Data Catalog."""

    uri: str = ""
    """`rest`: URL without `/v1`. `sql`: SQLAlchemy's URL without a password, as `postgresql://host/database`.
    `glue`: URL of the endpoint; empty: that of the region."""

    warehouse: str = ""
    """`rest`: the warehouse that the server is asked for, by name or location. Empty: none."""

    catalog: str = ""
    """`sql`: the catalog's name in the database's tables; empty: `name`. `glue`: id of the Glue catalog;
    empty: that of the account."""

    namespace: Annotated[str, Field(pattern=NAMESPACE_PATTERN)] = "{namespace}"
    """Namespace of the entries; `{namespace}` stands for the table's own."""

    topics: Annotated[str, Field(min_length=1, max_length=65_536)] = "*"
    """Topics whose tables are published: names or patterns with `*`, commas between. A single topic is
    switched by its `floe.table.publish`."""

    credential: SecretStr = SecretStr("")
    """`rest`: `client:secret` of OAuth2. Give it as FLOE_CATALOGS__0__CREDENTIAL rather than in a file."""

    token: SecretStr = SecretStr("")
    """`rest`: a bearer token, where there is no `credential`."""

    oauth_uri: str = ""
    """`rest`: URL that gives tokens. Empty: the catalog's own `/v1/oauth/tokens`."""

    scope: str = "catalog"
    """`rest`: scope of the tokens, such as `PRINCIPAL_ROLE:ALL`."""

    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """`rest`: further headers of every request by name."""

    ca_file: str = ""
    """`rest`: PEM file of the authority that its certificate is checked against. Empty: the system's."""

    user: str = ""
    """`sql`: user of the database. Empty: as `uri` says."""

    password: SecretStr = SecretStr("")
    """`sql`: password of the user. Give it as FLOE_CATALOGS__0__PASSWORD rather than in a file."""

    region: str = ""
    """`glue`: region."""

    access_key: SecretStr = SecretStr("")
    """`glue`: access key id. Empty: the environment's credentials (instance role, AWS_… variables)."""

    secret_key: SecretStr = SecretStr("")
    """`glue`: secret access key. Give it as FLOE_CATALOGS__0__SECRET_KEY rather than in a file."""

    replace: Literal["drop", "never"] = "drop"
    """`rest`: what to do where the server takes no new location for a table that is there (no `overwrite`).
    `drop`: drop its entry and register it again: readers miss it for a moment. `never`: say so instead."""

    interval_ms: Annotated[int, Field(ge=100, le=86_400_000)] = 1_000
    """Time between two looks at what differs, milliseconds: how late an entry is, and one round trip."""

    check_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """Time between two lists of what the catalog has, seconds: what others changed there is mended then."""

    timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = 10_000
    """Longest silence of the catalog in one request, milliseconds."""

    retry_ms_max: Annotated[int, Field(ge=1_000, le=86_400_000)] = 60_000
    """Longest pause, milliseconds, after a failure: it begins at a second and doubles."""

    requests_in_flight_max: Annotated[int, Field(ge=1, le=64)] = 4
    """Requests at once."""

    entries_per_pass_max: Annotated[int, Field(ge=1, le=100_000)] = 500
    """Entries looked at and changed before the next look at what differs."""


_NEEDED = {"rest": ("uri",), "sql": ("uri",), "glue": ("region",)}
_OF: dict[str, tuple[str, ...]] = {
    "warehouse": ("rest",),
    "catalog": ("sql", "glue"),
    "credential": ("rest",),
    "token": ("rest",),
    "oauth_uri": ("rest",),
    "ca_file": ("rest",),
    "user": ("sql",),
    "password": ("sql",),
    "region": ("glue",),
    "access_key": ("glue",),
    "secret_key": ("glue",),
}


def problems(catalogs: Sequence[CatalogConfig]) -> Iterator[str]:
    """What contradicts itself among them, each in one line with the remedy."""
    places = []
    for number, each in enumerate(catalogs):
        at = f"catalogs.{number}"
        if [one.name for one in catalogs].count(each.name) > 1:
            yield f"{at}.name {each.name!r} is used twice; give each catalog a name of its own"
        for name in _NEEDED[each.type]:
            if not getattr(each, name):
                yield f"{at}.{name} is not set, and a catalog of type {each.type} needs it"
        for name, types in _OF.items():
            if _said(getattr(each, name)) and each.type not in types:
                yield f"{at}.{name} is not for a catalog of type {each.type}; remove it"
        yield from _secrets(at, each)
        place = (each.type, each.uri, each.warehouse, each.catalog, each.region, each.namespace)
        if place in places:
            yield f"{at}.namespace: another catalog of catalogs publishes there too; one would undo the other"
        places.append(place)


def _secrets(at: str, each: CatalogConfig) -> Iterator[str]:
    if each.type == "rest" and not each.uri.startswith(("http://", "https://")):
        yield f"{at}.uri {each.uri!r} must begin with http:// or https://"
    if "@" in each.uri.partition("://")[2].partition("/")[0]:
        yield f"{at}.uri must not hold a user or password: use {at}.user and {at}.password"
    if _said(each.credential) and _said(each.token):
        yield f"{at}.credential and {at}.token are both set; remove one"
    if bool(_said(each.access_key)) != bool(_said(each.secret_key)):
        yield f"{at}.access_key and {at}.secret_key go together; set both or neither"


def _said(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
