"""Where the log lives in etcd, and the requests that read and write it. Pure.

    /floe/{cluster}/agents/{incarnation:016x}                 the incarnation key: last sequence and info
    /floe/{cluster}/log/{incarnation:016x}/{sequence:016x}    an entry's payload; written once, never changed
    /floe/{cluster}/trimmed                                   entries are gone through this revision
    /floe/{cluster}/identity                                  a random number drawn once: whose log this is
    /floe/{cluster}/base                                      added to revisions, of a restored log (rebased)

Every modification of an incarnation key after its creation is an append, in the same transaction as the
entry: so the key's mod_revision is the revision of its newest entry.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from coordination.chain import KeyState
from coordination.etcd.proto import kv_pb2
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.log import LogEntry, Member, Statement

CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
INFO_BYTES_MAX = 64 << 10
# Incarnation key's value: format, sequence of the newest entry, then the info as it was registered.
_KEY_HEAD = struct.Struct(">BQ")
_KEY_FORMAT = 1
_Compare = pb.Compare


class Keys:
    """The keys of one cluster."""

    def __init__(self, cluster: str) -> None:
        if CLUSTER_NAME.fullmatch(cluster) is None:
            raise ValueError(
                f"etcd log: cluster name {cluster!r} must be 1 to 100 letters, digits, dots, dashes or "
                "underscores, as in etcd://host:2379/my-cluster"
            )
        self.prefix = f"/floe/{cluster}/"
        self.agents = f"{self.prefix}agents/".encode()
        self.log = f"{self.prefix}log/".encode()
        self.trimmed = f"{self.prefix}trimmed".encode()
        self.identity = f"{self.prefix}identity".encode()
        self.base = f"{self.prefix}base".encode()

    def agent(self, incarnation: int) -> bytes:
        """The incarnation key."""
        return self.agents + b"%016x" % incarnation

    def entry(self, incarnation: int, sequence: int) -> bytes:
        """The key of one entry."""
        return self.log + b"%016x/%016x" % (incarnation, sequence)

    def entries_of(self, incarnation: int) -> bytes:
        """The prefix of one incarnation's entries."""
        return self.log + b"%016x/" % incarnation

    def entry_id(self, key: bytes) -> tuple[int, int]:
        """(incarnation, sequence) of an entry's key."""
        incarnation, sequence = key[len(self.log) :].split(b"/")
        return int(incarnation, 16), int(sequence, 16)

    def to_entry(self, kv: kv_pb2.KeyValue) -> LogEntry:
        """The entry that a key and its value are."""
        incarnation, sequence = self.entry_id(kv.key)
        return LogEntry(kv.mod_revision, incarnation, sequence, kv.value)

    def to_member(self, kv: kv_pb2.KeyValue) -> Member:
        """The member that an incarnation key is."""
        sequence, info = decode_key(kv.value)
        return Member(int(kv.key[len(self.agents) :], 16), info, sequence)


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of keys that begin with `prefix` (which ends in '/')."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def encode_key(sequence: int, info: bytes) -> bytes:
    """The value of an incarnation key."""
    return _KEY_HEAD.pack(_KEY_FORMAT, sequence) + info


def decode_key(value: bytes) -> tuple[int, bytes]:
    """(sequence of the newest entry, info). Raises ValueError for a format of a newer Floe."""
    form, sequence = _KEY_HEAD.unpack_from(value)
    if form != _KEY_FORMAT:
        raise ValueError(f"incarnation key of format {form}: this version of Floe reads format {_KEY_FORMAT}")
    return sequence, value[_KEY_HEAD.size :]


def key_state(kv: kv_pb2.KeyValue) -> KeyState:
    """An incarnation key as a chain sees it: its lease tells registrations apart."""
    return KeyState(owner=kv.lease, sequence=decode_key(kv.value)[0], revision=kv.mod_revision)


def get(key: bytes) -> pb.RequestOp:
    """Read one key."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Write one key."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def revision_is(key: bytes, revision: int) -> pb.Compare:
    """The key was last modified at `revision`; 0: it does not exist."""
    return _Compare(result=_Compare.EQUAL, target=_Compare.MOD, key=key, mod_revision=revision)


def register(keys: Keys, incarnation: int, info: bytes, lease: int) -> pb.TxnRequest:
    """Create the incarnation key if the number is unused; else read the key."""
    agent, entries = keys.agent(incarnation), keys.entries_of(incarnation)
    unused = _Compare(
        result=_Compare.EQUAL,
        target=_Compare.CREATE,
        key=entries,
        range_end=prefix_end(entries),
        create_revision=0,
    )
    return pb.TxnRequest(
        compare=[revision_is(agent, 0), unused],
        success=[put(agent, encode_key(0, info), lease)],
        failure=[get(agent)],
    )


def identity(keys: Keys, drawn: bytes) -> pb.TxnRequest:
    """Read the log's own name; the first to ask gives it."""
    key = keys.identity
    return pb.TxnRequest(
        compare=[revision_is(key, 0)], success=[put(key, drawn), get(key)], failure=[get(key)]
    )


def append(
    keys: Keys, incarnation: int, sequence: int, payload: bytes, *, info: bytes, lease: int, expected: int
) -> pb.TxnRequest:
    """Rule 2: one compare is the fence, the order of the author's entries and exactly-once."""
    agent = keys.agent(incarnation)
    return pb.TxnRequest(
        compare=[revision_is(agent, expected)],
        success=[
            put(keys.entry(incarnation, sequence), payload),
            put(agent, encode_key(sequence, info), lease),
        ],
        failure=[get(agent)],
    )


def read_after(keys: Keys, after: int, limit: int) -> pb.TxnRequest:
    """The trim marker and the oldest `limit` entries after `after`, of one moment."""
    entries = pb.RangeRequest(
        key=keys.log,
        range_end=prefix_end(keys.log),
        min_mod_revision=after + 1,
        limit=limit,
        sort_target=pb.RangeRequest.MOD,
        sort_order=pb.RangeRequest.ASCEND,
    )
    return pb.TxnRequest(success=[get(keys.trimmed), pb.RequestOp(request_range=entries)])


def statement(keys: Keys, entry: LogEntry | None) -> pb.TxnRequest:
    """The incarnation key that changed last, without its value; with an entry the trim marker and its key."""
    newest = pb.RangeRequest(
        key=keys.agents,
        range_end=prefix_end(keys.agents),
        limit=1,
        sort_target=pb.RangeRequest.MOD,
        sort_order=pb.RangeRequest.DESCEND,
        keys_only=True,
    )
    operations = [pb.RequestOp(request_range=newest)]
    if entry is not None:
        operations += [get(keys.trimmed), get(keys.entry(entry.incarnation, entry.sequence))]
    return pb.TxnRequest(success=operations)


def decode_statement(keys: Keys, entry: LogEntry | None, response: pb.TxnResponse) -> Statement:
    """What etcd's answer to `statement` says. A key as it was made is no entry's."""
    found = response.responses[0].response_range.kvs
    newest = max((kv.mod_revision for kv in found if kv.mod_revision > kv.create_revision), default=0)
    holds = True
    if entry is not None and entry.revision > marker(response.responses[1].response_range.kvs):
        held = response.responses[2].response_range.kvs
        holds = bool(held) and keys.to_entry(held[0]) == entry
    return Statement(response.header.revision, newest, holds)


def marker(kvs: Iterable[kv_pb2.KeyValue]) -> int:
    """The revision in the trim marker; 0 when there is none."""
    for kv in kvs:
        return int(kv.value, 16)
    return 0


def encode_marker(through: int) -> bytes:
    """The value of the trim marker."""
    return b"%016x" % through
