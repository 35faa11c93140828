"""Attacks by whoever has not logged in: too much, too slowly, by the thousand, what was heard."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac

import pytest

from agent.kafka.login import scram
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from coordination.kafka_codes import Code
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import SASL, Raw, What, serving
from tests.unit.agent.net.server.harness import until
from tests.unit.agent.rig import Agent

NONCE = "clients-own-nonce"
STRANGERS, MAX = 2_000, 100
SLOW_S = 0.02
"""Between two bytes of whoever is slow, seconds."""


@pytest.fixture
async def agent(start: StartAgent) -> Agent:
    return await start("a", **SASL)


def step(content: bytes) -> What:
    """One message of a login."""
    return ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=content))


def proven(first_answer: bytes, password: str = "secret") -> bytes:
    """What a client answers to the server's first message (RFC 5802)."""
    fields = dict(each.split("=", 1) for each in first_answer.decode().split(","))
    salted = scram.salted("sha256", password, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    unproven = f"c=biws,r={fields['r']}"
    signed = f"n=root,r={NONCE},{first_answer.decode()},{unproven}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


async def challenged(raw: Raw) -> bytes:
    """The server's first message."""
    await raw.ask("scram")
    answer = await raw.ask(step(f"n,,n=root,r={NONCE}".encode()))
    return bytes(answer.auth_bytes)


async def cut_off(raw: Raw) -> bool:
    """Whether the other side ended the connection, sooner or later."""
    try:
        return await asyncio.wait_for(raw.reader.read(1), 20) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("before", [[], ["plain"], ["scram"]], ids=["at-once", "plain", "scram"])
async def test_frame_beyond_the_receive_size(agent: Agent, before: list[str]) -> None:
    """Wherever in a login it comes, nothing of it is kept; one of just that size is read."""
    async with serving(agent, stranger_frame_bytes_max=4096) as (server, connect):
        large, whole = await connect(), await connect()
        for raw in (large, whole):
            for what in before:
                await raw.ask(what)
        large.writer.write((4097).to_bytes(4, "big") + bytes(4000))
        assert await cut_off(large)
        whole.writer.write((4096).to_bytes(4, "big") + bytes(4095))
        await whole.writer.drain()
        await until(lambda: server.request_bytes > 0)
        assert server.request_bytes <= 4096


async def test_slow_bytes(agent: Agent) -> None:
    """Who always has another byte to send is cut when its time is over, and meanwhile holds nobody up."""
    async with serving(agent, login_s_max=0.5) as (server, connect):
        slow, known = await connect(), await connect()

        async def trickle() -> None:
            slow.writer.write((4096).to_bytes(4, "big"))
            while not slow.writer.is_closing():
                slow.writer.write(b"\0")
                await asyncio.sleep(SLOW_S)

        trickling = asyncio.create_task(trickle())
        await known.ask("plain")
        await known.ask("good")
        assert await cut_off(slow)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
        assert await known.ask("metadata") is not None
        assert server.connections == 1


async def test_slow_login(agent: Agent) -> None:
    """Whole requests that are no login do not lengthen its time either."""
    async with serving(agent, login_s_max=0.5) as (_, connect):
        slow = await connect()
        asked = 0
        while await slow.ask("versions") is not None:
            asked += 1
            await asyncio.sleep(SLOW_S)
        assert asked > 1


async def test_logins_half_done_by_the_thousand(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in the midst of SCRAM. So many are held and no more, the newest stay, and others are served."""
    monkeypatch.setattr(agent.services.replica, "check_awake", lambda: True)  # a slow machine is no pause
    async with serving(agent, strangers_max=MAX) as (server, connect):
        known = await connect()
        await known.ask("plain")
        await known.ask("good")
        most = 0
        for number in range(STRANGERS):
            raw = await connect()
            raw.send("scram")
            raw.send(step(f"n,,n=root{number},r={NONCE}".encode()))
            most = max(most, server.connections)
            if number % 500 == 499:
                assert await known.ask("metadata") is not None
        assert most <= MAX + 1
        late = await connect()
        await late.ask("plain")
        assert (await late.ask("good")).error_code == Code.NONE
        assert len(agent.services.logins._failures) == 0, "nothing is remembered of whoever did not finish"


async def test_replayed_scram_messages(agent: Agent) -> None:
    """What a login said lets nobody in again: neither on its own connection nor on another."""
    async with serving(agent) as (_, connect):
        heard = await connect()
        first = await challenged(heard)
        final = proven(first)
        assert (await heard.ask(step(final))).error_code == Code.NONE
        assert (await heard.ask(step(final))).error_code == Code.ILLEGAL_SASL_STATE
        other = await connect()
        second = await challenged(other)
        assert second != first, "the server's nonce is another each time"
        replayed = await other.ask(step(final))
        assert replayed.error_code == Code.SASL_AUTHENTICATION_FAILED
        assert await other.ask(step(proven(second))) is None, "nor by a second try on this connection"


async def test_final_message_first(agent: Agent) -> None:
    async with serving(agent) as (_, connect):
        heard, other = await connect(), await connect()
        final = proven(await challenged(heard))
        await other.ask("scram")
        assert (await other.ask(step(final))).error_code == Code.SASL_AUTHENTICATION_FAILED
        assert (await heard.ask(step(final))).error_code == Code.NONE, "the other one changed nothing here"


@pytest.mark.parametrize("mechanism", ["plain", "scram"])
async def test_messages_of_another_mechanism(agent: Agent, mechanism: str) -> None:
    """A proof of SCRAM is no password, a password no message of SCRAM."""
    async with serving(agent) as (_, connect):
        heard, other = await connect(), await connect()
        final = proven(await challenged(heard))
        await other.ask(mechanism)
        sent = final if mechanism == "plain" else b"\0root\0secret"
        assert (await other.ask(step(sent))).error_code == Code.SASL_AUTHENTICATION_FAILED


async def test_requests_in_the_middle_of_scram(agent: Agent) -> None:
    """Also where they come in one piece with a right proof that stands behind them."""
    async with serving(agent) as (_, connect):
        raw = await connect()
        final = proven(await challenged(raw))
        raw.send("metadata")
        raw.send(step(final))
        assert await raw.answer("metadata") is None
        done = agent.services.metrics.registry.get_sample_value
        assert not done("floe_logins_total", {"mechanism": "SCRAM-SHA-256", "outcome": "done"})
