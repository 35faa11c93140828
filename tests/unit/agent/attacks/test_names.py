"""Attacks by names: lines forged in logs, terminals steered, look-alikes, patterns that seem to be less."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agent.cli import output
from agent.config import LoggingConfig
from agent.kafka.authority.decide import decide
from agent.kafka.trail.writer import encoded
from agent.net.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest
from agent.telemetry import logs
from coordination.kafka_codes import Code
from coordination.state import acls
from coordination.state.acl_types import Acl, AclTable, Operation, PatternType, Permission, ResourceType
from schema.proto.audit_pb2 import Event
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import SASL, serving

FORGED = 'x\n{"event": "login", "principal": "root"}\r\n\x1b[2J\x9b2J\u2028\u202egnp.exe'
"""A line of its own, an escape sequence in both spellings, a line separator, and a turned direction."""
OBEYED = ("\x1b", "\x9b", "\r", "\u2028", "\u202e")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The process's log; `configure` it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_tells_nothing_of_what_variables_hold(written: io.StringIO, form: str) -> None:
    """Whatever fails while a password is at hand: the code is told, and not its values."""
    logs.configure(LoggingConfig(format=form, level="debug"), written)

    def check(password: str) -> None:
        raise RuntimeError(f"of {len(password)} letters")

    try:
        check("hunter" + "2")
    except RuntimeError:
        logs.logger("attack").exception("it failed")
    text = written.getvalue()
    assert ("RuntimeError" in text, "of 7 letters" in text) == (True, True)
    assert "hunter2" not in text


@pytest.mark.parametrize("form", ["json", "console"])
async def test_log_injection(start: StartAgent, written: io.StringIO, form: str) -> None:
    """Mechanisms, users, client ids and topics of whoever comes: one line an event, with nothing to obey."""
    logs.configure(LoggingConfig(format=form, level="debug"), written)
    agent = await start("a", **SASL, audit_log={"lines": True})
    async with serving(agent) as (_, connect):
        raw = await connect()
        await raw.ask("plain")
        name = FORGED.encode()
        told = await raw.ask(
            ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=b"\0" + name + b"\0password"))
        )
        assert told.error_code == Code.SASL_AUTHENTICATION_FAILED
        other = await connect()
        await other.ask(("SaslHandshake", 1, SaslHandshakeRequest(mechanism=FORGED)))
        client = agent.connect()
        topics = CreateTopicsRequest(topics=[CreatableTopic(FORGED, 1, 1)], timeout_ms=1000)
        await agent.call("CreateTopics", topics, 5, client, client_id=FORGED)
    logs.logger("attack").warning(f"an event {FORGED}", name=FORGED)
    logging.getLogger("library").warning("a library says %s", FORGED)
    text = written.getvalue()
    assert not [one for one in OBEYED if one in text]
    lines = text.splitlines()
    assert len(lines) >= 4
    assert not [line for line in lines if line.startswith('{"event": "login"')]
    assert [line for line in lines if "gnp.exe" in line], "what was said is told all the same"
    if form == "json":
        assert [json.loads(line).get("user") for line in lines if "login failed" in line] == [FORGED]
    else:
        assert all(line[:4].isdigit() for line in lines), "each begins with its time"


async def test_trail_injection(start: StartAgent) -> None:
    """An event of the audit log is fields: a name stays within its own."""
    agent = await start("a", **SASL, audit_log={"lines": True})
    async with serving(agent) as (_, connect):
        raw = await connect()
        await raw.ask("plain")
        sent = b"\0root\nkind=CHANGE outcome=NONE\0password"
        await raw.ask(("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=sent)))
    (event,) = agent.services.trail.take(10)
    told = Event.FromString(encoded(event))
    assert (told.kind, told.outcome) == ("LOGIN", "SASL_AUTHENTICATION_FAILED")
    assert told.principal == "User:root\nkind=CHANGE outcome=NONE"


def test_terminal_injection(capsys: pytest.CaptureFixture[str]) -> None:
    """What `floe` prints of others' names does nothing to the terminal of whoever looks."""
    output.print_table(("group", "state"), [(FORGED, "Stable")])
    output.results().print(f"{FORGED}: 5 records behind")
    output.remarks().print(FORGED)
    output.print_json({"group": FORGED})
    out, err = capsys.readouterr()
    assert not [one for one in OBEYED if one in out + err]
    assert len(out.splitlines()) == 6, "table, a message that may have lines, and JSON"
    assert json.loads(out.splitlines()[-1]) == {"group": FORGED}


def acl(name: str, who: str = "User:alice", pattern: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(ResourceType.TOPIC, pattern, name, who, "*", Operation.READ, Permission.ALLOW)


def may(given: Acl, name: str, who: str) -> bool:
    table = AclTable()
    table.add(given)
    return decide(table, who, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name, unlisted=False)


LOOK_ALIKES = {
    "Cyrillic": "\u0430lice",
    "combined": "alic\u0065\u0301",
    "composed": "alic\u00e9",
    "wide": "\uff41lice",
    "joined": "al\u200dice",
    "bare": "alice\u200b",
    "turned": "\u202ealice",
    "upper": "ALICE",
    "dotless": "al\u0131ce",
    "space": "alice ",
    "null": "alice\0",
    "line": "alice\n",
    "typed": "User:alice",
}


@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES.keys())
def test_look_alikes(name: str) -> None:
    """As users and as topics, in either place: names are what they are, code point by code point."""
    assert may(acl("alice", "User:alice"), "alice", "User:alice")
    assert not may(acl("t", f"User:{name}"), "t", "User:alice")
    assert not may(acl("t", "User:alice"), "t", f"User:{name}")
    assert not may(acl(name), "alice", "User:alice")
    assert not may(acl("alice"), name, "User:alice")
    assert may(acl("t", f"User:{name}"), "t", f"User:{name}")


@pytest.mark.parametrize("name", ["*", ".*", "%", "?", "[a-z]*", "al*", "**", " *", "*\n", "\uff0a"])
def test_wildcards(name: str) -> None:
    """Only a lone asterisk stands for all, as a literal, and never as a part of a name or of a prefix."""
    alone = name == "*"
    assert may(acl(name), "alice", "User:alice") == alone
    assert may(acl("t", f"User:{name}"), "t", "User:alice") == alone
    assert not may(acl(name, pattern=PatternType.PREFIXED), "alice", "User:alice")
    assert not may(acl("t", "User:alice"), "t", f"User:{name}"), "a user of that name is one user"
    assert not may(acl("alice"), name, "User:alice"), "and so is a topic"


@pytest.mark.parametrize(
    "given",
    [
        acl(""),
        acl("t", "alice"),
        acl("t" * (acls.NAME_LENGTH_MAX + 1)),
        acl("t", "User:" + "a" * acls.PRINCIPAL_LENGTH_MAX),
        acl("t")._replace(host="10.0.0.0/99"),
        acl("t")._replace(host="*/0"),
        acl("t", pattern=PatternType.MATCH),
        acl("t", pattern=PatternType.ANY),
    ],
)
def test_patterns_that_are_none(given: Acl) -> None:
    refused = acls.refusal(given)
    assert refused is not None
    assert refused.code == Code.INVALID_REQUEST
