"""User enumeration: neither words, nor salts, nor how much work it was tell whether a user is there."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.config import users
from agent.kafka.login import scram
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from coordination.commands import PutScramCredential
from coordination.kafka_codes import Code
from coordination.state.scram_types import ScramCredential
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import What, serving
from tests.unit.agent.rig import Agent

LISTENERS = [{"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "PLAIN,SCRAM-SHA-256"}]
KNOWN, ADMIN, NOBODY = "alice", "root", "nobody"
ROUNDS = 4_096


@pytest.fixture
def sasl(tmp_path: Path) -> dict[str, Any]:
    """Alice's line has other rounds than this version writes, as after an upgrade."""
    line = users.line_of(KNOWN, "secret", bytes(16))
    file = tmp_path / "users"
    file.write_text(line.replace(f":{users.ITERATIONS}:", ":30000:"))
    return {
        "admin_user": ADMIN, "admin_password": "root-secret", "failed_delay_ms": 0, "users_file": str(file),
    }  # fmt: skip


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rounds of hashing that were done."""
    real, done = hashlib.pbkdf2_hmac, Counter[str]()

    def counted(digest: str, password: bytes, salt: bytes, rounds: int) -> bytes:
        done["rounds"] += rounds
        return real(digest, password, salt, rounds)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    return done


async def make_alice(agent: Agent) -> None:
    """A user of SCRAM in the replicated state."""
    salt = b"0123456789abcdefghijklmnop"
    salted = scram.salted("sha256", "secret", salt, ROUNDS)
    made = ScramCredential(ROUNDS, salt, *scram.keys("sha256", salted))
    command = PutScramCredential(
        user=KNOWN,
        mechanism=1,
        iterations=made.iterations,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        secret=bytes(range(32)),
    )
    await agent.services.replica.propose(command)


def step(content: bytes) -> What:
    """One message of a login."""
    return ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=content))


def salt_of(first_answer: bytes) -> bytes:
    """What the server's first message of SCRAM says."""
    fields = dict(each.split("=", 1) for each in first_answer.decode().split(","))
    assert fields["i"] == str(ROUNDS)
    return base64.b64decode(fields["s"])


async def test_by_message_and_by_work_of_plain(
    start: StartAgent, sasl: dict[str, Any], work: Counter[str]
) -> None:
    agent = await start("a", listeners=LISTENERS, sasl=sasl)
    told, done = [], []
    async with serving(agent) as (_, connect):
        for user in (KNOWN, NOBODY, ADMIN):
            raw = await connect()
            await raw.ask("plain")
            work.clear()
            answer = await raw.ask(step(f"\0{user}\0wrong".encode()))
            told.append((answer.error_code, answer.error_message, answer.auth_bytes))
            done.append(work["rounds"])
    assert set(told) == {
        (Code.SASL_AUTHENTICATION_FAILED, "Authentication failed: Invalid username or password", b"")
    }
    assert done == [30_000] * 3, "as many rounds as most users have"


async def test_by_message_and_by_work_of_scram(
    start: StartAgent, sasl: dict[str, Any], work: Counter[str]
) -> None:
    """The first that asks causes the administrator's credential, whoever it is; nobody after it any work."""
    agent = await start("a", listeners=LISTENERS, sasl=sasl)
    await make_alice(agent)
    told, done = [], []
    async with serving(agent) as (_, connect):
        for user in (NOBODY, ADMIN, KNOWN):
            raw = await connect()
            await raw.ask("scram")
            work.clear()
            first = (await raw.ask(step(f"n,,n={user},r=mine".encode()))).auth_bytes
            assert len(salt_of(first)) == scram.SALT_LENGTH
            nonce = first.decode().split(",")[0]
            proof = base64.b64encode(bytes(32)).decode()
            answer = await raw.ask(step(f"c=biws,{nonce},p={proof}".encode()))
            told.append((answer.error_code, answer.error_message, answer.auth_bytes))
            done.append(work["rounds"])
    assert len(set(told)) == 1
    assert told[0][0] == Code.SASL_AUTHENTICATION_FAILED
    assert done == [ROUNDS, 0, 0]


async def test_by_salt(start: StartAgent, sasl: dict[str, Any]) -> None:
    """Two agents say the same of every name, before a user was made and after it: nobody stands out."""
    agents = [await start(name, listeners=LISTENERS, sasl=sasl) for name in ("a", "b")]
    names = (NOBODY, ADMIN, "somebody")

    async def said() -> list[list[bytes]]:
        """By name, of both agents."""
        for agent in agents:
            await agent.services.replica.barrier()
        found = [[(await each.services.logins.credential(name, 1)).salt for each in agents] for name in names]
        again = [[(await each.services.logins.credential(name, 1)).salt for each in agents] for name in names]
        assert found == again
        return found

    before = await said()
    assert all(one != other for one, other in before), "made by each agent for itself"
    await make_alice(agents[0])
    after = await said()
    assert all(one == other for one, other in after), "made by what is in the log now"
    assert len({one for one, _ in after}) == len(names)
