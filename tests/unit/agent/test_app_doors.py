"""A whole agent whose HTTP has a certificate and asks who it is: users, ACLs and renewal as for Kafka."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from agent.config.errors import ConfigError
from tests.equipment.certificates import Authority
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer, base64
from tests.unit.agent.net.server.harness import until
from tests.unit.agent.test_app import World, config, world

__all__ = ["world"]


def doors(folder: Path, **more: object) -> dict[str, object]:
    """Sections of an agent whose certificate is in this folder."""
    files = {"tls_cert_file": str(folder / "tls.crt"), "tls_key_file": str(folder / "tls.key")}
    return {
        "http": {"host": "127.0.0.1", "port": 0, "authentication": "required", **files, **more},
        "sasl": {"admin_user": "root", "admin_password": "root's", "failed_delay_ms": 0},
        "authorizer": {"mode": "enforce", "super_users": "User:root"},
    }


async def test_an_agent_asks_by_http_what_it_asks_by_kafka(world: World, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    for name, pair in (("tls", authority.pair("agent")), ("newer", authority.pair("newer"))):
        shutil.copy(pair.cert, tmp_path / f"{name}.crt")
        shutil.copy(pair.key, tmp_path / f"{name}.key")
    app = await world.start(**doors(tmp_path))
    base = f"https://localhost:{app.http_port}"
    async with httpx.AsyncClient(base_url=base, verify=authority.client()) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/status.json")).status_code == 401
        assert (await client.get("/status.json", auth=("root", "root's"))).status_code == 200
        shutil.copy(tmp_path / "newer.crt", tmp_path / "tls.crt")
        failing = app.metrics.tls_renewal_failing.labels("http")
        await until(lambda: failing._value.get() == 1)
        assert "floe_tls_renewal_failing{" in (await client.get("/metrics")).text
        shutil.copy(tmp_path / "newer.key", tmp_path / "tls.key")
        await until(lambda: failing._value.get() == 0)
    assert app.metrics.tls_expires_seconds.labels("http")._value.get() > 0
    assert "http.tls_cert_file" not in app.files.stale, "what takes effect by itself needs no restart"


@pytest.mark.parametrize(
    ("http", "told"),
    [
        ({"tls_cert_file": "x"}, "http.tls_cert_file and http.tls_key_file go together"),
        ({"tls_client_auth": "required"}, "http.tls_client_auth is set, but http.tls_cert_file is not"),
        ({"tls_ca_file": "x"}, "http.tls_ca_file is set, but http.tls_cert_file is not"),
        (
            {"tls_cert_file": "x", "tls_key_file": "y", "tls_client_auth": "requested"},
            "http.tls_client_auth requested needs http.tls_ca_file",
        ),
    ],
)
def test_what_contradicts_itself_is_one_line(http: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        config("a", http={"port": 0, **http})


async def test_tokens_are_those_of_oauthbearer(world: World, tmp_path: Path) -> None:
    issuer, keys = Issuer(), tmp_path / "keys.json"
    keys.write_bytes(issuer.jwks())
    oauth = {"jwks_file": str(keys), "issuer": ISSUER, "audience": AUDIENCE}
    http = {"host": "127.0.0.1", "port": 0, "authentication": "required"}
    app = await world.start(http=http, oauth=oauth, sasl={"failed_delay_ms": 0})
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{app.http_port}") as client:

        async def status(token: str) -> int:
            return (
                await client.get("/status.json", headers={"Authorization": f"Bearer {token}"})
            ).status_code

        assert await status(issuer.token()) == 200
        assert await status(issuer.token(aud="somebody else")) == 401
        assert await status(issuer.token(exp=1)) == 401
        head = base64(b'{"alg":"none"}')
        assert await status(f"{head}.{issuer.token().split('.')[1]}.") == 401
    with pytest.raises(ValidationError, match=r"set oauth\.issuer, whose tokens are believed"):
        config("a", http=http, oauth={"jwks_file": str(keys)})


async def test_a_certificate_that_is_none_ends_the_start(world: World, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="listener http: tls_cert_file"):
        world.make(**doors(tmp_path))
