"""Proposals on their way: waiting to be sent, sent and waiting to be applied, answered.

No I/O in here. A proposal is a few commands that land in one entry, in order; its future gets their
results once the entry was applied (DESIGN: log commands, decide at apply, park the answer).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordination.commands import ENTRY_FORMAT, Abort, Command, Entry, command, split_large
from coordination.kafka_codes import Code
from coordination.log import Unavailable
from coordination.replica.errors import OutcomeUnknown, StaleIncarnation
from coordination.state import Applied, Done, Refused, Result, State
from coordination.state.multipart import CHANGE_BYTES_MAX
from coordination.steps import reach
from objectstore.varint import varint

HEADER_BYTES_MAX = 96  # of an Entry without commands
FRAMING_BYTES_MAX = 6  # of one command inside an Entry
# Content of one part of a large change. Each part is an append of its own, a transaction of three operations;
# etcd takes 128 operations and 1.5 MiB in one, an entry 1 MiB.
PART_BYTES_MAX = 512 * 1024
_COMMAND_TAG = b"\x32"  # Entry.commands: field 6, length-delimited

Results = asyncio.Future[list[Result]]


@dataclass(slots=True, eq=False)
class Line:
    """Proposals that must take effect in their order: when one fails, all behind it in the line fail too.

    `failed`: the error of the first proposal that failed, definitely without effect; None before. Whatever is
    submitted in the line afterwards fails with the same error. Once all senders have been told, their next
    proposals go into a new line.
    """

    failed: Exception | None = None


@dataclass(slots=True, eq=False)
class Proposal:
    """Serialized commands, and who waits for their results. `incarnation` None: any will do.

    `step`: its name among the steps of a large change (coordination/steps.py), empty for anything else.
    """

    commands: list[bytes]
    size: int
    incarnation: int | None
    future: Results
    since: float  # loop time of submission
    step: str = ""
    line: Line | None = None
    stamps: list[float] | None = None
    """Takes the loop times at which its entry was sent, and at which the log had answered."""

    def stamp(self, now: float) -> None:
        """Note the time, where somebody wants to know."""
        if self.stamps is not None:
            self.stamps.append(now)


@dataclass(slots=True, eq=False)
class Batch:
    """The proposals of one entry that was handed to the log."""

    incarnation: int
    sequence: int
    proposals: list[Proposal]
    since: float  # loop time of sending


class Proposals:
    """The queue, and the batches whose entry has not been applied yet."""

    def __init__(
        self, loop_time: Callable[[], float], bytes_max: int, proposals_max: int, entry_bytes_max: int
    ) -> None:
        self._now = loop_time
        self._bytes_max = bytes_max
        self._proposals_max = proposals_max
        self._content_max = entry_bytes_max - HEADER_BYTES_MAX
        self._queue: deque[Proposal] = deque()
        self._parked: dict[tuple[int, int], Batch] = {}
        self._changes = 0
        self._lingering: set[tuple[int, int]] = set()
        """Author and number of changes that were begun and neither ended nor dropped: the state takes few."""
        self.queued_bytes = 0
        self.incarnation = 0  # the current one; 0 while there is none

    @property
    def queued(self) -> int:
        """Proposals waiting to be sent."""
        return len(self._queue)

    @property
    def parked(self) -> int:
        """Entries sent and not yet applied."""
        return len(self._parked)

    def submit(
        self,
        commands: Sequence[Command],
        incarnation: int | None,
        line: Line | None = None,
        stamps: list[float] | None = None,
    ) -> Results:
        """Queue the commands as one proposal; one above an entry's size travels as a multi-part change.

        Each is refused with POLICY_VIOLATION when they are more than a change may be: again would be in vain.
        """
        future: Results = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        encoded = [one.SerializeToString() for one in commands]
        size = sum(map(len, encoded)) + FRAMING_BYTES_MAX * len(encoded)
        refusal = self._refusal(incarnation, size, line)
        if refusal is not None:
            future.set_exception(refusal)
            self._break(line, refusal)
        elif size > (most := min(CHANGE_BYTES_MAX, self._bytes_max)):
            why = f"a change of {size} bytes in one: at most {most} are taken; make several requests of it"
            future.set_result([Refused(Code.POLICY_VIOLATION, why) for _ in commands])
        elif size > self._content_max:
            self._submit_parts(commands, incarnation or self.incarnation, future, line)
        else:
            self._push(Proposal(encoded, size, incarnation, future, self._now(), line=line, stamps=stamps))
        return future

    def _refusal(self, incarnation: int | None, size: int, line: Line | None) -> Exception | None:
        """Why a proposal fails at once, without any effect; None when it may be tried."""
        if line is not None and line.failed is not None:
            return line.failed
        if incarnation is not None and incarnation != self.incarnation:
            return StaleIncarnation(f"incarnation {incarnation:016x} is over")
        if size > min(CHANGE_BYTES_MAX, self._bytes_max):
            return None  # no failure but an answer: again would be in vain
        if len(self._queue) >= self._proposals_max or self.queued_bytes + size > self._bytes_max:
            waiting = f"{len(self._queue)} proposals of {self.queued_bytes} bytes"
            return Unavailable(f"{waiting} wait for the log already")
        if size > self._content_max and not (incarnation or self.incarnation):
            return Unavailable("not registered now: a change in parts cannot begin")
        return None

    def _submit_parts(
        self, commands: Sequence[Command], author: int, answer: Results, line: Line | None
    ) -> None:
        """Queue Begin, parts and End; `answer` gets what End answers. All go to one incarnation or none."""
        self._changes += 1
        for lingering in sorted(self._lingering):
            self._drop(*lingering)
        steps: list[Results] = []
        part_bytes_max = min(PART_BYTES_MAX, self._content_max // 2)
        for step in split_large(commands, self._changes, part_bytes_max):
            future: Results = asyncio.get_running_loop().create_future()
            encoded, name = step.SerializeToString(), f"change/{step.WhichOneof('kind')}"
            size = len(encoded) + FRAMING_BYTES_MAX
            self._push(Proposal([encoded], size, author, future, self._now(), name, line))
            steps.append(future)
        change = self._changes
        steps[-1].add_done_callback(lambda end: self._answer_with(end, answer, line))
        for step_future in steps[:-1]:
            step_future.add_done_callback(lambda done: self._abort_if_failed(done, steps[0], author, change))

    def _answer_with(self, end: Results, answer: Results, line: Line | None) -> None:
        """Give the results of a multi-part change's End to whoever submitted the change."""
        reach("change/ended")
        if answer.done():
            return
        error = end.exception()
        if error is not None:
            answer.set_exception(error)
            return
        (result,) = end.result()
        if isinstance(result, Done) and isinstance(result.value, tuple):
            answer.set_result(list(result.value))
        elif isinstance(result, Refused):
            refused = Unavailable(f"the change in parts was refused: {result.message}")
            answer.set_exception(refused)
            self._break(line, refused)
        else:
            raise TypeError(f"End answered {result!r}")

    def _abort_if_failed(self, done: Results, begin: Results, author: int, change: int) -> None:
        """A part that was not even sent: drop the change, so that the parts before it do not linger."""
        if not done.cancelled() and done.exception() is not None and author == self.incarnation:
            if not begin.done() or isinstance(begin.exception(), OutcomeUnknown | None):
                self._lingering.add((author, change))
            self._drop(author, change)

    def _drop(self, author: int, change: int) -> None:
        """Abort a change. One whose Abort is not taken either lingers until the next change is begun."""

        def told(done: Results) -> None:
            if done.exception() is None or author != self.incarnation:  # a fence drops it as well
                self._lingering.discard((author, change))

        self.submit([command(Abort(id=change))], author).add_done_callback(told)

    def _break(self, line: Line | None, error: Exception) -> None:
        """One of the line failed: what is queued behind it fails with it, now."""
        if line is None or line.failed is not None:
            return
        line.failed = error
        kept: deque[Proposal] = deque()
        for proposal in self._queue:
            if proposal.line is line:
                self.queued_bytes -= proposal.size
                _fail(proposal, error)
            else:
                kept.append(proposal)
        self._queue = kept

    def _refuse(self, proposal: Proposal, error: Exception) -> None:
        """Fail a proposal that has left the queue unsent, and its line."""
        self.queued_bytes -= proposal.size
        _fail(proposal, error)
        self._break(proposal.line, error)

    def _push(self, proposal: Proposal) -> None:
        self._queue.append(proposal)
        self.queued_bytes += proposal.size

    def put_first(self, commands: Sequence[Command]) -> Results:
        """Queue commands before everything else: the registration of a new incarnation."""
        future: Results = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieved)
        encoded = [one.SerializeToString() for one in commands]
        size = sum(map(len, encoded)) + FRAMING_BYTES_MAX * len(encoded)
        self._queue.appendleft(Proposal(encoded, size, None, future, self._now()))
        self.queued_bytes += size
        return future

    def take(self, incarnation: int, sequence: int, proposals_max: int | None = None) -> Batch | None:
        """What fits into the next entry, parked under it; None when nothing is ready."""
        taken: list[Proposal] = []
        left = self._content_max
        while (
            self._queue and self._queue[0].size <= left and (not proposals_max or len(taken) < proposals_max)
        ):
            proposal = self._queue.popleft()
            if proposal.incarnation in (None, incarnation):
                self.queued_bytes -= proposal.size
                left -= proposal.size
                taken.append(proposal)
            else:
                self._refuse(proposal, StaleIncarnation(f"incarnation {proposal.incarnation:016x} is over"))
        if not taken:
            return None
        batch = Batch(incarnation, sequence, taken, self._now())
        self._parked[incarnation, sequence] = batch
        return batch

    def settle(self, applied: Applied) -> None:
        """Answer what this entry decided, and what its fences made impossible."""
        batch = self._parked.pop((applied.incarnation, applied.sequence), None)
        if batch is not None:
            position = 0
            for proposal in batch.proposals:
                end = position + len(proposal.commands)
                if not proposal.future.done():
                    proposal.future.set_result(list(applied.results[position:end]))
                position = end
        for incarnation in applied.fenced:
            self.fenced(incarnation)

    def fenced(self, incarnation: int) -> None:
        """Nothing more of that incarnation can take effect: definite for everything not yet applied."""
        for key in [key for key in self._parked if key[0] == incarnation]:
            self.fail(
                self._parked[key], Unavailable(f"incarnation {incarnation:016x} was fenced before it counted")
            )
        over = [proposal for proposal in self._queue if proposal.incarnation == incarnation]
        self._queue = deque(proposal for proposal in self._queue if proposal.incarnation != incarnation)
        for proposal in over:
            self._refuse(proposal, StaleIncarnation(f"incarnation {incarnation:016x} is over"))

    def superseded(self, incarnation: int) -> None:
        """This agent's registration as `incarnation` was applied: no entry of its older incarnations follows.

        The key of each older incarnation was gone before this one registered, so whatever it appended lies
        before the registration in the log, and what is still parked here will not be seen. For an incarnation
        whose own registration never landed no FenceIncarnation says so.
        """
        for batch in [batch for batch in self._parked.values() if batch.incarnation != incarnation]:
            why = f"entry {batch.sequence} of incarnation {batch.incarnation:016x} was not seen applied"
            self.fail(batch, OutcomeUnknown(f"{why}, and {incarnation:016x} has followed it"))

    def fail(self, batch: Batch, error: Exception) -> None:
        """Answer a whole batch with an error.

        No line needs to be told: what is behind it under the same incarnation lands only when this has.
        """
        self._parked.pop((batch.incarnation, batch.sequence), None)
        for proposal in batch.proposals:
            _fail(proposal, error)

    def refused(self, batch: Batch, error: Exception) -> None:
        """The log has not taken this entry, and takes another one in its place.

        What is behind it in its lines fails with it, and is not that other one.
        """
        self.fail(batch, error)
        for proposal in batch.proposals:
            self._break(proposal.line, error)

    def reloaded(self, state: State) -> None:
        """A snapshot replaced the state: entries it covers were applied, their results are not known."""
        for key, batch in list(self._parked.items()):
            author = state.incarnations.get(key[0])
            if author is not None and author.sequence >= key[1]:
                self.fail(
                    batch, OutcomeUnknown(f"entry {key[1]} was applied; its results went by in a snapshot")
                )
            elif author is not None and not author.live:
                self.fenced(key[0])

    def expire(self, queue_wait_s: float, outcome_wait_s: float) -> None:
        """Answer what waited too long. The queue is in order of submission, but for registrations."""
        now = self._now()
        while self._queue and now - self._queue[0].since > queue_wait_s:
            proposal = self._queue.popleft()
            why = f"the log was not reached for {queue_wait_s} s; nothing was sent"
            self._refuse(proposal, Unavailable(why))
        for batch in self._parked.values():
            if now - batch.since > outcome_wait_s:
                for proposal in batch.proposals:
                    _fail(proposal, OutcomeUnknown(f"sent, and not seen applied for {outcome_wait_s} s"))

    def close(self) -> None:
        """Answer everything: the replica stops."""
        for proposal in self._queue:
            _fail(proposal, Unavailable("the agent is stopping; nothing was sent"))
        self._queue.clear()
        self.queued_bytes = 0
        for batch in list(self._parked.values()):
            self.fail(batch, OutcomeUnknown("the agent stopped before the entry was seen applied"))


def payload(
    batch: Batch, proposed_ms: int, applied_revision: int, said: bytes = b"", *, asks: bool = False
) -> bytes:
    """The batch as a serialized Entry. Commands were serialized when they were submitted.

    `said`: the rolling hash at `applied_revision`; `asks`: whether others are to say theirs.
    """
    header = Entry(
        format=ENTRY_FORMAT,
        incarnation=batch.incarnation,
        sequence=batch.sequence,
        proposed_ms=proposed_ms,
        applied_revision=applied_revision,
        applied_hash=said,
        asks=asks,
    )
    parts = [header.SerializeToString()]
    for proposal in batch.proposals:
        for encoded in proposal.commands:
            parts += (_COMMAND_TAG, varint(len(encoded)), encoded)
    return b"".join(parts)


def _fail(proposal: Proposal, error: Exception) -> None:
    if not proposal.future.done():
        proposal.future.set_exception(error)


def _retrieved(future: Results) -> None:
    """Mark a failure as seen: who submitted may have gone away."""
    if not future.cancelled():
        future.exception()
