"""Apache Kafka with a login and StandardAuthorizer, an agent like it, and connections that have logged in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import describe_acls as de
from agent.net.wire.generated import describe_topic_partitions as dtp
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import sasl_authenticate as sa
from agent.net.wire.generated import sasl_handshake as sh
from deploy.services.kafka import Kafka
from deploy.services.ports import free_port
from tests.bench.load import Wire
from tests.compat.conftest import Embedded, start

ROOT, ALICE = "root", "alice"
PASSWORDS = {ROOT: "root-password", ALICE: "alice-password"}
ANSWER_S_MAX = 10
LEADER_S_MAX = 60
LOOK_S = 0.02


class SecuredKafka(Kafka):
    """One node whose clients log in by PLAIN; `root` may everything."""

    def _base(self) -> list[str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        login = f'username="{ROOT}" password="{PASSWORDS[ROOT]}"'
        return [
            *super()._base(),
            "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN",
            "sasl.mechanism.inter.broker.protocol=PLAIN",
            "listener.name.plaintext.plain.sasl.jaas.config="
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {login} {users};",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            f"super.users=User:{ROOT};User:ANONYMOUS",
            "group.initial.rebalance.delay.ms=0",
        ]


def secured_agent(folder: Path, mode: str = "enforce") -> tuple[Embedded, str]:
    """An agent that asks ACLs, and the address where clients log in."""
    users, port = folder / "users", free_port()
    lines = []
    for name, password in PASSWORDS.items():
        command = [sys.executable, "-m", "agent", "user", "hash", name]
        done = subprocess.run(command, input=password + "\n", text=True, capture_output=True, check=True)
        lines.append(done.stdout)
    users.write_text("".join(lines))
    listener = {
        "name": "CLIENTS",
        "host": "127.0.0.1",
        "port": port,
        "protocol": "SASL_PLAINTEXT",
        "sasl_mechanisms": "PLAIN",
    }
    settings = [f"listeners.1.{name}={value}" for name, value in listener.items()]
    agent = start(
        folder / "data",
        *settings,
        f"sasl.users_file={users}",
        f"authorizer.mode={mode}",
        f"authorizer.super_users=User:{ROOT}",
    )
    return agent, f"127.0.0.1:{port}"


@dataclass(frozen=True)
class User:
    """Somebody who logs in anew for each request."""

    bootstrap: str
    name: str

    async def ask(self, api: str, request: Any, version: int) -> Any:
        """The answer; None when the connection was closed or nothing came in time."""
        wire = await Wire.open(self.bootstrap)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await wire.call("SaslHandshake", sh.SaslHandshakeRequest("PLAIN"), 1)
                login = f"\0{self.name}\0{PASSWORDS[self.name]}".encode()
                told = await wire.call("SaslAuthenticate", sa.SaslAuthenticateRequest(login), 2)
                assert told.error_code == 0, told
                return await wire.call(api, request, version)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            await wire.close()


async def cleared(bootstrap: str) -> User:
    """The administrator, when there are no ACLs and the topic `seen` is there and led."""
    root = User(bootstrap, ROOT)
    everything = da.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    answer = await root.ask("DeleteAcls", da.DeleteAclsRequest([everything]), 3)
    assert answer.filter_results[0].error_code == 0, answer
    await known(root, 0)
    await root.ask("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("seen", 2, 1)], 10_000), 7)
    await _coordinated(root)
    led = False
    async with asyncio.timeout(LEADER_S_MAX):
        while not led:
            await asyncio.sleep(LOOK_S)
            led = await _is_led(root)
    row = oc.OffsetCommitRequestTopic("seen", partitions=[oc.OffsetCommitRequestPartition(0, 0)])
    await root.ask("OffsetCommit", oc.OffsetCommitRequest("g", -1, "", topics=[row]), 8)  # so it is there
    return root


async def _coordinated(root: User) -> None:
    """Kafka's coordinators are there once somebody has asked for them, and a moment has passed."""
    for kind, key in ((0, "g"), (1, "x")):
        code = -1
        async with asyncio.timeout(LEADER_S_MAX):
            while code:
                await asyncio.sleep(LOOK_S)
                code = (await root.ask("FindCoordinator", fc.FindCoordinatorRequest(key, kind), 3)).error_code
    request = of.OffsetFetchRequest("g", [])
    code = -1
    async with asyncio.timeout(LEADER_S_MAX):
        while code:
            await asyncio.sleep(LOOK_S)
            code = (await root.ask("OffsetFetch", request, 5)).error_code


async def known(root: User, count: int) -> None:
    """Wait until there are so many ACLs: Kafka's broker hears of changes a moment after its controller."""
    found = -1
    async with asyncio.timeout(LEADER_S_MAX):
        while found != count:
            await asyncio.sleep(LOOK_S)
            answer = await root.ask("DescribeAcls", de.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
            found = sum(len(row.acls) for row in answer.resources)


async def _is_led(root: User) -> bool:
    request = dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest("seen")])
    (row,) = (await root.ask("DescribeTopicPartitions", request, 0)).topics
    return not row.error_code and all(not each.error_code and each.leader_id >= 0 for each in row.partitions)
