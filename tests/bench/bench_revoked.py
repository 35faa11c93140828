"""A revoked ACL: how long until the next request is refused on each of three agents, etcd on this machine.

A user reads all the time by a connection to each agent, one request after the other, and stays logged in.
Another revokes the ACL by which it may, at each agent in turn. Taken from the moment the revocation is sent
until the last of the three agents has answered a read with a refusal, so its own append is in it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import sasl_authenticate as sa
from agent.net.wire.generated import sasl_handshake as sh
from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.doors import PASSWORD, PLAIN_USER, Doors
from tests.bench.figure import Figure
from tests.bench.load import FETCH_VERSION, Wire, create_topic

AGENTS, TIMES, TOPIC = 3, 100, "secret"
REFUSED_S_MAX = 30.0
PRINCIPAL = f"User:{PLAIN_USER}"
READ = f.FetchRequest(
    max_wait_ms=0,
    min_bytes=0,
    max_bytes=1 << 20,
    topics=[
        f.FetchTopic(TOPIC, partitions=[f.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    ],
)


class Reader:
    """The user's connection to one agent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @classmethod
    async def at(cls, port: int) -> Reader:
        """Logged in by PLAIN."""
        wire = await Wire.open(f"127.0.0.1:{port}")
        assert (await wire.call("SaslHandshake", sh.SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
        said = f"\0{PLAIN_USER}\0{PASSWORD}".encode()
        assert (await wire.call("SaslAuthenticate", sa.SaslAuthenticateRequest(said), 2)).error_code == 0
        return cls(wire)

    async def until(self, code: Code) -> float:
        """Read until the answer is this; when that came."""
        async with asyncio.timeout(REFUSED_S_MAX):
            while True:
                answer = await self._wire.call("Fetch", READ, FETCH_VERSION)
                found = answer.responses[0].partitions[0].error_code
                assert found in (Code.NONE, Code.TOPIC_AUTHORIZATION_FAILED), answer
                if found == code:
                    return time.monotonic()

    async def close(self) -> None:
        """Hang up."""
        await self._wire.close()


async def allow(wire: Wire) -> None:
    """Let the user read the topic."""
    row = ca.AclCreation(
        ResourceType.TOPIC, TOPIC, PatternType.LITERAL, PRINCIPAL, "*", Operation.READ, Permission.ALLOW
    )
    answer = await wire.call("CreateAcls", ca.CreateAclsRequest([row]), 3)
    assert answer.results[0].error_code == 0, answer


async def revoke(wire: Wire) -> None:
    """No longer."""
    row = da.DeleteAclsFilter(
        ResourceType.TOPIC, TOPIC, PatternType.LITERAL, PRINCIPAL, "*", Operation.READ, Permission.ALLOW
    )
    answer = await wire.call("DeleteAcls", da.DeleteAclsRequest([row]), 3)
    assert len(answer.filter_results[0].matching_acls) == 1, answer


async def measure(doors: Sequence[Doors]) -> list[float]:
    """Seconds of each revocation until all agents refuse."""
    readers = [await Reader.at(each.ports["SASL_PLAINTEXT"]) for each in doors]
    admins = [await Wire.open(f"127.0.0.1:{each.ports['PLAINTEXT']}") for each in doors]
    taken = []
    for number in range(TIMES):
        admin = admins[number % len(admins)]
        await allow(admin)
        await asyncio.gather(*(reader.until(Code.NONE) for reader in readers))
        reading = [asyncio.ensure_future(reader.until(Code.TOPIC_AUTHORIZATION_FAILED)) for reader in readers]
        await asyncio.sleep(0.01)
        begun = time.monotonic()
        await revoke(admin)
        taken.append(max(await asyncio.gather(*reading)) - begun)
    await asyncio.gather(*(each.close() for each in readers), *(each.close() for each in admins))
    return taken


def figures() -> Iterable[Figure]:
    """Three agents on etcd and MinIO."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        bucket = minio.make_bucket("bench")
        doors = [Doors(folder / str(number)) for number in range(AGENTS)]
        rules = {"mode": "enforce", "super_users": "User:ANONYMOUS"}
        for number, each in enumerate(doors):
            settings = on_services(etcd, minio, bucket, authorizer=rules) | each.settings
            stack.enter_context(FloeAgent(f"agent-{number}", settings))
        asyncio.run(create_topic(f"127.0.0.1:{doors[0].ports['PLAINTEXT']}", TOPIC, 1))
        taken = sorted(asyncio.run(measure(doors)))
    name = f"ACL revoked, until all {AGENTS} agents refuse the next request"
    yield Figure(f"{name}: p50", taken[len(taken) // 2] * 1e3, "ms", better="less")
    yield Figure(f"{name}: p99", taken[len(taken) * 99 // 100] * 1e3, "ms", goal=100, better="less")
