"""Open a store by its URL.

memory:                  forgets everything; tests and simulation
file:///abs/folder       a local folder, synced
s3://bucket/prefix       S3 and compatible servers
gs://bucket/prefix       Google Cloud Storage (application default credentials)
az://container/prefix    Azure Blob Storage (account in `options` or AZURE_… variables)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from objectstore.adapters.cloud import CloudStore
from objectstore.adapters.folder import FolderStore
from objectstore.adapters.memory import MemoryStore
from objectstore.credentials import KeyFiles, Keys, Role, provider
from objectstore.odd_keys import OddKeys
from objectstore.pace import Pace
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config, S3Credential

_NO_RETRIES: RetryConfig = {"max_retries": 0}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a URL does not say. Empty credentials: the SDK's own chain (environment, profile, instance).

    `extra` goes to obstore's configuration of the cloud unchanged (its names, e.g. azure's account_name).
    """

    endpoint: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""
    session_token: str = ""
    key_files: KeyFiles | None = None  # instead of the three above; read again every `keys_renewed_s`
    keys_renewed_s: float = 10.0
    role: Role | None = None  # assumed with the keys above, or the environment's, and used instead of them
    role_session: str = "floe"  # what the store's log calls whoever uses the role's keys
    allow_http: bool = False  # http:// endpoints; never on an open network
    virtual_hosted_style: bool = False  # bucket in the host name, as AWS wants for new regions
    signed_payload: bool = False  # also over http the payload is unsigned unless asked for
    ca_certificate: str = ""  # PEM file of a private certificate authority
    connect_s_max: float = 3.0
    request_s_max: float = 15.0  # one try, from connect to the last byte
    connections_idle_max: int = 64
    retry: RetryPolicy | None = field(
        default_factory=RetryPolicy
    )  # None: one try, for callers with their own
    pace: Pace | None = None  # a Clock; jitter and waits of retries
    now_ms: Callable[[], int] | None = None  # stamps objects of memory:; by it key files are read again
    extra: Mapping[str, str] = field(default_factory=dict)


def open_store(url: str, **options: object) -> ObjectStore:
    """The store that `url` names, with retries. Options are the fields of StoreOptions.

    Raises ValueError for a URL or option that cannot be, TypeError for an unknown option.
    """
    given = StoreOptions(**options)  # type: ignore[arg-type]  # the dataclass refuses unknown names
    store = _open(url, given)
    if given.retry is None or isinstance(store, MemoryStore):
        return store
    return RetryingStore(store, given.retry, given.pace)


def _open(url: str, options: StoreOptions) -> ObjectStore:
    parsed = urlsplit(url)
    if parsed.query or parsed.fragment:
        raise ValueError(f"store URL {url!r}: put options beside the URL, not behind '?' or '#'")
    if parsed.scheme == "memory":
        return MemoryStore(options.now_ms)
    if parsed.scheme == "file":
        return _folder(url, parsed.netloc, unquote(parsed.path))
    if parsed.scheme in _CLOUDS:
        if not parsed.netloc:
            raise ValueError(f"store URL {url!r} names no bucket: write {parsed.scheme}://bucket/prefix")
        root = parsed.path.strip("/")
        cloud = _CLOUDS[parsed.scheme](parsed.netloc, root or None, options)
        return CloudStore(cloud, _odd_keys(parsed.netloc, root, options) if parsed.scheme == "s3" else None)
    known = ", ".join(("memory:", "file:///folder", *(f"{scheme}://bucket/prefix" for scheme in _CLOUDS)))
    raise ValueError(f"store URL {url!r}: known are {known}")


def _odd_keys(bucket: str, root: str, options: StoreOptions) -> OddKeys:
    provide: list[Callable[[], S3Credential] | None] = []

    def keys() -> Keys | None:
        if not provide:
            provide.append(_credentials(options))
        if provide[0] is None:
            return None
        found = provide[0]()
        return Keys(found["access_key_id"], found["secret_access_key"], found.get("token") or "")

    return OddKeys(bucket, f"{root}/" if root else "", options, keys)


def _folder(url: str, host: str, path: str) -> FolderStore:
    if host or not path.startswith("/") or path == "/":
        raise ValueError(f"store URL {url!r}: a folder is written file:///absolute/path")
    return FolderStore(Path(path))


def _s3(bucket: str, prefix: str | None, options: StoreOptions) -> S3Store:
    return s3_store(bucket, prefix, options)


def s3_store(bucket: str, prefix: str | None, options: StoreOptions, *, address: str = "") -> S3Store:
    """obstore's own. `address`: a URL that requests go to instead of the bucket's own.

    Raises ValueError for options that cannot be, OSError for files that cannot be read.
    """
    config: S3Config = {
        "region": options.region,
        "virtual_hosted_style_request": options.virtual_hosted_style or bool(address),
        "unsigned_payload": not options.signed_payload,
    }
    if address or options.endpoint:
        config["endpoint"] = address or options.endpoint
    config.update(options.extra)  # type: ignore[typeddict-item]  # obstore checks the names
    return S3Store(
        bucket,
        prefix=prefix,
        config=config,
        client_options=_client(options),
        retry_config=_NO_RETRIES,
        credential_provider=_credentials(options),
    )


def _credentials(options: StoreOptions) -> Callable[[], S3Credential] | None:
    """Given keys stand alone: as configuration they would be mixed with the environment's session token.

    None: the environment's. Raises OSError and ValueError for files that hold no keys.
    """
    if options.role is not None:
        if options.now_ms is None:
            raise ValueError("a role's keys end by a clock: give now_ms")
        from objectstore.assumed import AssumedRole  # boto3 costs memory, which others do not pay

        return AssumedRole(options.role, options.role_session, options.now_ms).provide
    if options.key_files is not None:
        if options.now_ms is None:
            raise ValueError("key_files are read again by a clock: give now_ms")
        return provider(options.key_files, options.now_ms, options.keys_renewed_s)
    if not options.access_key:
        return None
    credential: S3Credential = {
        "access_key_id": options.access_key,
        "secret_access_key": options.secret_key,
        "token": options.session_token or None,
        "expires_at": None,
    }
    return lambda: credential


def _gcs(bucket: str, prefix: str | None, options: StoreOptions) -> GCSStore:
    config: GCSConfig = {}
    config.update(options.extra)  # type: ignore[typeddict-item]  # obstore checks the names
    return GCSStore(
        bucket, prefix=prefix, config=config, client_options=_client(options), retry_config=_NO_RETRIES
    )


def _azure(container: str, prefix: str | None, options: StoreOptions) -> AzureStore:
    config: AzureConfig = {}
    if options.endpoint:
        config["endpoint"] = options.endpoint
    config.update(options.extra)  # type: ignore[typeddict-item]  # obstore checks the names
    return AzureStore(
        container, prefix=prefix, config=config, client_options=_client(options), retry_config=_NO_RETRIES
    )


Cloud = S3Store | GCSStore | AzureStore
_CLOUDS: dict[str, Callable[[str, str | None, StoreOptions], Cloud]] = {"s3": _s3, "gs": _gcs, "az": _azure}


def _client(options: StoreOptions) -> ClientConfig:
    config: ClientConfig = {
        "allow_http": options.allow_http,
        "connect_timeout": timedelta(seconds=options.connect_s_max),
        "timeout": timedelta(seconds=options.request_s_max),
        "pool_max_idle_per_host": str(options.connections_idle_max),
        "user_agent": "floe",
    }
    if options.ca_certificate:
        config["root_certificate"] = Path(options.ca_certificate).read_bytes()
    return config
