"""An etcd that does nothing by itself: every answer, and everything that happens to the log, is a step.

`steps` says what may happen next, `take` does one of it. What etcd promises is kept in every order of steps:
revisions rise, a watch delivers all events in order, progress never overtakes an event, a transaction is of
one moment.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import grpc

from coordination.etcd import keys as requests
from coordination.etcd.errors import EtcdError
from coordination.etcd.keys import Keys
from coordination.etcd.proto import kv_pb2
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.watch import WatchStream

KEYS = Keys("c")
OPEN_S_MAX = 1.0
BROKEN = EtcdError("the connection broke", code=grpc.StatusCode.UNAVAILABLE, ambiguous=True)
EXPIRED = EtcdError("no answer", code=grpc.StatusCode.DEADLINE_EXCEEDED, ambiguous=True)
TOO_LARGE = EtcdError("larger than max", code=grpc.StatusCode.RESOURCE_EXHAUSTED, ambiguous=False)


@dataclass(slots=True)
class Budget:
    """How often things may happen in one schedule."""

    appends: int = 0
    others: int = 0
    """Revisions without an entry: leases that end, agents that register."""
    trims: int = 0
    compactions: int = 0
    """By etcd itself or its operator: entries stay, their events go."""
    restores: int = 0
    misfortunes: int = 0


@dataclass(slots=True)
class Asked:
    """A transaction that waits for its answer."""

    request: pb.TxnRequest
    answer: asyncio.Future[pb.TxnResponse]

    @property
    def gap(self) -> bool:
        """Whether it reads entries, rather than asks whether they may be followed."""
        return len(self.request.success) == 2 and bool(self.request.success[1].request_range.range_end)


class Call:
    """One watch's stream."""

    def __init__(self, etcd: ScriptedEtcd) -> None:
        self._etcd = etcd
        self._answers: asyncio.Queue[pb.WatchResponse | EtcdError] = asyncio.Queue()
        self.start = self.sent = 0
        """Where the watch begins, and the revision through which it was told."""
        self.created = self.fragmented = False
        self.progress_wanted = 0

    async def write(self, request: pb.WatchRequest) -> None:
        if request.HasField("create_request"):
            self.start = request.create_request.start_revision
            self.sent = self.start - 1
            self._etcd.call = self
        else:
            self.progress_wanted += 1

    async def read(self) -> object:
        answer = await self._answers.get()
        if isinstance(answer, EtcdError):
            raise answer
        return answer

    def cancel(self) -> bool:
        if self._etcd.call is self:
            self._etcd.call = None
        return True

    def tell(self, **fields: object) -> None:
        """One response."""
        header = pb.ResponseHeader(revision=self._etcd.revision)
        self._answers.put_nowait(pb.WatchResponse(header=header, **fields))  # type: ignore[arg-type]  # its own fields

    def fail(self, error: EtcdError) -> None:
        """The stream ends."""
        self._answers.put_nowait(error)


@dataclass(slots=True)
class ScriptedEtcd:
    """The server, and the part of its client that a follower uses."""

    budget: Budget
    revision: int = 2
    history: list[tuple[int, int]] = field(default_factory=lambda: [(2, 1)])
    """(revision, incarnation) of every entry that was ever appended."""
    present: set[int] = field(default_factory=lambda: {2})
    """Revisions of the entries that are not deleted."""
    marker: int = 0
    compacted: int = 0
    trimming: str = ""
    """The next step of a trim under way."""
    asked: Asked | None = None
    call: Call | None = None
    restored: bool = False
    backup: tuple[int, tuple[tuple[int, int], ...]] = (2, ((2, 1),))
    """Of the beginning: the revision, and the entries."""

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """The client's."""
        assert self.asked is None, "one follower asks one thing at a time"
        self.asked = Asked(request, asyncio.get_running_loop().create_future())
        try:
            return await self.asked.answer
        finally:
            self.asked = None

    async def watch(self, create: pb.WatchCreateRequest) -> WatchStream:
        """The client's."""
        stream = WatchStream(Call(self), "scripted")
        await stream.open(create, OPEN_S_MAX)
        return stream

    @property
    def watched(self) -> bool:
        """Whether a watch stands."""
        return self.call is not None and self.call.created

    def steps(self) -> list[str]:
        """What may happen next."""
        budget = self.budget
        found = ["append"] * bool(budget.appends) + ["other"] * bool(budget.others)
        if self.trimming:
            found.append(self.trimming)
        elif budget.trims and self.history and self.marker < self.history[-1][0]:
            found.append("trim")
        found += ["restore"] * bool(budget.restores)
        found += ["auto-compact"] * bool(budget.compactions)
        kind = "txn" if self.asked is not None else "watch" if self.call is not None else ""
        if kind == "txn":
            found.append("answer")
            if budget.misfortunes:
                assert self.asked is not None
                found += ["txn fails", "txn expires"] + ["too large"] * self.asked.gap
        if kind == "watch":
            found += self._of_watch()
        return found

    def _of_watch(self) -> list[str]:
        assert self.call is not None
        bad = ["cancel", "break", "silence"] * bool(self.budget.misfortunes)
        if not self.call.created:
            return ["created", *bad]
        due = self._due()
        found = ["next event", "all events"] * bool(due)
        found += ["fragment"] * (len(due) > 1)
        if due and due[0][0] <= self.compacted and not self.call.fragmented:
            found.append("too far behind")
        return found + ["progress"] * (not due and self.call.sent < self.revision) + bad

    def _due(self) -> list[tuple[int, int]]:
        assert self.call is not None
        return [each for each in self.history if each[0] > self.call.sent]

    def take(self, step: str) -> float:
        """Let it happen. Returns how many seconds nothing else does."""
        if step in ("txn fails", "txn expires", "too large", "cancel", "break", "silence"):
            self.budget.misfortunes -= 1
        if step in ("append", "other", "trim", "delete", "compact", "auto-compact", "restore"):
            self._change(step)
        elif self.asked is not None:
            self._tell(self.asked, step)
        elif self.call is not None:
            return self._on(self.call, step)
        return 0.0

    def _change(self, step: str) -> None:
        if step in ("append", "other"):
            self.revision += 1
            setattr(self.budget, f"{step}s", getattr(self.budget, f"{step}s") - 1)
        if step == "append":
            self.history.append((self.revision, 2 if self.restored else 1))
            self.present.add(self.revision)
        elif step == "trim":
            self.budget.trims -= 1
            self.marker = self.history[-1][0]
            self.revision += 1
            self.trimming = "delete"
        elif step == "delete":
            self.present = {each for each in self.present if each > self.marker}
            self.revision += 1
            self.trimming = "compact"
        elif step == "compact":
            self.compacted = max(self.compacted, self.marker)
            self.trimming = ""
        elif step == "auto-compact":
            self.budget.compactions -= 1
            self.compacted = self.revision
        elif step == "restore":
            self._restore()

    def _restore(self) -> None:
        """Stop, and come back with the backup."""
        self.budget.restores -= 1
        self.restored = True
        self.revision, entries = self.backup
        self.history = list(entries)
        self.present = {revision for revision, _ in entries}
        self.marker = self.compacted = 0
        if self.asked is not None:
            self.asked.answer.set_exception(BROKEN)
        elif self.call is not None:
            self.call.fail(BROKEN)

    def _tell(self, asked: Asked, step: str) -> None:
        if step == "answer":
            asked.answer.set_result(self._answer(asked.request))
        else:
            asked.answer.set_exception(
                {"txn fails": BROKEN, "txn expires": EXPIRED, "too large": TOO_LARGE}[step]
            )

    def _answer(self, request: pb.TxnRequest) -> pb.TxnResponse:
        response = pb.TxnResponse(header=pb.ResponseHeader(revision=self.revision), succeeded=True)
        for operation in request.success:
            asked, told = operation.request_range, response.responses.add().response_range
            told.SetInParent()
            if asked.key == KEYS.trimmed:
                if self.marker:
                    told.kvs.add(key=asked.key, value=requests.encode_marker(self.marker))
                continue
            found = [self._kv(*each) for each in self.history if each[0] in self.present]
            if asked.range_end:
                found = [kv for kv in found if kv.mod_revision >= asked.min_mod_revision]
                told.more = 0 < asked.limit < len(found)
                found = found[: asked.limit or None]
            else:
                found = [kv for kv in found if kv.key == asked.key]
            told.count = len(found)
            told.kvs.extend(found)
        return response

    def _kv(self, revision: int, incarnation: int) -> kv_pb2.KeyValue:
        sequence = [each for each in self.history if each[1] == incarnation].index(
            (revision, incarnation)
        ) + 1
        return kv_pb2.KeyValue(
            key=KEYS.entry(incarnation, sequence), mod_revision=revision, value=b"%d" % revision
        )

    def _on(self, call: Call, step: str) -> float:
        if step == "silence":
            return 2.5  # longer than a watch is waited for, and than one that is not opened
        if step == "break":
            call.fail(BROKEN)
        elif step == "cancel":
            call.tell(canceled=True, created=not call.created)
        elif step == "created":
            call.created = call.start > self.compacted
            call.tell(created=True)
            if not call.created:
                call.tell(canceled=True, compact_revision=self.compacted)
        elif step == "too far behind":
            call.tell(canceled=True, compact_revision=self.compacted)
        elif step == "progress":
            call.sent, call.progress_wanted = self.revision, 0
            call.tell()
        else:
            due = self._due()
            due = due if step == "all events" else due[:1]
            call.fragmented = step == "fragment"
            call.sent = due[-1][0]
            events = [kv_pb2.Event(kv=self._kv(*each)) for each in due]
            call.tell(events=events, fragment=call.fragmented)
        return 0.0
