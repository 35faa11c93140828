"""Delegation tokens (KIP-48, KIP-373): asked for, logged in by, renewed, ended; over a real socket."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.config import users
from agent.net.wire.generated.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from agent.net.wire.generated.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from agent.net.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest
from agent.net.wire.generated.renew_delegation_token import RenewDelegationTokenRequest
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest
from coordination.commands import AclBinding, CreateAcls
from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import Raw, serving
from tests.unit.agent.rig import Agent

SECRET = "0123456789abcdef0123456789abcdef"
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PASSWORDS = {"root": "first", "alice": "second", "bob": "third"}


@pytest.fixture
async def agent(start: StartAgent, tmp_path: Any) -> Agent:
    return await start("a", **settings(tmp_path))


def settings(tmp_path: Any, **delegation: Any) -> dict[str, Any]:
    file = tmp_path / "users"
    file.write_text("\n".join(users.line_of(name, PASSWORDS[name], bytes(16)) for name in ("alice", "bob")))
    return {
        "listeners": [
            {"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": f"PLAIN,{','.join(DIGESTS)}"}
        ],
        "sasl": {
            "admin_user": "root",
            "admin_password": PASSWORDS["root"],
            "failed_delay_ms": 0,
            "users_file": str(file),
        },
        "delegation": {"secret": SECRET} | delegation,
    }


@pytest.fixture
async def connect(agent: Agent) -> AsyncIterator[Any]:
    async with serving(agent) as (_, connect):
        yield connect


def authenticate(content: bytes) -> tuple[str, int, Any]:
    return ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=content))


async def login(connect: Any, user: str) -> Raw:
    raw: Raw = await connect()
    await raw.ask("plain")
    assert not (await raw.ask(authenticate(f"\0{user}\0{PASSWORDS[user]}".encode()))).error_code
    return raw


async def by_scram(
    connect: Any,
    user: str,
    password: str,
    mechanism: str = "SCRAM-SHA-256",
    extension: str = ",tokenauth=true",
) -> tuple[Raw, Any]:
    """A connection, and the last answer of its login."""
    raw: Raw = await connect()
    await raw.ask(("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism)))
    bare = f"n={user},r=nonce{extension}"
    first = await raw.ask(authenticate(f"n,,{bare}".encode()))
    server_first = bytes(first.auth_bytes).decode()
    parts = dict(part.split("=", 1) for part in server_first.split(","))
    digest = DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={parts['r']}"
    signature = hmac.digest(
        hashlib.new(digest, client_key).digest(), f"{bare},{server_first},{final}".encode(), digest
    )
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return raw, await raw.ask(authenticate(f"{final},p={b64encode(proof).decode()}".encode()))


async def create(raw: Raw, owner: str | None = None, *renewers: str, lifetime_ms: int = -1) -> Any:
    rows = [CreatableRenewers("User", name) for name in renewers]
    request = CreateDelegationTokenRequest(owner and "User", owner, rows, lifetime_ms)
    return await raw.ask(("CreateDelegationToken", 3, request))


async def renew(raw: Raw, shown: bytes, period_ms: int = -1) -> Any:
    return await raw.ask(("RenewDelegationToken", 2, RenewDelegationTokenRequest(shown, period_ms)))


async def expire(raw: Raw, shown: bytes, period_ms: int = -1) -> Any:
    return await raw.ask(("ExpireDelegationToken", 2, ExpireDelegationTokenRequest(shown, period_ms)))


async def described(raw: Raw, *owners: str, everybody: bool = True) -> list[str]:
    named = [DescribeDelegationTokenOwner("User", name) for name in owners]
    request = DescribeDelegationTokenRequest(None if everybody else named)
    return [one.token_id for one in (await raw.ask(("DescribeDelegationToken", 3, request))).tokens]


@pytest.mark.parametrize("mechanism", DIGESTS)
async def test_its_holder_is_its_owner_until_it_ends(connect: Any, mechanism: str) -> None:
    alice = await login(connect, "alice")
    made = await create(alice, None, "bob")
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (
        0,
        "alice",
        "alice",
    )
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 86_400_000
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * 86_400_000
    shown = bytes(made.hmac)
    assert shown == hmac.digest(SECRET.encode(), made.token_id.encode(), "sha512")
    password = b64encode(shown).decode()
    holder, done = await by_scram(connect, made.token_id, password, mechanism)
    assert (done.error_code, 0 < done.session_lifetime_ms <= 86_400_000) == (Code.NONE, True)
    assert await holder.ask("metadata") is not None
    for wrong in ((made.token_id, "x"), ("x", password), ("alice", PASSWORDS["alice"])):
        assert (await by_scram(connect, *wrong, mechanism))[1].error_code == Code.SASL_AUTHENTICATION_FAILED
    _, plain = await by_scram(connect, made.token_id, password, mechanism, "")
    assert plain.error_code == Code.SASL_AUTHENTICATION_FAILED, "without its extension it is no user"
    assert (await expire(alice, shown)).error_code == Code.NONE
    _, over = await by_scram(connect, made.token_id, password, mechanism)
    assert over.error_code == Code.SASL_AUTHENTICATION_FAILED


async def test_a_holder_gets_no_other_tokens(connect: Any) -> None:
    alice = await login(connect, "alice")
    made = await create(alice)
    holder, done = await by_scram(connect, made.token_id, b64encode(bytes(made.hmac)).decode())
    assert not done.error_code
    for answer in (
        await create(holder),
        await renew(holder, bytes(made.hmac)),
        await expire(holder, bytes(made.hmac)),
        await holder.ask(("DescribeDelegationToken", 3, DescribeDelegationTokenRequest(None))),
    ):
        assert answer.error_code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_who_may_do_what(connect: Any) -> None:
    root, alice, bob = [await login(connect, name) for name in ("root", "alice", "bob")]
    made = await create(alice, None, "bob")
    shown = bytes(made.hmac)
    assert (await create(bob, "alice")).error_code == Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    theirs = await create(root, "bob")  # KIP-373
    assert (theirs.principal_name, theirs.token_requester_principal_name) == ("bob", "root")
    assert await described(alice) == [made.token_id]
    assert await described(bob) == await described(root) == [made.token_id, theirs.token_id]
    assert await described(root, "bob", everybody=False) == [made.token_id, theirs.token_id]
    assert await described(root, everybody=False) == []
    assert await described(alice, "carol", everybody=False) == []
    assert (await renew(bob, shown, 1_000)).error_code == Code.NONE
    assert (await renew(alice, bytes(theirs.hmac))).error_code == Code.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await expire(root, shown)).error_code == Code.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await renew(alice, b"x" * 64)).error_code == Code.DELEGATION_TOKEN_NOT_FOUND
    renewed = await renew(alice, shown, 2 * 86_400_000)
    assert renewed.expiry_timestamp_ms <= made.issue_timestamp_ms + 2 * 86_400_000, "at most renew_ms"
    odd = CreateDelegationTokenRequest(None, None, [CreatableRenewers("Group", "x")], -1)
    assert (await alice.ask(("CreateDelegationToken", 3, odd))).error_code == Code.INVALID_PRINCIPAL_TYPE
    short = await create(alice, lifetime_ms=5_000)
    assert short.max_timestamp_ms - short.issue_timestamp_ms == 5_000


def allow(name: str, resource: int, operation: int) -> AclBinding:
    return AclBinding(
        resource_type=resource,
        pattern_type=PatternType.LITERAL,
        name=name,
        principal="User:alice",
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )


async def test_acls_give_tokens_of_others_to_whom_they_let(start: StartAgent, tmp_path: Any) -> None:
    """As in Kafka; and without an authorizer nobody but the administrator has them."""
    agent = await start("a", **settings(tmp_path), authorizer={"mode": "enforce"})
    async with serving(agent) as (_, connect):
        alice, bob = await login(connect, "alice"), await login(connect, "bob")
        token = (await create(bob)).token_id
        assert (await create(alice, "bob")).error_code == Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert await described(alice) == []
        acls = [allow(token, ResourceType.DELEGATION_TOKEN, Operation.DESCRIBE)]
        await agent.services.replica.propose(CreateAcls(acls=acls))
        assert await described(alice) == [token]
        acls = [
            allow("User:bob", ResourceType.USER, each)
            for each in (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)
        ]
        await agent.services.replica.propose(CreateAcls(acls=acls))
        made = await create(alice, "bob")
        assert (made.error_code, made.principal_name) == (0, "bob")
        other = (await create(bob)).token_id
        assert set(await described(alice)) == {token, made.token_id, other}


async def test_without_a_secret_there_are_none(start: StartAgent, tmp_path: Any) -> None:
    agent = await start("a", **settings(tmp_path, secret=""))
    async with serving(agent) as (_, connect):
        alice = await login(connect, "alice")
        for answer in (await create(alice), await renew(alice, b"x"), await expire(alice, b"x")):
            assert answer.error_code == Code.DELEGATION_TOKEN_AUTH_DISABLED
        asked = ("DescribeDelegationToken", 3, DescribeDelegationTokenRequest(None))
        assert (await alice.ask(asked)).error_code == Code.DELEGATION_TOKEN_AUTH_DISABLED


async def test_nobody_gets_one_where_nobody_logs_in(start: StartAgent) -> None:
    agent = await start("a")
    answer = await agent.call("CreateDelegationToken", CreateDelegationTokenRequest(None, None, [], -1), 3)
    assert answer.error_code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
