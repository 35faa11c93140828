"""Trims the log in etcd: first the marker that says so, then the entries, then their history.

A reader that misses an entry sees the marker in the same transaction (keys.read_after), so a trim in
the middle of a gap read is never taken for a gap in the log.
"""

from __future__ import annotations

from coordination.etcd import keys as requests
from coordination.etcd.client import EtcdClient
from coordination.etcd.keys import Keys, prefix_end
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.steps import reach

PAGE_KEYS = 2048  # entries deleted between two looks; a large delete would stall etcd
OPERATIONS_MAX = 100  # of etcd's 128 in one transaction


async def trim_log(client: EtcdClient, keys: Keys, through: int) -> None:
    """Forget entries at or below `through`. Idempotent; agents may do so side by side. Raises EtcdError."""
    if not await _raise_marker(client, keys, through):
        return
    while True:
        page = await client.range(
            pb.RangeRequest(
                key=keys.log,
                range_end=prefix_end(keys.log),
                max_mod_revision=through,
                keys_only=True,
                limit=PAGE_KEYS,
            )
        )
        reach("trim/entries")
        deletions = _deletions(keys, [kv.key for kv in page.kvs])
        for at in range(0, len(deletions), OPERATIONS_MAX):
            await client.txn(pb.TxnRequest(success=deletions[at : at + OPERATIONS_MAX]))
        if not page.more:
            break
    reach("trim/compact")
    await client.compact(through)


async def _raise_marker(client: EtcdClient, keys: Keys, through: int) -> bool:
    """Move the marker to `through`; False when it is further already. It never goes back."""
    while True:
        found = (await client.range(pb.RangeRequest(key=keys.trimmed))).kvs
        at = requests.marker(found)
        if at >= through:
            return at == through and through > 0
        revision = found[0].mod_revision if found else 0
        swap = pb.TxnRequest(
            compare=[requests.revision_is(keys.trimmed, revision)],
            success=[requests.put(keys.trimmed, requests.encode_marker(through))],
        )
        if (await client.txn(swap)).succeeded:
            return True


def _deletions(keys: Keys, page: list[bytes]) -> list[pb.RequestOp]:
    """One range per incarnation: within it sequences and revisions rise together."""
    ends: dict[int, tuple[int, int]] = {}
    for key in page:
        incarnation, sequence = keys.entry_id(key)
        first, _ = ends.get(incarnation, (sequence, sequence))
        ends[incarnation] = (first, sequence)
    return [
        pb.RequestOp(
            request_delete_range=pb.DeleteRangeRequest(
                key=keys.entry(incarnation, first), range_end=keys.entry(incarnation, last + 1)
            )
        )
        for incarnation, (first, last) in sorted(ends.items())
    ]
