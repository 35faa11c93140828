"""An agent whose HTTP side asks who it is, with users of every kind, for tests of identities and ACLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.config.users import UsersFile, line_of
from agent.kafka.assembly import authority_of, logins_of
from agent.kafka.login import scram
from agent.kafka.login.passwords import Passwords
from agent.net.tokens.identity import Bearers, Identity, TokenRefused
from agent.telemetry.shadow import Shadow
from agent.telemetry.trail import Trail
from coordination.commands import AclBinding, CreateAcls
from coordination.memory_server import MemoryServer
from coordination.state.acl_types import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from coordination.state.scram_types import ScramCredential
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from tests.unit.agent.http.conftest import Edge, agent_on


class OneToken:
    """Takes tokens that begin with `t-`; `t-right` is Tom's."""

    def takes(self, token: str) -> bool:
        """By its beginning."""
        return token.startswith("t-")

    async def verify(self, token: str) -> Identity:
        """Raises TokenRefused."""
        if token != "t-right":
            raise TokenRefused("a secret reason")
        return Identity("tom", 0)


@asynccontextmanager
async def closed_agent(folder: Path, mode: str = "off", **more: dict[str, object]) -> AsyncIterator[Edge]:
    """`ann` is in the users' file, `sam` logs in by SCRAM, `root` is the administrator; passwords are
    `ann's` and so on. `mode`: of the authorizer, above which `root` is. `more`: other sections."""
    users = folder / "users"
    users.write_text(line_of("ann", "ann's", bytes(16)))
    http = {"host": "127.0.0.1", "port": 0, "authentication": "required", "barrier_timeout_ms": 300}
    sasl = {"users_file": str(users), "admin_user": "root", "admin_password": "root's", "failed_delay_ms": 0}
    authorizer = {"mode": mode, "super_users": "User:root"}
    sections: dict[str, dict[str, object]] = {"http": http, "sasl": sasl, "authorizer": authorizer, **more}
    async with agent_on(MemoryServer(), FaultyStore(MemoryStore(), 1), **sections) as edge:
        parts = edge.parts
        logins = logins_of(
            parts.config, parts.clock, parts.replica, parts.metrics, UsersFile(str(users)), None
        )
        salted = scram.salted("sha512", "sam's", b"salt", 4096)
        credential = ScramCredential(4096, b"salt", *scram.keys("sha512", salted))
        parts.replica.state.scram.credentials["sam", 2] = credential
        trail, shadow = (
            Trail(parts.config.audit_log, parts.clock, "edge", parts.metrics),
            Shadow(parts.clock, 100),
        )
        authority = authority_of(parts.config, parts.clock, parts.replica, parts.metrics, shadow, trail)
        passwords, bearers = Passwords(logins, bytes(32)), Bearers([OneToken()])
        edge.have(passwords=passwords, bearers=bearers, trail=trail, shadow=shadow, authority=authority)
        yield edge


def acl(user: str, operation: Operation, topic: str = "") -> AclBinding:
    """For a topic, else for the cluster."""
    return AclBinding(
        resource_type=ResourceType.TOPIC if topic else ResourceType.CLUSTER,
        pattern_type=PatternType.LITERAL,
        name=topic or CLUSTER_NAME,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
    )


async def allow(edge: Edge, user: str, operation: Operation, topic: str = "") -> None:
    """An ACL for a topic, else for the cluster."""
    assert isinstance(await edge.replica.propose(CreateAcls(acls=[acl(user, operation, topic)])), Done)
