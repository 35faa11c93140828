"""Settings that contradict each other, each refused with both names and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from agent.config import catalogs, plain, redaction, security
from agent.config.tree import Tree

LOG_SCHEMES = ("etcd", "sqlite", "memory")
STORE_SCHEMES = ("s3", "gs", "az", "file", "memory")
LOCAL_SCHEMES = ("file", "memory")
_LOGIN_OF = {
    "store.endpoint": ": use store.access_key and store.secret_key",
    "traces.endpoint": ": use traces.headers, as in Authorization=Basic …",
}


def scheme(url: str) -> str:
    """The part of a URL before the colon, in lower case."""
    return url.partition(":")[0].lower()


def url_problem(url: str, section: Literal["log", "store"]) -> str | None:
    """Why a URL of the log or the store is refused; None when it is fine."""
    schemes = LOG_SCHEMES if section == "log" else STORE_SCHEMES
    try:
        parts = urlsplit(url)
    except ValueError:
        return plain.url_problem(f"{section}.url", url)
    if "@" in parts.netloc:
        return f"{section}.url must not hold a user or password: use {section}'s own settings for them"
    if scheme(url) not in schemes:
        return f"{section}.url {url!r} must begin with one of {', '.join(s + ':' for s in schemes)}"
    if scheme(url) in ("sqlite", "file") and (parts.netloc or not parts.path.startswith("/")):
        return f"{section}.url {url!r} must name an absolute path: {scheme(url)}:///absolute/path"
    if scheme(url) in ("etcd", "s3", "gs", "az") and not parts.netloc:
        return f"{section}.url {url!r} names no {'host' if section == 'log' else 'bucket'}"
    if scheme(url) == "etcd" and not parts.path.strip("/"):
        return f"log.url {url!r} names no prefix: write etcd://host:2379/prefix"
    hosts = parts.netloc.split(",") if section == "log" else ()
    return next(filter(None, (plain.url_problem("log.url", f"etcd://{each}") for each in hosts)), None)


def contradiction(config: Tree) -> str | None:
    """The first contradiction between settings, or None."""
    for rule in (
        _urls,
        _listeners,
        _processes,
        _redaction,
        _log,
        _store,
        _sizes,
        _times,
        _tables,
        _catalogs,
        security.problems,
    ):
        for problem in rule(config):
            return problem
    return None


def _urls(config: Tree) -> Iterator[str]:
    """Those that nobody can read, or with a login, which is shown where the URL is; first of all, as other
    rules read them."""
    given = {
        "store.endpoint": config.store.endpoint,
        "store.role_sts_url": config.store.role_sts_url,
        "oauth.jwks_url": config.oauth.jwks_url,
        "traces.endpoint": config.traces.endpoint,
    }
    for number, each in enumerate(config.catalogs):
        given[f"catalogs.{number}.uri"] = "" if each.type == "sql" else each.uri
        given[f"catalogs.{number}.oauth_uri"] = each.oauth_uri
    for name, url in given.items():
        if problem := plain.url_problem(name, url):
            yield problem
        elif "@" in urlsplit(url).netloc:
            yield f"{name} must not hold a user or password{_LOGIN_OF.get(name, '')}"


def _listeners(config: Tree) -> Iterator[str]:
    names = [listener.name for listener in config.listeners]
    ports = [(listener.host, listener.port) for listener in config.listeners if listener.port]
    for name in names:
        if names.count(name) > 1:
            yield f"listeners: the name {name!r} is used twice; give each listener a name of its own"
    for host, port in ports:
        if ports.count((host, port)) > 1:
            yield f"listeners: {host}:{port} is bound twice; give each listener a port of its own"
        if port == config.http.port and host == config.http.host:
            yield f"listeners: {host}:{port} is also http.port; choose another one"


def _processes(config: Tree) -> Iterator[str]:
    count, log = config.agent.processes, config.log
    if count > 1 and scheme(log.url) != "etcd":
        yield (
            f"agent.processes is {count}, but log.url {log.url!r} is for one process alone: "
            "use a log in etcd (etcd://host:2379/prefix), or agent.processes=1"
        )


def _redaction(config: Tree) -> Iterator[str]:
    known = {listener.name for listener in config.listeners}
    for name in redaction.names(config.redaction.cleared_listeners):
        if name not in known:
            there = ", ".join(sorted(known))
            yield f"redaction.cleared_listeners: there is no listener {name!r}; there are {there}"


def _log(config: Tree) -> Iterator[str]:
    log, store = config.log, config.store
    etcd_only = {
        "user": log.user,
        "tls": log.tls,
        "tls_ca_file": log.tls_ca_file,
        "tls_cert_file": log.tls_cert_file,
        "tls_key_file": log.tls_key_file,
    }
    for name, value in etcd_only.items():
        if value and scheme(log.url) != "etcd":
            yield f"log.{name} is set, but log.url {log.url!r} is not etcd; remove log.{name}"
        if value and name.startswith("tls_") and not log.tls:
            yield f"log.{name} is set, but log.tls is false; set log.tls=true"
    if log.tls and not log.tls_ca_file:
        yield "log.tls needs log.tls_ca_file, the authority that etcd's certificate is checked against"
    if bool(log.tls_cert_file) != bool(log.tls_key_file):
        yield "log.tls_cert_file and log.tls_key_file go together; set both or neither"
    password = log.password.get_secret_value()
    if password and log.password_file:
        yield "log.password and log.password_file are both set; remove one of them"
    if bool(log.user) != bool(password or log.password_file):
        yield "log.user and log.password (or log.password_file) go together; set both or neither"
    if scheme(log.url) == "etcd" and scheme(store.url) == "memory":
        yield "store.url memory: cannot be shared by the agents of an etcd log; use s3:, gs:, az: or file:"


def _store(config: Tree) -> Iterator[str]:
    store = config.store
    if bool(store.access_key.get_secret_value()) != bool(store.secret_key.get_secret_value()):
        yield "store.access_key and store.secret_key go together; set both or neither"
    yield from _key_files(config)
    yield from _role(config)
    if store.endpoint and scheme(store.url) in LOCAL_SCHEMES:
        yield f"store.endpoint is set, but store.url {store.url!r} is local; remove store.endpoint"
    if store.ca_file and scheme(store.url) in LOCAL_SCHEMES:
        yield f"store.ca_file is set, but store.url {store.url!r} is local; remove store.ca_file"
    if store.endpoint and scheme(store.endpoint) not in ("http", "https"):
        yield f"store.endpoint {store.endpoint!r} must begin with http:// or https://"
    if scheme(store.endpoint) == "http" and not store.allow_http:
        yield f"store.endpoint {store.endpoint!r} is without TLS; set store.allow_http=true to accept that"


def _key_files(config: Tree) -> Iterator[str]:
    store = config.store
    if bool(store.access_key_file) != bool(store.secret_key_file):
        yield "store.access_key_file and store.secret_key_file go together; set both or neither"
    if store.session_token_file and not store.access_key_file:
        yield "store.session_token_file is set without store.access_key_file and store.secret_key_file"
    if store.access_key_file and store.access_key.get_secret_value():
        yield "store.access_key and store.access_key_file are both set; remove one of them"
    if store.access_key_file and scheme(store.url) != "s3":
        yield f"store.access_key_file is set, but store.url {store.url!r} is not s3:; remove it"


def _role(config: Tree) -> Iterator[str]:
    store = config.store
    if store.role_arn and scheme(store.url) != "s3":
        yield f"store.role_arn is set, but store.url {store.url!r} is not s3:; remove it"
    if store.role_sts_url and not store.role_arn:
        yield "store.role_sts_url is set without store.role_arn; set it, or remove store.role_sts_url"
    url = store.role_sts_url
    if url and scheme(url) != "https" and not (scheme(url) == "http" and store.allow_http):
        yield f"store.role_sts_url {url!r} must begin with https://, or http:// with store.allow_http=true"


def _sizes(config: Tree) -> Iterator[str]:
    produce, limits, fetch = config.produce, config.limits, config.fetch
    pairs = (
        (
            "produce.chunk_bytes_max",
            produce.chunk_bytes_max,
            "produce.buffer_bytes_max",
            produce.buffer_bytes_max,
        ),
        (
            "limits.request_bytes_max",
            limits.request_bytes_max,
            "limits.process_bytes_max",
            limits.process_bytes_max,
        ),
        (
            "fetch.response_bytes_max",
            fetch.response_bytes_max,
            "limits.response_bytes_max",
            limits.response_bytes_max,
        ),
    )
    for small_name, small, large_name, large in pairs:
        if small > large:
            yield f"{small_name} ({small}) is above {large_name} ({large})"


def _times(config: Tree) -> Iterator[str]:
    produce, replica, log = config.produce, config.replica, config.log
    pairs = (
        ("produce.quiet_ms", produce.quiet_ms, "three times produce.linger_ms", 3 * produce.linger_ms),
        ("produce.linger_ms", produce.linger_ms, "produce.commit_timeout_ms", produce.commit_timeout_ms),
        ("log.attempt_timeout_ms", log.attempt_timeout_ms, "log.call_timeout_ms", log.call_timeout_ms),
        ("replica.heartbeat_ms", replica.heartbeat_ms, "log.lease_ttl_s in ms", log.lease_ttl_s * 1000),
        ("peers.hedge_ms", config.peers.hedge_ms, "peers.timeout_ms", config.peers.timeout_ms),
        ("shutdown.drain_ms", config.shutdown.drain_ms, "shutdown.timeout_ms", config.shutdown.timeout_ms),
    )
    for small_name, small, large_name, large in pairs:
        if small > large:
            yield f"{small_name} ({small}) is above {large_name} ({large})"


def _tables(config: Tree) -> Iterator[str]:
    tables = config.tables
    if tables.enabled and not tables.warehouse and scheme(config.store.url) == "memory":
        yield "tables.enabled is true, but nobody else can read store.url memory:; set tables.enabled=false"
    root = config.store.url.rstrip("/") + "/"
    if tables.warehouse and not tables.warehouse.startswith(root):
        yield f"tables.warehouse {tables.warehouse!r} must be below store.url: begin with {root}"


def _catalogs(config: Tree) -> Iterator[str]:
    if config.catalogs and not config.tables.enabled:
        yield "catalogs: there is nothing to publish while tables.enabled is false; set tables.enabled=true"
    yield from catalogs.problems(config.catalogs)


RULES = (
    *(_listeners, _processes, _redaction, _log, _store, _sizes, _times, _tables, _catalogs),
    security.problems,
)
"""In the order in which they are asked."""
