"""A classic group's member table and join/sync state machine, without I/O: time and decisions are given.

Kafka's GroupMetadataManager and ClassicGroup (KIP-62, 134, 345, 394, 814). What the log must decide (the next
generation, its assignments, a static member's new id) is left in `proposal`; until `decided` tells the
outcome, everything that could change the group waits in `_later`. Heartbeats are answered at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from agent.kafka.groups.members import (
    NO_TIME,
    GroupState,
    Join,
    Joined,
    JoinReply,
    Limits,
    Member,
    Synced,
    SyncReply,
    choice,
    member_of,
)
from agent.kafka.groups.messages import assign, put, replacing
from agent.kafka.groups.table import MemberTable
from coordination.commands import AssignClassicGeneration, PutClassicGeneration, ReplaceClassicMember
from coordination.kafka_codes import Code
from coordination.state.group_types import Group

Proposal = PutClassicGeneration | AssignClassicGeneration | ReplaceClassicMember
Input = Callable[[float], None]


class ClassicGroup(MemberTable):
    """One group as its coordinator runs it. `revision`: where in the log this picture of it stands."""

    def __init__(self, group_id: str, limits: Callable[[], Limits] = Limits) -> None:
        super().__init__(group_id, limits)
        self.proposal: Proposal | None = None
        self.wake_at = NO_TIME  # tick() by then; never later than what is due
        self._join_until = NO_TIME
        self._sync_until = NO_TIME
        self._first_left_s: float | None = None  # of the first rebalance: what its delay may still grow by
        self._came_meanwhile = False
        self._then: Callable[[float, int], None] | None = None  # what follows once the proposal is decided
        self._later: deque[Input] = deque()
        self._newcomer: Member | None = None  # waits for the log to give it a static member's place
        self._abandoned: Code | None = None

    # From and to the log.

    def load(self, group: Group, now: float) -> None:
        """Take the group as the log has it. Members carry on; their sessions start afresh."""
        self.take(group)
        self.restart_sessions(now)
        if not self.members:
            self.state = GroupState.EMPTY
        elif group.classic is not None and group.classic.assigned:
            self.state = GroupState.STABLE
        else:
            self.state = GroupState.COMPLETING
            self._await_syncs(now)

    def restart_sessions(self, now: float) -> None:
        """Count every session from now on: nothing was heard because nobody listened."""
        for member in self.members.values():
            self._heard(member, now)

    @property
    def busy(self) -> bool:
        """Whether the log is being asked."""
        return self._then is not None

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting the group: the log knows as much."""
        return self.state is GroupState.EMPTY and not (self.members or self.pending or self.busy)

    @property
    def forming(self) -> bool:
        """Whether its first members are coming, of whom the log knows nothing yet."""
        return self._first_left_s is not None or (self.state is GroupState.EMPTY and not self.busy)

    def decided(self, now: float, generation: int, revision: int) -> None:
        """The proposal took effect."""
        assert self._then is not None, f"group {self.group_id!r}: a decision that nobody asked for"
        self.revision = revision
        then, self._then = self._then, None
        then(now, generation)
        while self._later and not self.busy:
            self._later.popleft()(now)

    def abandon(self, code: Code) -> None:
        """This agent does not run the group any more: answer everybody who waits, and forget them.

        Who waits is in `members`, `_newcomer` or `_later`. Every input looks at `_abandoned` first of all: a
        group that nobody runs must not be busy again, as nobody would tell it what was decided.
        """
        self._abandoned = code
        self._then = self.proposal = None
        for member in self.members.values():
            member.answer_join(Joined(code, member.member_id))
            member.answer_sync(Synced(code))
        if self._newcomer is not None:
            self._newcomer.answer_join(Joined(code, self._newcomer.member_id))
            self._newcomer = None
        later, self._later = self._later, deque()
        self.members.clear()
        self._common = None
        self.static.clear()
        self.wake_at = NO_TIME
        for one in later:
            one(NO_TIME)

    def rebalance(self, now: float) -> None:
        """Let the members of a stable group share anew, whatever they know."""
        if self._abandoned is None and self.state is GroupState.STABLE and not self.busy:
            self._prepare(now)

    # What clients ask for.

    def join(self, now: float, join: Join, reply: JoinReply) -> None:
        """JoinGroup. `reply` is called once, now or later."""
        if self._abandoned is not None:
            reply(Joined(self._abandoned, join.member_id))
        elif self.busy:
            self._later.append(lambda at: self.join(at, join, reply))
        elif not self._has_room(join.member_id):
            self.pending.pop(join.member_id, None)
            if join.member_id in self.members:
                self._forget(self.members[join.member_id])
            reply(Joined(Code.GROUP_MAX_SIZE_REACHED, ""))
        elif not self._supports(join):
            reply(Joined(Code.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif not join.member_id:
            self._join_new(now, join, reply)
        else:
            self._join_known(now, join, reply)

    def sync(
        self,
        now: float,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocols: tuple[str | None, str | None],
        assignments: Sequence[tuple[str, bytes]],
        reply: SyncReply,
    ) -> None:
        """SyncGroup; `protocols`: type and name as the client believes. `reply` is called once."""
        if self._abandoned is None and self.busy:
            self._later.append(
                lambda at: self.sync(at, member_id, instance_id, generation, protocols, assignments, reply)
            )
            return
        code = self._abandoned or self.refusal(member_id, instance_id, generation)
        if code is None and self._other_protocol(protocols):
            code = Code.INCONSISTENT_GROUP_PROTOCOL
        if code is None and self.state is GroupState.PREPARING:
            code = Code.REBALANCE_IN_PROGRESS
        if code is not None:
            reply(Synced(code))
            return
        member = self.members[member_id]
        self._to_sync.pop(member_id, None)
        if self.state is GroupState.STABLE:
            self._heard(member, now)
            reply(self._synced(member))
            return
        member.answer_sync(Synced(Code.REBALANCE_IN_PROGRESS))  # it asked before and has given up
        member.syncing = reply
        if member_id == self.leader:
            given = {name: content for name, content in assignments if name in self.members}
            self._propose(assign(self, given), lambda at, _: self._assigned(at, given))

    def heartbeat(self, now: float, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Heartbeat."""
        code = self._abandoned or self.refusal(member_id, instance_id, generation)
        if code is not None:
            return code
        self._heard(self.members[member_id], now)
        return Code.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else Code.NONE

    def heard(self, now: float, member_id: str) -> None:
        """The member showed otherwise that it lives: it committed."""
        member = self.members.get(member_id)
        if member is not None and self.state in (GroupState.STABLE, GroupState.PREPARING):
            self._heard(member, now)

    def leave(
        self,
        now: float,
        leaving: Sequence[tuple[str, str | None]],
        reply: Callable[[list[Code]], None],
    ) -> None:
        """LeaveGroup of (member id, instance id); `reply` gets a code for each."""
        if self._abandoned is not None:
            reply([self._abandoned] * len(leaving))
            return
        if self.busy:
            self._later.append(lambda at: self.leave(at, leaving, reply))
            return
        before = len(self.members)
        codes = [self._leave_one(member_id, instance_id) for member_id, instance_id in leaving]
        if len(self.members) < before:
            self._after_removal(now)
        else:
            self._go_on(now)
        if self._then is not None:  # the last one is gone once the log says so
            self._later.append(lambda _: reply(self._or_abandoned(codes)))
        else:
            reply(codes)

    def _or_abandoned(self, codes: list[Code]) -> list[Code]:
        return codes if self._abandoned is None else [self._abandoned] * len(codes)

    def when_settled(self, tell: Callable[[], None]) -> None:
        """Call `tell` once no change of the group is under way, or it is not run here any more."""
        if self._abandoned is None and self.busy:
            self._later.append(lambda _: self.when_settled(tell))
        else:
            tell()

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._abandoned is not None:
            return
        if self.busy:  # looked at again once the decision is there
            self._later.append(self.tick)
            self.wake_at = NO_TIME
            return
        if self._join_until <= now:
            self._join_phase_over(now)
        elif self._sync_until <= now:
            self._expire_syncs(now)
        else:
            self._expire_sessions(now)
        times = [self._join_until, self._sync_until, *self.pending.values()]
        times += [member.deadline for member in self.members.values()]
        self.wake_at = min(times, default=NO_TIME)

    # Joining.

    def _join_new(self, now: float, join: Join, reply: JoinReply) -> None:
        if join.instance_id is not None:
            known = self.static.get(join.instance_id)
            if known is None:
                self._add(now, join, join.new_id, reply)
            else:
                self._replace(now, join, known, reply)
        elif join.id_required:
            self.pending[join.new_id] = now + join.session_s
            self._wake(self.pending[join.new_id])
            reply(Joined(Code.MEMBER_ID_REQUIRED, join.new_id))
        else:
            self._add(now, join, join.new_id, reply)

    def _join_known(self, now: float, join: Join, reply: JoinReply) -> None:
        if join.member_id in self.pending and join.instance_id is None:
            self._add(now, join, join.member_id, reply)
            return
        code = self._member_refusal(join.member_id, join.instance_id)
        if code is None and self.state is GroupState.EMPTY:
            code = Code.UNKNOWN_MEMBER_ID
        if code is not None:
            reply(Joined(code, join.member_id))
            return
        member = self.members[join.member_id]
        same = member.protocols == join.protocols
        asks_again = self.state is GroupState.COMPLETING and same
        follows_on = self.state is GroupState.STABLE and same and member.member_id != self.leader
        if asks_again or follows_on:
            self._heard(member, now)
            reply(self._joined(member))
            return
        self._update(member, join, reply)
        self._rebalance_or_complete(now)

    def _add(self, now: float, join: Join, member_id: str, reply: JoinReply) -> None:
        if not self.members:
            self.protocol_type = join.protocol_type
        self.pending.pop(member_id, None)
        member = member_of(join, member_id, reply)
        member.is_new = True
        member.deadline = now + self._limits().new_member_s
        self.members[member_id] = member
        self._common = None
        if join.instance_id is not None:
            self.static[join.instance_id] = member_id
        self.leader = self.leader or member_id
        self._came_meanwhile = True
        self._wake(member.deadline)
        self._rebalance_or_complete(now)

    def _update(self, member: Member, join: Join, reply: JoinReply) -> None:
        member.answer_join(Joined(Code.REBALANCE_IN_PROGRESS, member.member_id))  # it has given up on that
        if member.protocols != join.protocols:
            member.protocols = join.protocols
            self._common = None
        member.session_s, member.rebalance_s = join.session_s, join.rebalance_s
        member.client_id, member.client_host = join.client_id, join.client_host
        member.joining = reply

    def _replace(self, now: float, join: Join, old_id: str, reply: JoinReply) -> None:
        """A static member came back without its id: it gets a new one, and the old is fenced (KIP-345)."""
        old = self.members[old_id]
        new = member_of(join, join.new_id, reply)
        new.assignment = old.assignment
        after = [new if member is old else member for member in self.members.values()]
        if self.state is GroupState.STABLE and choice(after) == self.protocol:
            told_leader = (
                self.leader or ""
            )  # a client that cannot skip the assignment must not see itself lead
            self._propose(
                replacing(self, old_id, new),
                lambda at, _: self._replaced(at, old_id, new, join.skips_assignment, told_leader),
            )
            self._newcomer = new
            return
        self._swap(old, new)
        self._heard(new, now)
        self._rebalance_or_complete(now)

    def _replaced(self, now: float, old_id: str, new: Member, skips: bool, told_leader: str) -> None:
        self._newcomer = None
        self._swap(self.members[old_id], new)
        self._heard(new, now)
        leads = new.member_id == self.leader
        new.answer_join(
            Joined(
                Code.NONE,
                new.member_id,
                self.generation,
                self.protocol_type,
                self.protocol,
                (self.leader or "") if skips else told_leader,
                skip_assignment=skips and leads,
                members=self._roster() if skips and leads else (),
            )
        )

    # Rebalancing.

    def _rebalance_or_complete(self, now: float) -> None:
        if self.state is not GroupState.PREPARING:
            self._prepare(now)
        elif self._all_joined() and self._first_left_s is None:
            self._complete_join(now)

    def _prepare(self, now: float) -> None:
        """Begin a rebalance: members hear of it with their next heartbeat, or now if they wait for a sync."""
        for member in self.members.values():
            if member.syncing is not None:
                member.assignment = b""
                self._heard(member, now)
            member.answer_sync(Synced(Code.REBALANCE_IN_PROGRESS))
        self._to_sync.clear()
        self._sync_until = NO_TIME
        first = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING
        if first:
            delay_s = self._limits().initial_delay_s
            self._first_left_s = max(self._rebalance_s() - delay_s, 0.0)
            self._came_meanwhile = False
            self._join_until = now + delay_s
            self._wake(self._join_until)
        elif self._all_joined():
            self._complete_join(now)
        else:
            self._join_until = now + self._rebalance_s()
            self._wake(self._join_until)

    def _join_phase_over(self, now: float) -> None:
        left_s, delay_s = self._first_left_s, self._limits().initial_delay_s
        if left_s and self._came_meanwhile:  # the first rebalance waits on while members come
            self._came_meanwhile = False
            self._join_until = now + min(delay_s, left_s)
            self._first_left_s = max(left_s - delay_s, 0.0)
            self._wake(self._join_until)
        else:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """End the join phase: who has not come is out, unless static; ask the log for the next generation."""
        self._first_left_s = None
        self._join_until = NO_TIME
        for member in [m for m in self.members.values() if m.joining is None and m.instance_id is None]:
            self._forget(member)
        joined = [member for member in self.members.values() if member.joining is not None]
        if self.members and not joined:  # static members all, and none came: wait for their sessions to end
            self._join_until = now + self._rebalance_s()
            self._wake(self._join_until)
            return
        leader = self.members.get(self.leader or "")
        if joined and (leader is None or leader.joining is None):
            self.leader = joined[0].member_id
        self.protocol = choice(list(self.members.values()))
        self._propose(put(self), self._generation_begins)

    def _generation_begins(self, now: float, generation: int) -> None:
        self.generation = generation
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return
        self.state = GroupState.COMPLETING
        for member in self.members.values():
            member.assignment = b""
            member.is_new = False
            self._heard(member, now)
            member.answer_join(self._joined(member))
        self._await_syncs(now)

    def _await_syncs(self, now: float) -> None:
        self._to_sync = dict.fromkeys(self.members)
        self._sync_until = now + self._rebalance_s()
        self._wake(self._sync_until)

    def _assigned(self, now: float, given: dict[str, bytes]) -> None:
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = given.get(member.member_id, b"")
            if member.syncing is not None:
                self._heard(member, now)
                member.answer_sync(self._synced(member))

    def _expire_syncs(self, now: float) -> None:
        """Whoever got the generation and did not come for its assignment in time is out."""
        self._sync_until = NO_TIME
        late = [self.members[member_id] for member_id in self._to_sync if member_id in self.members]
        self._to_sync.clear()
        for member in late:
            self._forget(member)
        if late:
            self._prepare(now)

    # Leaving.

    def _leave_one(self, member_id: str, instance_id: str | None) -> Code:
        if not member_id:  # an administrator removes a static member
            known = self.static.get(instance_id) if instance_id is not None else None
            if known is None:
                return Code.UNKNOWN_MEMBER_ID
            self._remove(self.members[known])
        elif member_id in self.pending:
            del self.pending[member_id]
        else:
            code = self._member_refusal(member_id, instance_id)
            if code is not None:
                return code
            self._remove(self.members[member_id])
        return Code.NONE

    def _expire_sessions(self, now: float) -> None:
        gone = False
        for member_id in [one for one, until in self.pending.items() if until <= now]:
            del self.pending[member_id]
        for member in [m for m in self.members.values() if m.deadline <= now]:
            if member.parked() and not member.is_new:
                member.deadline = NO_TIME  # counts again once it is answered
            else:
                self._remove(member)
                gone = True
        if gone:
            self._after_removal(now)
        else:
            self._go_on(now)

    def _remove(self, member: Member) -> None:
        member.answer_join(Joined(Code.UNKNOWN_MEMBER_ID, member.member_id))
        member.answer_sync(Synced(Code.UNKNOWN_MEMBER_ID))
        self._forget(member)

    def _after_removal(self, now: float) -> None:
        """A member is gone: who is left shares anew, or the rebalance that waited for it goes on."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        else:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        """End the join phase if nobody is missing any more."""
        if self.state is GroupState.PREPARING and self._first_left_s is None and self._all_joined():
            self._complete_join(now)

    def _heard(self, member: Member, now: float) -> None:
        member.deadline = now + member.session_s
        self._wake(member.deadline)

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)

    def _propose(self, proposal: Proposal, then: Callable[[float, int], None]) -> None:
        assert self._then is None, f"group {self.group_id!r}: two proposals at once"
        self.proposal, self._then = proposal, then
