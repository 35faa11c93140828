"""Beginning a log in etcd with a base (rebased.py), for a cluster whose log was lost."""

from __future__ import annotations

from dataclasses import dataclass

from coordination.etcd import keys as requests
from coordination.etcd.errors import EtcdError
from coordination.etcd.keys import prefix_end
from coordination.etcd.log import EtcdLog
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.log import LogError, Unavailable


class LogInTheWay(LogError):
    """The etcd has entries or agents of a log under this cluster's name."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the etcd has under the cluster's name. `identity` as Log.identity() says it, empty for none.

    `used`: there are entries, agents, or the mark of a trim. Agents that only looked leave an identity.
    """

    identity: str
    used: bool


async def look(log: EtcdLog) -> Held:
    """Changes nothing: Log.identity() would draw one. Raises Unavailable."""
    keys = log.keys
    ranges = [
        pb.RangeRequest(key=keys.identity),
        pb.RangeRequest(key=keys.log, range_end=prefix_end(keys.log), limit=1, keys_only=True),
        pb.RangeRequest(key=keys.agents, range_end=prefix_end(keys.agents), limit=1, keys_only=True),
        pb.RangeRequest(key=keys.trimmed),
    ]
    request = pb.TxnRequest(success=[pb.RequestOp(request_range=each) for each in ranges])
    try:
        answer = await log.client.txn(request)
    except EtcdError as error:
        raise Unavailable(str(error)) from error
    identity, *others = (each.response_range.kvs for each in answer.responses)
    return Held(_name(log, identity[0].value) if identity else "", any(others))


async def begin(log: EtcdLog, drawn: bytes, base: int, *, replace: bool) -> tuple[str, int]:
    """Give the log a new name (32 hexadecimal digits) and its base; its identity, and the floor of the log.

    `replace`: what is there goes. Raises LogInTheWay when entries or agents are there, Unavailable.
    """
    keys = log.keys
    empty = [
        pb.Compare(
            result=pb.Compare.EQUAL,
            target=pb.Compare.CREATE,
            key=key,
            range_end=prefix_end(key),
            create_revision=0,
        )
        for key in (keys.log, keys.agents)
    ]
    request = pb.TxnRequest(
        compare=empty,
        success=[
            pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=keys.trimmed)),
            requests.put(keys.identity, drawn),
            requests.put(keys.base, requests.encode_marker(base)),
        ],
    )
    prefix = keys.prefix.encode()
    try:
        if replace:
            await log.client.delete_range(pb.DeleteRangeRequest(key=prefix, range_end=prefix_end(prefix)))
        answer = await log.client.txn(request)
    except EtcdError as error:
        raise Unavailable(str(error)) from error
    if not answer.succeeded:
        raise LogInTheWay(f"etcd has a log under {keys.prefix}: somebody began it meanwhile")
    return _name(log, drawn), base + answer.header.revision


def _name(log: EtcdLog, drawn: bytes) -> str:
    return f"etcd:{drawn.decode(errors='replace')}:{log.keys.prefix}"
