"""Opens what an agent depends on, as its configuration says: the log and the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from agent.config import Config
from coordination.clock import Clock
from coordination.log import Log
from coordination.open import open_log
from coordination.replica import ReplicaOptions
from objectstore.credentials import KeyFiles, Keys, Role
from objectstore.open import StoreOptions, open_store
from objectstore.retry import RetryPolicy
from objectstore.store import ObjectStore

HEARTBEAT_ALONE_S = 5.0  # no other agent listens
ROLE_SESSION_CHARS_MAX = 64  # of Amazon's


def log_of(config: Config, clock: Clock) -> Log:
    """The log; nothing is connected yet. Raises ValueError, OSError (unreadable TLS files)."""
    given = config.log
    if not given.url.startswith("etcd:"):
        return open_log(given.url, clock)
    from coordination.etcd.client import Tls
    from coordination.etcd.follower import FollowOptions

    tls = (
        Tls(given.tls_ca_file, given.tls_cert_file or None, given.tls_key_file or None) if given.tls else None
    )
    return open_log(
        given.url,
        clock,
        tls=tls,
        user=given.user or None,
        password=given.password.get_secret_value(),
        password_file=given.password_file,
        attempt_timeout_s=given.attempt_timeout_ms / 1000,
        call_timeout_s=given.call_timeout_ms / 1000,
        follow=FollowOptions.of(given.silence_ms_max / 1000),
    )


def store_of(config: Config, clock: Clock, *, tries_max: int | None = None) -> ObjectStore:
    """The store with its retries (`tries_max` overrides the configured number).

    Raises ValueError, and OSError for files of keys that cannot be read.
    """
    options = store_options(config, clock, tries_max=tries_max)
    return open_store(
        config.store.url, **{field.name: getattr(options, field.name) for field in fields(options)}
    )


def store_options(config: Config, clock: Clock, *, tries_max: int | None = None) -> StoreOptions:
    """What the store's URL does not say."""
    given = config.store
    retry = RetryPolicy(
        tries_max=tries_max or given.tries_max,
        total_s_max=given.retry_ms_max / 1000,
        wait_s_max=given.backoff_ms_max / 1000,
    )
    return StoreOptions(
        endpoint=given.endpoint,
        region=given.region,
        access_key=given.access_key.get_secret_value(),
        secret_key=given.secret_key.get_secret_value(),
        session_token=given.session_token.get_secret_value(),
        key_files=key_files(config),
        role=role_of(config),
        role_session=f"floe-{config.cluster.name}"[:ROLE_SESSION_CHARS_MAX],
        allow_http=given.allow_http,
        virtual_hosted_style=given.virtual_hosted,
        ca_certificate=given.ca_file,
        connect_s_max=given.connect_timeout_ms / 1000,
        request_s_max=given.request_timeout_ms / 1000,
        connections_idle_max=given.connections_idle_max,
        retry=retry,
        pace=clock,
        now_ms=clock.now_ms,
        extra={name: value.get_secret_value() for name, value in given.options.items()},
    )


def key_files(config: Config) -> KeyFiles | None:
    """Where the store's keys are, when they are in files."""
    given = config.store
    if not given.access_key_file:
        return None
    return KeyFiles(given.access_key_file, given.secret_key_file, given.session_token_file)


def role_of(config: Config) -> Role | None:
    """The role that the store is used as; None: the keys themselves are used."""
    given = config.store
    if not given.role_arn:
        return None
    return Role(
        arn=given.role_arn,
        url=given.role_sts_url or given.endpoint,
        region=given.region,
        keys=lambda: given_keys(config),
        duration_s=given.role_s,
        timeout_s=given.connect_timeout_ms / 1000,
        ca_file=given.ca_file,
    )


def given_keys(config: Config) -> Keys | None:
    """The keys that the configuration gives, as they are now; None: the environment's.

    Raises OSError and ValueError for files that hold none.
    """
    store, files = config.store, key_files(config)
    if files is not None:
        return files.read()
    if not store.access_key.get_secret_value():
        return None
    given = (store.access_key, store.secret_key, store.session_token)
    return Keys(*(each.get_secret_value() for each in given))


def keys_of_store(config: Config, clock: Clock) -> Callable[[], Keys | None]:
    """What gives the keys that the bucket is used with: a role's, or those of `given_keys`. It may block.

    It raises OSError, ValueError, and StoreError for a role that is not assumed.
    """
    options = store_options(config, clock)
    if options.role is None:
        return lambda: given_keys(config)
    from objectstore.assumed import AssumedRole  # boto3 costs memory, which others do not pay

    return AssumedRole(options.role, options.role_session, clock.now_ms).keys


def replica_options(config: Config) -> ReplicaOptions:
    """The replica's limits and times."""
    given = config.replica
    return ReplicaOptions(
        ttl_s=config.log.lease_ttl_s,
        heartbeat_s=given.heartbeat_ms / 1000,
        heartbeat_alone_s=HEARTBEAT_ALONE_S,
        confirm_s=2.0 * config.log.lease_ttl_s,
        apply_slice_s=given.apply_ms_max / 1000,
        queue_wait_s=given.queue_timeout_ms / 1000,
        outcome_wait_s=given.outcome_timeout_ms / 1000,
        queue_bytes_max=given.queue_bytes_max,
    )
