"""Logins: what is said to whom who is not who they say, and how delegation tokens are asked for.

Asked of a listener with SASL (secured.py). Times and ids are left out of the answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar

from agent.net.wire.generated import alter_user_scram_credentials as aus
from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import create_delegation_token as cdt
from agent.net.wire.generated import describe_delegation_token as ddt
from agent.net.wire.generated import describe_user_scram_credentials as dus
from agent.net.wire.generated import expire_delegation_token as edt
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import renew_delegation_token as rdt
from agent.net.wire.generated import sasl_authenticate as sa
from agent.net.wire.generated import sasl_handshake as sh
from tests.bench.load import Wire
from tests.compat.against.questions_bad import errors
from tests.compat.against.secured import USERS, Secured
from tests.compat.against.side import Answers, code, told
from tests.equipment.tokens import Issuer, base64, claims

ANSWER_S_MAX = 10
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CLOSED = "closed"
VERSIONS = av.ApiVersionsRequest(client_software_name="raw", client_software_version="1")

LoginQuestion = Callable[[Secured], Awaitable[Answers]]


class Talking:
    """One connection."""

    opened: ClassVar[list[Talking]] = []

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.opened.append(self)

    @classmethod
    async def all_end(cls) -> None:
        """Hang up everywhere."""
        while cls.opened:
            with suppress(ConnectionError):
                await cls.opened.pop()._wire.close()

    @classmethod
    async def at(cls, address: str, mechanism: str = "") -> Talking:
        """Connect, and choose a mechanism where one is given."""
        talking = cls(await Wire.open(address))
        if mechanism:
            assert (await talking.ask("SaslHandshake", sh.SaslHandshakeRequest(mechanism), 1)).error_code == 0
        return talking

    async def ask(self, name: str, request: Any, version: int) -> Any:
        """The answer; None when the connection was closed instead."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self._wire.call(name, request, version)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def step(self, content: bytes) -> Any:
        """SaslAuthenticate."""
        return await self.ask("SaslAuthenticate", sa.SaslAuthenticateRequest(content), 2)

    async def says(self, content: bytes) -> str:
        """SaslAuthenticate as text."""
        return _said(await self.step(content))

    async def shakes(self, mechanism: str, version: int = 1) -> str:
        """SaslHandshake as text."""
        answer = await self.ask("SaslHandshake", sh.SaslHandshakeRequest(mechanism), version)
        return CLOSED if answer is None else f"{code(answer.error_code)} {sorted(answer.mechanisms)}"

    async def serves(self) -> str:
        """Whether other requests are answered."""
        request = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        answer = await self.ask("Metadata", request, 9)
        return CLOSED if answer is None else "served" if answer.brokers else "refused"


def _said(answer: Any) -> str:
    if answer is None:
        return CLOSED
    lasts = "for ever" if not answer.session_lifetime_ms else "for a time"
    if answer.auth_bytes[:2] == b"r=":  # with a nonce
        answer.auth_bytes = b"r="
    return f"{told(answer.error_code, answer.error_message)} {bytes(answer.auth_bytes)!r} {lasts}"


def plain_of(user: str, password: str, act_as: str = "") -> bytes:
    return f"{act_as}\0{user}\0{password}".encode()


ALICE = plain_of("alice", USERS["alice"])


async def order(secured: Secured) -> Answers:
    """What comes before, in the middle of, and after a login."""
    found: Answers = {}
    for label, mechanism in {
        "unknown": "NTLM",
        "empty": "",
        "lower case": "plain",
        "long": "x" * 5000,
    }.items():
        talking = await Talking.at(secured.logins)
        found[f"handshake, {label}"] = await talking.shakes(mechanism)
    for version in (0, 1):
        found[f"handshake {version}"] = await (await Talking.at(secured.logins)).shakes("PLAIN", version)
    for label, requests in {
        "metadata first": ["metadata"],
        "authenticate first": ["alice"],
        "versions first": ["versions", "PLAIN", "alice", "metadata"],
        "versions after the handshake": ["PLAIN", "versions"],
        "two handshakes": ["PLAIN", "PLAIN"],
        "metadata after the handshake": ["PLAIN", "metadata"],
        "handshake after the login": ["PLAIN", "alice", "PLAIN", "metadata"],
        "authenticate after the login": ["PLAIN", "alice", "alice", "metadata"],
        "another mechanism after the login": ["PLAIN", "alice", "SCRAM-SHA-256"],
    }.items():
        found[label] = "; ".join([await _each(secured, requests)])
    elsewhere = await Talking.at(secured.plain)
    found["handshake without SASL"] = await elsewhere.shakes("PLAIN")
    found["authenticate without SASL"] = await elsewhere.says(ALICE)
    found["served without SASL"] = await elsewhere.serves()
    return found


async def _each(secured: Secured, requests: list[str]) -> str:
    talking = await Talking.at(secured.logins)
    said = []
    for what in requests:
        if what == "metadata":
            said.append(await talking.serves())
        elif what == "versions":
            answer = await talking.ask("ApiVersions", VERSIONS, 3)
            said.append(CLOSED if answer is None else code(answer.error_code))
        else:
            said.append(await (talking.says(ALICE) if what == "alice" else talking.shakes(what)))
    return "; ".join(said)


async def plain(secured: Secured) -> Answers:
    """PLAIN with every part of it wrong."""
    found: Answers = {}
    for label, content in {
        "good": ALICE,
        "acting as oneself": plain_of("alice", USERS["alice"], "alice"),
        "wrong password": plain_of("alice", "x"),
        "no such user": plain_of("nobody", "x"),
        "no user": plain_of("", "x"),
        "no password": plain_of("alice", ""),
        "acting as another": plain_of("alice", USERS["alice"], "root"),
        "nothing": b"",
        "two parts": b"alice\0x",
        "four parts": b"\0alice\0x\0y",
        "not UTF-8": b"\0\xff\xfe\0x",
    }.items():
        talking = await Talking.at(secured.logins, "PLAIN")
        found[label] = f"{await talking.says(content)}; {await talking.serves()}"
    return found


def scram_final(digest: str, password: str, first: str, server: str, **changed: str) -> bytes:
    """The client's last message; `changed` replaces parts of it."""
    parts = dict(part.split("=", 1) for part in server.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), b64decode(parts["s"]), int(parts["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    said = {"c": "biws", "r": parts["r"]} | changed
    final = f"c={said['c']},r={said['r']}"
    stored = hashlib.new(digest, client_key).digest()
    signature = hmac.digest(stored, f"{first},{server},{final}".encode(), digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{final},p={changed.get('p', b64encode(proof).decode())}".encode()


async def scram(secured: Secured) -> Answers:
    """SCRAM with every message wrong; bob is made first."""
    found: Answers = {}
    await set_bob(secured)
    for mechanism, digest in DIGESTS.items():
        for label, first in {
            "no message": b"", "binding asked for": b"p=tls-unique,,n=bob,r=abc", "no nonce": b"n,,n=bob",
            "acting as another": b"n,a=root,n=bob,r=abc", "equals": b"n,,n=b=ob,r=abc",
            "mandatory extension": b"n,,m=x,n=bob,r=abc", "not UTF-8": b"n,,n=\xff,r=abc",
        }.items():  # fmt: skip
            talking = await Talking.at(secured.logins, mechanism)
            found[f"{mechanism} first: {label}"] = await talking.says(first)
        for label, changed in {
            "good": {}, "binding": {"c": "eSws"}, "nonce": {"r": "abc"}, "proof": {"p": "AAAA"},
            "junk": {"p": "*"},
        }.items():  # fmt: skip
            found[f"{mechanism} final: {label}"] = await _scram(secured, mechanism, digest, "bob", **changed)
        found[f"{mechanism} wrong password"] = await _scram(secured, mechanism, digest, "bob", "x")
    return found


async def set_bob(secured: Secured) -> None:
    """A user of SCRAM, known everywhere a moment later."""
    rows = [
        aus.ScramCredentialUpsertion(
            "bob", number, 4096, b"salt", hashlib.pbkdf2_hmac(digest, b"third-password", b"salt", 4096)
        )
        for number, digest in enumerate(DIGESTS.values(), 1)
    ]
    talking = await logged_in(secured, "root")
    for row in rows:
        request = aus.AlterUserScramCredentialsRequest([], [row])
        answer = await talking.ask("AlterUserScramCredentials", request, 0)
        assert not answer.results[0].error_code, answer
    async with asyncio.timeout(30):
        while "NONE" not in await _scram(secured, "SCRAM-SHA-512", "sha512", "bob"):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.1)


async def _scram(
    secured: Secured, mechanism: str, digest: str, user: str, password: str = "third-password", **changed: str
) -> str:
    talking = await Talking.at(secured.logins, mechanism)
    first = f"n={user},r=abc"
    server = await talking.step(f"n,,{first}".encode())
    if server is None or server.error_code:
        return f"first: {_said(server)}"
    message = scram_final(digest, password, first, bytes(server.auth_bytes).decode(), **changed)
    final = await talking.step(message)
    if final is not None and not final.error_code:
        final.auth_bytes = final.auth_bytes[:2]
    return f"{_said(final)}; {await talking.serves()}"


async def logged_in(secured: Secured, user: str) -> Talking:
    """A connection of that user, by PLAIN."""
    talking = await Talking.at(secured.logins, "PLAIN")
    answer = await talking.step(plain_of(user, USERS[user]))
    assert not answer.error_code, answer
    return talking


def bearer(token: str, act_as: str = "") -> bytes:
    named = f"a={act_as}" if act_as else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()


def _tokens(issuer: Issuer) -> dict[str, bytes]:
    now = int(time.time())
    stranger = Issuer()
    unsigned = ".".join(base64(json.dumps(one).encode()) for one in ({"alg": "none"}, claims()))
    changed: dict[str, dict[str, Any]] = {
        "good": {}, "expired": {"exp": now - 1000}, "just expired": {"exp": now - 5}, "no exp": {"exp": None},
        "not yet": {"nbf": now + 1000}, "issued later": {"iat": now + 1000}, "no iat": {"iat": None},
        "wrong issuer": {"iss": "x"}, "no issuer": {"iss": None}, "wrong audience": {"aud": "x"},
        "no audience": {"aud": None}, "one of its audiences": {"aud": ["x", "floe"]}, "no sub": {"sub": None},
        "empty sub": {"sub": ""}, "blank sub": {"sub": " "}, "sub is a number": {"sub": 7},
        "exp is a text": {"exp": "1"},
    }  # fmt: skip
    return {label: bearer(issuer.token(**each)) for label, each in changed.items()} | {
        "unsigned": bearer(unsigned + "."),
        "of a stranger": bearer(stranger.token()),
        "of an unknown key": bearer(stranger.token(header={"kid": "x"})),
        "without a kid": bearer(issuer.token(header={"kid": None})),
        "no token": bearer("abc"),
        "acting as oneself": bearer(issuer.token(), "alice"),
        "acting as another": bearer(issuer.token(), "root"),
        "nothing": b"",
        "no auth": b"n,,\x01host=x\x01\x01",
        "basic": b"n,,\x01auth=Basic abc\x01\x01",
        "y": b"y,,\x01auth=Bearer abc\x01\x01",
    }


async def oauthbearer(secured: Secured) -> Answers:
    """OAUTHBEARER: each answer, the one to the client's word that it heard, and what is served then."""
    found: Answers = {}
    for label, content in _tokens(secured.issuer).items():
        talking = await Talking.at(secured.logins, "OAUTHBEARER")
        answer = await talking.step(content)
        said = [_said(answer)]
        if answer is not None and answer.auth_bytes:
            said.append(await talking.says(b"\x01"))
        found[label] = "; ".join([*said, await talking.serves()])
    return found


async def users(secured: Secured) -> Answers:
    """Users of SCRAM: set, told and deleted."""
    found: Answers = {}
    talking = await logged_in(secured, "root")
    good = aus.ScramCredentialUpsertion("carol", 1, 4096, b"salt", b"s" * 32)

    def up(name: str = "carol", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt") -> Any:
        return aus.ScramCredentialUpsertion(name, mechanism, iterations, salt, b"s" * 32)

    for label, (deletions, upsertions) in {
        "nothing": ([], []),
        "delete nobody": ([("nobody", 1)], []),
        "delete by no mechanism": ([("nobody", 0)], []),
        "too few iterations": ([], [up(iterations=4095)]),
        "too many iterations": ([], [up(iterations=16385)]),
        "no mechanism": ([], [up(mechanism=0)]),
        "unknown mechanism": ([], [up(mechanism=9)]),
        "no name": ([], [up("")]),
        "twice": ([], [good, good]),
        "by both mechanisms": ([], [up("judy"), up("judy", 2)]),
        "set and deleted": ([("carol", 1)], [good]),
        "one good and one bad": ([], [up("dave"), up("erin", iterations=1)]),
        "set": ([], [good]),
        "delete": ([("carol", 1), ("dave", 1)], []),
    }.items():
        rows = [aus.ScramCredentialDeletion(*one) for one in deletions]
        request = aus.AlterUserScramCredentialsRequest(rows, upsertions)
        answer = await talking.ask("AlterUserScramCredentials", request, 0)
        found[label] = errors(answer)
    asked = dus.DescribeUserScramCredentialsRequest([dus.UserName("nobody")])
    found["describe nobody"] = errors(await talking.ask("DescribeUserScramCredentials", asked, 0))
    return found


def _times(answer: Any) -> str:
    """How long it holds and can be renewed, ms, as far as it was asked for."""
    since = answer.issue_timestamp_ms
    return f"{answer.expiry_timestamp_ms - since} {answer.max_timestamp_ms - since}"


def _created(answer: Any) -> str:
    owner = f"{answer.principal_type}:{answer.principal_name}"
    asks = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
    size = len(bytes(answer.hmac))
    return f"{code(answer.error_code)} {owner} {asks} {_times(answer)} {len(answer.token_id)} {size}"


async def _create(by: Talking, lifetime_ms: int, renewers: list[Any], version: int = 3) -> Any:
    request = cdt.CreateDelegationTokenRequest(None, None, renewers, lifetime_ms)
    return await by.ask("CreateDelegationToken", request, version)


def _moved(answer: Any) -> str:
    return f"{code(answer.error_code)} {answer.expiry_timestamp_ms if answer.error_code else 'a time'}"


async def _renew(by: Talking, shown: bytes, period_ms: int) -> str:
    request = rdt.RenewDelegationTokenRequest(shown, period_ms)
    return _moved(await by.ask("RenewDelegationToken", request, 2))


async def _expire(by: Talking, shown: bytes, period_ms: int) -> str:
    request = edt.ExpireDelegationTokenRequest(shown, period_ms)
    return _moved(await by.ask("ExpireDelegationToken", request, 2))


async def _described(by: Talking, owners: list[Any] | None) -> Any:
    return await by.ask("DescribeDelegationToken", ddt.DescribeDelegationTokenRequest(owners), 3)


async def _shows(by: Talking, wanted: int) -> None:
    """Wait until so many tokens are told: Kafka's brokers know of a change a moment later."""
    async with asyncio.timeout(30):
        while len((await _described(by, None)).tokens) != wanted:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.1)


async def tokens(secured: Secured) -> Answers:
    """Delegation tokens, of whom and by whom."""
    alice, elsewhere = await logged_in(secured, "alice"), await Talking.at(secured.plain)
    found: Answers = {}
    made = await _create(alice, 100_000, [cdt.CreatableRenewers("User", "bob")])
    found["create"] = _created(made)
    found["create for long"] = _created(await _create(alice, 2**60, []))
    found["create by default"] = _created(await _create(alice, -1, [], 2))
    odd = [cdt.CreatableRenewers("Group", "x")]
    found["create, another kind of renewer"] = _created(await _create(alice, 1000, odd))
    await _shows(alice, 3)
    found["create where nobody logs in"] = _created(await _create(elsewhere, 1000, []))
    shown, root = bytes(made.hmac), await logged_in(secured, "root")
    found["renew"] = await _renew(alice, shown, 50_000)
    found["renew by default"] = await _renew(alice, shown, -1)
    found["renew nothing"] = await _renew(alice, b"x" * 64, 1000)
    found["renew where nobody logs in"] = await _renew(elsewhere, shown, 1000)
    found["renew another's"] = await _renew(root, shown, 1000)
    found["expire another's"] = await _expire(root, shown, -1)
    found["expire later"] = await _expire(alice, shown, 90_000)
    for label, by, owners in (("of nobody", alice, []), ("where nobody logs in", elsewhere, None)):
        answer = await _described(by, owners)
        found[f"describe {label}"] = f"{code(answer.error_code)} {len(answer.tokens)}"
    found["by the token"] = await _by_token(secured, made)
    found["expire"] = await _expire(alice, shown, -1)
    await _shows(alice, 2)
    found["expire where nobody logs in"] = await _expire(elsewhere, shown, -1)
    found["expire again"] = await _expire(alice, shown, -1)
    found["by the token that is gone"] = await _by_token(secured, made)
    return found


async def _by_token(secured: Secured, made: Any) -> str:
    """Log in by it, and ask for another one."""
    talking = await Talking.at(secured.logins, "SCRAM-SHA-256")
    first = f"n={made.token_id},r=abc,tokenauth=true"
    server = await talking.step(f"n,,{first}".encode())
    if server.error_code:
        return told(server.error_code, server.error_message)
    password = b64encode(bytes(made.hmac)).decode()
    final = await talking.step(scram_final("sha256", password, first, bytes(server.auth_bytes).decode()))
    if final.error_code:
        return told(final.error_code, final.error_message)
    request = cdt.CreateDelegationTokenRequest(None, None, [], 1000)
    other = await talking.ask("CreateDelegationToken", request, 3)
    lasts = "for a time" if final.session_lifetime_ms else "for ever"
    return f"{lasts}; another: {_created(other)}"


def _to_the_end(question: LoginQuestion) -> LoginQuestion:
    async def asked(secured: Secured) -> Answers:
        try:
            return await question(secured)
        finally:
            await Talking.all_end()

    return asked


QUESTIONS: dict[str, LoginQuestion] = {
    "Logins.order": _to_the_end(order),
    "Logins.plain": _to_the_end(plain),
    "Logins.scram": _to_the_end(scram),
    "Logins.oauthbearer": _to_the_end(oauthbearer),
    "Logins.users": _to_the_end(users),
    "Logins.tokens": _to_the_end(tokens),
}
