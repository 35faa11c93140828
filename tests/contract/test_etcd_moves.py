"""etcd comes back under another address: its name is looked up again before clients have given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from coordination.clock import SystemClock
from coordination.etcd.client import EtcdClient
from coordination.etcd.errors import EtcdError
from coordination.etcd.proto import rpc_pb2 as pb
from deploy.services import Etcd
from tests.equipment.names import Names

pytestmark = pytest.mark.services
GIVEN_UP_S = 15.0  # half of the time within which gRPC looks no name up twice unless it is told to


@pytest.fixture
def etcd() -> Iterator[Etcd]:
    with Etcd(fsync=False) as service:
        yield service


async def test_etcd_comes_back_under_another_address(etcd: Etcd) -> None:
    """A pod that was deleted: the same name and port, another address. Nothing listens at the old one."""
    async with Names("127.0.0.1") as names:
        client = EtcdClient([names.of("etcd-0.test", etcd.port)], SystemClock(), call_timeout_s=1.0)
        try:
            await client.put(pb.PutRequest(key=b"k", value=b"before"))
            asked = names.asked
            assert asked, "the name was not looked up here"
            await asyncio.to_thread(etcd.kill)
            names.address = "127.0.0.2"
            etcd.endpoint = f"127.0.0.2:{etcd.port}"
            await asyncio.to_thread(etcd.start)
            async with asyncio.timeout(GIVEN_UP_S):
                answer = await _until_it_answers(client)
            assert [each.value for each in answer.kvs] == [b"before"]
            assert names.asked > asked
        finally:
            await client.close()


async def _until_it_answers(client: EtcdClient) -> pb.RangeResponse:
    while True:
        with suppress(EtcdError):
            return await client.range(pb.RangeRequest(key=b"k"))
