"""The log as each member of etcd has it: what finds the one whose disk holds another (decision 0043).

A linearizable read is answered from the asked member's own store, once that has caught up. So the same
question to each of them compares their disks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coordination.etcd import keys as requests
from coordination.etcd.client import EtcdClient
from coordination.etcd.errors import EtcdError
from coordination.etcd.keys import Keys
from coordination.log import Copy
from coordination.state.digest import print_of

PAGE_ENTRIES = 256  # asked for at once
MEMBER_S_MAX = 10.0  # until a member has given all of its entries


async def copies(client: EtcdClient, keys: Keys, after: int, through: int) -> Mapping[str, Copy | None]:
    """See coordination.log.Copied, by address."""
    names = client.addresses
    found = await asyncio.gather(*(_copy(client, keys, name, after, through) for name in names))
    return dict(zip(names, found, strict=True))


async def _copy(client: EtcdClient, keys: Keys, name: str, after: int, through: int) -> Copy | None:
    prints: dict[int, bytes] = {}
    trimmed, limit = 0, PAGE_ENTRIES
    try:
        async with asyncio.timeout(MEMBER_S_MAX):
            while after < through:
                try:
                    answer = await client.txn_at(name, requests.read_after(keys, after, limit))
                except EtcdError as error:
                    if not error.too_large or limit == 1:
                        return None
                    limit = max(1, limit // 8)
                    continue
                trimmed = max(trimmed, requests.marker(answer.responses[0].response_range.kvs))
                page = answer.responses[1].response_range
                entries = [keys.to_entry(kv) for kv in page.kvs]
                prints |= {each.revision: print_of(each) for each in entries if each.revision <= through}
                after = entries[-1].revision if page.more else through
    except (TimeoutError, ValueError):  # what it says cannot even be read
        return None
    return Copy(trimmed, prints)
