"""Settings of listeners and logins that contradict each other. Files are judged where they are read."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from agent.config import authorizer
from agent.config.sections import ListenerConfig
from agent.config.tree import Tree

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SECRET_LENGTH_MIN = 32


def problems(config: Tree) -> Iterator[str]:
    """Each contradiction, with the names and the remedy."""
    for number, listener in enumerate(config.listeners):
        yield from _tls(f"listeners.{number}", listener)
        yield from _sasl(f"listeners.{number}", listener, config)
    yield from _http(config)
    yield from authorizer.problems(config.authorizer)
    if bool(config.sasl.admin_user) != bool(config.sasl.admin_password.get_secret_value()):
        yield "sasl.admin_user and sasl.admin_password go together; set both or neither"
    yield from _peers(config)
    yield from _oauth(config)
    yield from _delegation(config)
    yield from _catalog(config)


def _tls(name: str, listener: ListenerConfig) -> Iterator[str]:
    files = {"tls_cert_file": listener.tls_cert_file, "tls_key_file": listener.tls_key_file}
    others = {"tls_ca_file": listener.tls_ca_file, "tls_ciphers": listener.tls_ciphers}
    speaks_tls = listener.protocol.endswith("SSL")
    for setting, value in (files | others).items():
        if value and not speaks_tls:
            yield (
                f"{name}.{setting} is set, but {name}.protocol {listener.protocol} has no TLS; "
                f"set {name}.protocol=SSL or SASL_SSL"
            )
    for setting, value in files.items():
        if speaks_tls and not value:
            yield f"{name}.protocol {listener.protocol} needs {name}.{setting}, a PEM file"
    if speaks_tls and listener.tls_client_auth != "none" and not listener.tls_ca_file:
        yield (
            f"{name}.tls_client_auth {listener.tls_client_auth} needs {name}.tls_ca_file, "
            "the authorities that vouch for clients"
        )
    if listener.tls_client_auth != "none" and not speaks_tls:
        yield f"{name}.tls_client_auth is set, but {name}.protocol {listener.protocol} has no TLS"


def _http(config: Tree) -> Iterator[str]:
    http = config.http
    others = ("tls_ca_file", "tls_ciphers", "tls_client_auth")
    if bool(http.tls_cert_file) != bool(http.tls_key_file):
        yield "http.tls_cert_file and http.tls_key_file go together; set both or neither"
    for setting in others:
        if getattr(http, setting) not in ("", "none") and not http.tls_cert_file:
            yield f"http.{setting} is set, but http.tls_cert_file is not: HTTP is in the clear"
    if http.tls_client_auth != "none" and not http.tls_ca_file:
        yield (
            f"http.tls_client_auth {http.tls_client_auth} needs http.tls_ca_file, "
            "the authorities that vouch for clients"
        )


def _sasl(name: str, listener: ListenerConfig, config: Tree) -> Iterator[str]:
    if not listener.protocol.startswith("SASL"):
        return
    sasl = config.sasl
    if "PLAIN" in listener.sasl_mechanisms.split(",") and not (sasl.users_file or sasl.admin_user):
        yield (
            f"{name}.sasl_mechanisms has PLAIN, which nobody could log in by: "
            "set sasl.users_file or sasl.admin_user"
        )


def _peers(config: Tree) -> Iterator[str]:
    peers = config.peers
    if config.relay.enabled and not peers.enabled:
        yield "relay.enabled is true, but peers.enabled is false, whose port it uses; set peers.enabled=true"
    if config.relay.enabled and not peers.secret.get_secret_value() and not peers.tls_cert_file:
        yield (
            "relay.enabled is true, but whoever knows the cluster's id, as clients do, could follow the log; "
            "set peers.secret or peers.tls_cert_file, tls_key_file and tls_ca_file"
        )
    if len({bool(each) for each in (peers.tls_cert_file, peers.tls_key_file, peers.tls_ca_file)}) > 1:
        yield "peers.tls_cert_file, peers.tls_key_file and peers.tls_ca_file go together; set all or none"
    secret = peers.secret.get_secret_value()
    if secret and len(secret) < SECRET_LENGTH_MIN:
        yield f"peers.secret has less than {SECRET_LENGTH_MIN} characters; take them from a generator"


def _oauth(config: Tree) -> Iterator[str]:
    oauth = config.oauth
    wanted = [
        each.name
        for each in config.listeners
        if each.protocol.startswith("SASL") and "OAUTHBEARER" in each.sasl_mechanisms.split(",")
    ]
    if oauth.jwks_url and oauth.jwks_file:
        yield "oauth.jwks_url and oauth.jwks_file are both set; keys come from one of them"
    if wanted and not (oauth.jwks_url or oauth.jwks_file):
        yield f"listener {wanted[0]} has OAUTHBEARER: set oauth.jwks_url or oauth.jwks_file, whose keys count"
    if wanted and not oauth.issuer:
        yield f"listener {wanted[0]} has OAUTHBEARER: set oauth.issuer, whose tokens are believed"
    if config.http.authentication == "required" and (oauth.jwks_url or oauth.jwks_file) and not oauth.issuer:
        yield "http.authentication takes tokens by oauth.jwks_…: set oauth.issuer, whose tokens are believed"
    if oauth.jwks_ca_file and not oauth.jwks_url:
        yield "oauth.jwks_ca_file is set, but oauth.jwks_url is not"
    if not oauth.jwks_url:
        return
    parts = urlsplit(oauth.jwks_url)
    local = parts.scheme == "http" and parts.hostname in LOOPBACK
    if not parts.hostname or not (parts.scheme == "https" or local):
        yield (
            f"oauth.jwks_url {oauth.jwks_url!r} must begin with https:// (http:// on this machine only): "
            "whoever can change what it answers can log in as anybody"
        )


def _delegation(config: Tree) -> Iterator[str]:
    secret = config.delegation.secret.get_secret_value()
    if secret and len(secret) < SECRET_LENGTH_MIN:
        yield f"delegation.secret has less than {SECRET_LENGTH_MIN} characters; take them from a generator"
    if secret and not any(each.protocol.startswith("SASL") for each in config.listeners):
        yield "delegation.secret is set, but no listener has a protocol with SASL, by which tokens log in"


def _catalog(config: Tree) -> Iterator[str]:
    catalog = config.catalog
    secret = catalog.token_secret.get_secret_value()
    if secret and len(secret) < SECRET_LENGTH_MIN:
        yield f"catalog.token_secret has less than {SECRET_LENGTH_MIN} characters; take them from a generator"
    given = [
        f"catalog.{name}"
        for name, value in (("token_secret", secret), ("vending_role_arn", catalog.vending_role_arn))
        if value
    ]
    if given and config.http.authentication == "none":
        yield f"{given[0]} is set, but http.authentication is none: nobody is asked who he is; set required"
    if catalog.vending_role_arn and not config.store.url.startswith("s3:"):
        yield f"catalog.vending_role_arn is set, but store.url {config.store.url} is no bucket of S3"
    if catalog.vending_sts_url and not catalog.vending_role_arn:
        yield "catalog.vending_sts_url is set, but catalog.vending_role_arn is not, of which keys are lent"
