"""The catalog's tokens over HTTP: who gets one, what lets it go, what is asked of its holder."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, OAuthError

from agent.app import App
from agent.config import Config, ConfigError
from agent.config.users import line_of
from agent.http.oauth import EXCHANGE, FORM_BYTES_MAX
from agent.kafka.login import scram
from coordination.commands import (
    AclBinding,
    CreateAcls,
    DeleteScramCredential,
    PutNamespace,
    PutScramCredential,
)
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from coordination.state.types import Done
from tests.unit.agent.test_app import World

SECRET = "0123456789abcdef0123456789abcdef"
PATH = "/iceberg/v1/oauth/tokens"
CREDENTIALS = "client_credentials"
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "a", "type": "int", "required": False}],
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for app in made.apps:
        await app.stop()


@pytest.fixture
def sections(tmp_path: Path) -> dict[str, Any]:
    """Of an agent that knows `root`, who may everything, and `ann`, whose password is in a file."""
    (tmp_path / "users").write_text(line_of("ann", "ann's", bytes(16)))
    return {
        "http": {"host": "127.0.0.1", "port": 0, "authentication": "required"},
        "authorizer": {"mode": "enforce", "super_users": "User:root"},
        "catalog": {"token_secret": SECRET},
        "audit_log": {"lines": True, "access": True},
        "sasl": {
            "users_file": str(tmp_path / "users"),
            "admin_user": "root",
            "admin_password": "root's",
            "failed_delay_ms": 0,
        },
    }


@pytest.fixture
async def app(world: World, sections: dict[str, Any]) -> App:
    return await world.start(**sections)


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{app.http_port}") as opened:
        yield opened


def credentials(user: str, password: str = "") -> dict[str, str]:
    return {"grant_type": CREDENTIALS, "client_id": user, "client_secret": password or f"{user}'s"}


async def token_of(client: httpx.AsyncClient, user: str) -> str:
    answer = await client.post(PATH, data={**credentials(user), "scope": "catalog"})
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["access_token"]
    return token


async def status(client: httpx.AsyncClient, token: str, path: str = "/iceberg/v1/namespaces") -> int:
    return (await client.get(path, headers={"Authorization": f"Bearer {token}"})).status_code


def scram_of(user: str, password: str) -> PutScramCredential:
    salted = scram.salted("sha512", password, b"salt", 4096)
    stored_key, server_key = scram.keys("sha512", salted)
    return PutScramCredential(
        user=user,
        mechanism=2,
        iterations=4096,
        salt=b"salt",
        stored_key=stored_key,
        server_key=server_key,
        secret=bytes(32),
    )


async def allow(app: App, operation: Operation, topic: str, user: str) -> None:
    acl = AclBinding(
        resource_type=ResourceType.TOPIC,
        pattern_type=PatternType.LITERAL,
        name=topic,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )
    assert isinstance(await app.replica.propose(CreateAcls(acls=[acl])), Done)


async def test_a_token_is_given_for_a_password_and_lets_in(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, data=credentials("ann"))
    found = answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert found.pop("access_token").count(".") == 2
    assert found == {
        "token_type": "bearer",
        "expires_in": 3600,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "scope": "catalog",
    }
    by_header = await client.post(PATH, data={"grant_type": CREDENTIALS}, auth=("ann", "ann's"))
    assert await status(client, by_header.json()["access_token"]) == 200
    assert (await client.get("/iceberg/v1/config")).status_code == 401


async def test_every_agent_takes_it(world: World, client: httpx.AsyncClient, sections: Any) -> None:
    token = await token_of(client, "ann")
    other = await world.start("b", **sections)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{other.http_port}") as there:
        assert await status(there, token) == 200


async def test_whoever_guesses_learns_nothing_and_is_counted(app: App, client: httpx.AsyncClient) -> None:
    told = []
    for user, password in (("ann", "wrong"), ("nobody", "wrong"), ("root", "wrong"), ("", ""), ("ann", "\0")):
        answer = await client.post(PATH, data=credentials(user, password))
        assert answer.status_code == 401
        told.append(answer.json())
    assert all(each == told[0] for each in told)
    assert told[0]["error"] == "invalid_client"
    page = (await client.get("/metrics")).text
    assert 'floe_logins_total{mechanism="BASIC",outcome="failed"} 5.0' in page


async def test_guesses_leave_places_for_others(
    world: World, sections: dict[str, Any], client: httpx.AsyncClient
) -> None:
    """Of four places one is for tokens: others who ask meanwhile are told to come again."""
    slow = {**sections["sasl"], "failed_delay_ms": 1_000}
    http = {**sections["http"], "requests_in_flight_max": 4}
    app = await world.start("slow", **{**sections, "sasl": slow, "http": http})
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{app.http_port}") as there:
        guesses = [asyncio.create_task(there.post(PATH, data=credentials("ann", "no"))) for _ in range(6)]
        assert (await there.get("/iceberg/v1/config", auth=("ann", "ann's"))).status_code == 200
        told = [answer.status_code for answer in await asyncio.gather(*guesses)]
    assert set(told) == {401, 503}


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"scope": "catalog"}, "unsupported_grant_type"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "unsupported_grant_type"),
        ({"grant_type": EXCHANGE}, "invalid_request"),
        ({"grant_type": EXCHANGE, "subject_token": "x"}, "invalid_grant"),
        ({"grant_type": EXCHANGE, "subject_token": "x", "subject_token_type": "saml"}, "invalid_request"),
        ({str(each): "x" for each in range(40)}, "invalid_request"),
        ({"grant_type": "x" * FORM_BYTES_MAX}, "invalid_request"),
    ],
)
async def test_what_is_no_request_for_a_token(
    client: httpx.AsyncClient, form: dict[str, str], error: str
) -> None:
    answer = await client.post(PATH, data=form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)


async def test_bodies_that_are_no_forms(client: httpx.AsyncClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body, headers in (
        (b"{}", {"Content-Type": "application/json"}),
        (b"grant_type=%ff%fe", form),
        (b"\xff", form),
        (b"grant_type=client_credentials&client_id=ann&client_id=root", form),
    ):
        answer = await client.post(PATH, content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request"), body
    both = await client.post(PATH, data=credentials("ann"), auth=("ann", "ann's"))
    assert (both.status_code, both.json()["error"]) == (400, "invalid_request")
    assert (await client.get(PATH)).status_code == 404


async def test_a_token_is_exchanged_for_a_newer_one(client: httpx.AsyncClient) -> None:
    """As Java's client does while its own holds, and with Basic when it is over."""
    token = await token_of(client, "ann")
    form = {"grant_type": EXCHANGE, "subject_token": token, "scope": "catalog"}
    bearer = {"Authorization": f"Bearer {token}"}
    answer = await client.post(PATH, data=form, headers=bearer)
    assert await status(client, answer.json()["access_token"]) == 200
    by_basic = await client.post(PATH, data=form, auth=("ann", "ann's"))
    assert await status(client, by_basic.json()["access_token"]) == 200
    anothers = await client.post(PATH, data=form, auth=("root", "root's"))
    assert (anothers.status_code, anothers.json()["error"]) == (400, "invalid_grant")
    wrong = await client.post(PATH, data=form, auth=("ann", "wrong"))
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    forged = {**form, "subject_token": token[:-4] + "AAAA"}
    answer = await client.post(PATH, data=forged)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


async def test_a_users_tokens_end_with_his_credential(app: App, client: httpx.AsyncClient) -> None:
    await app.replica.propose(scram_of("sam", "sam's"))
    token = await token_of(client, "sam")
    assert await status(client, token) == 200
    await app.replica.propose(DeleteScramCredential(user="sam", mechanism=2))
    assert await status(client, token) == 401
    exchange = await client.post(PATH, data={"grant_type": EXCHANGE, "subject_token": token})
    assert exchange.status_code == 401
    await app.replica.propose(scram_of("sam", "another"))
    assert await status(client, token) == 401


async def test_a_secret_of_another_cluster_is_no_key_here(
    world: World, client: httpx.AsyncClient, sections: Any
) -> None:
    other = World()
    app = await other.start("z", **{**sections, "catalog": {"token_secret": SECRET[::-1]}})
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{app.http_port}") as there:
        assert await status(client, await token_of(there, "ann")) == 401
    await app.stop()


async def test_what_the_holder_may_is_what_the_user_may(
    process_log: io.StringIO, app: App, client: httpx.AsyncClient
) -> None:
    """Through the agent's own doors: ACLs, Iceberg's shapes, pyiceberg's exceptions, the audit log."""
    await app.replica.propose(PutNamespace(name="ns"))
    for name in ("seen", "hidden"):
        answer = await client.post(
            "/iceberg/v1/namespaces/ns/tables",
            json={"name": name, "schema": SCHEMA},
            auth=("root", "root's"),
        )
        assert answer.status_code == 200, answer.text
    await allow(app, Operation.DESCRIBE, "ns.seen", "ann")

    def story() -> None:
        at = f"http://127.0.0.1:{app.http_port}/iceberg"
        files = "pyiceberg.io.pyarrow.PyArrowFileIO"
        login = {"uri": at, "oauth2-server-uri": f"{at}/v1/oauth/tokens", "py-io-impl": files}
        with RestCatalog("floe", **login, credential="ann:ann's") as found:
            assert found.list_tables("ns") == [("ns", "seen")]
            with pytest.raises(NoSuchTableError):
                found.load_table("ns.hidden")
            with pytest.raises(ForbiddenError, match=r"Read on topic 'ns\.seen'"):
                found.load_table("ns.seen")
            asyncio.run_coroutine_threadsafe(allow(app, Operation.READ, "ns.seen", "ann"), loop).result()
            assert found.load_table("ns.seen").name() == ("ns", "seen")
            with pytest.raises(ForbiddenError, match="Alter on topic"):
                found.drop_table("ns.seen")
        for credential in ("ann:wrong", "wrong"):
            with pytest.raises(OAuthError, match="invalid_client"):
                RestCatalog("floe", **login, credential=credential)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(story)
    await client.delete("/iceberg/v1/namespaces/ns/tables/hidden", auth=("root", "root's"))
    await app.stop()  # what the audit log has waiting is written
    require_told([each for each in process_log.getvalue().splitlines() if "ns." in each])


def require_told(lines: list[str]) -> None:
    """The audit log has who was refused, who read and who changed."""
    for kind, principal, operation, name in (
        ("REFUSED", "ann", "Read", "ns.seen"),
        ("REFUSED", "ann", "Alter", "ns.seen"),
        ("ACCESS", "ann", "Read", "ns.seen"),
        ("CHANGE", "root", "CreateTable", "ns.hidden"),
        ("CHANGE", "root", "DropTable", "ns.hidden"),
    ):
        wanted = (kind, f"principal=User:{principal}", f"operation={operation}", name)
        assert [each for each in lines if all(word in each for word in wanted)], (wanted, lines)


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"catalog": {"token_secret": "short"}}, "catalog.token_secret has less than 32"),
        ({"catalog": {"token_secret": SECRET}}, "http.authentication is none"),
        (
            {
                "catalog": {"vending_role_arn": "arn:aws:iam:::role/floe"},
                "http": {"authentication": "required"},
            },
            "no bucket of S3",
        ),
        ({"catalog": {"vending_sts_url": "http://127.0.0.1:9"}}, "catalog.vending_role_arn is not"),
        ({"catalog": {"vending_role_arn": "floe"}}, "catalog.vending_role_arn"),
    ],
)
def test_settings_that_contradict_each_other_are_told(sections: dict[str, Any], what: str) -> None:
    tree = {"log": {"url": "memory:"}, "store": {"url": "memory:"}, "tables": {"enabled": False}}
    with pytest.raises((ConfigError, ValueError), match=what):
        Config.model_validate({**tree, **sections})
