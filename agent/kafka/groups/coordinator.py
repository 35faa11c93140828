"""Runs the groups that this agent coordinates: parks answers, keeps timers, asks the log.

Who coordinates is a hint (agent/cluster/hints.py). A group is loaded from the state when this agent becomes
its coordinator, with members, generation and assignments, so that members carry on. It is dropped, and
whoever waits is told NOT_COORDINATOR, when coordination moves away, or when the state shows that somebody
else changed it: of two agents that both believe, the log lets one win (coordination/state/groups.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from agent.cluster.hints import LeaderHints
from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.codes import told
from agent.kafka.groups.consumer.classic_driver import ClassicMembers
from agent.kafka.groups.members import Join, Joined, Limits, Synced
from agent.kafka.groups.steps import GROUPS_PER_STEP, apart, each
from agent.kafka.groups.timers import Timers
from agent.telemetry.logs import logger
from coordination import broker_configs
from coordination.commands import command
from coordination.kafka_codes import Code
from coordination.replica import Replica
from coordination.replica.proposals import Results
from coordination.state import Applied, Done, Refused, State
from coordination.state.group_types import CONSUMER, Group
from coordination.state.groups import is_empty, revision_of
from objectstore import tasks

_log = logger("groups")
_T = TypeVar("_T")

READY_POLL_S = 0.5  # sessions do not end while this agent cannot reach the log
IDLE_S_MAX = 60.0
AGAIN_S = 5.0  # after a group failed: it is loaded anew, if nobody asked for it before


class GroupCoordinator:
    """The groups of one agent. Lives in one event loop; `start` it once the replica is there."""

    def __init__(self, replica: Replica, hints: LeaderHints) -> None:
        self._replica = replica
        self._hints = hints
        self._running: dict[str, ClassicGroup] = {}
        self._timers = Timers()
        self._alarm = asyncio.Event()
        self._asleep_until = 0.0  # loop time; 0: awake
        self._tasks: list[asyncio.Task[None]] = []
        self._following: asyncio.Task[None] | None = None
        self._letting_go = False  # not every group was looked at since the brokers changed
        self._serving: object = None
        self.others: ClassicMembers | None = None
        """Answers classic members of groups of KIP-848."""
        self.on_moved: list[Callable[[], None]] = []
        """Called when the brokers have changed, and with them who coordinates what."""
        self.on_changed: list[Callable[[str, Sequence[str]], None]] = []
        """Called with a group whose members the log has changed, and its new or altered ones of KIP-848."""
        replica.add_listener(self._applied)
        replica.add_reload_listener(lambda _: self._moved())
        replica.on_wake.append(self._woke)

    # Life.

    def start(self) -> None:
        """Begin to keep time, and take over the groups that are this agent's."""
        self._tasks.append(tasks.kept(self._keep_time, "time of groups"))
        self._moved()

    async def stop(self) -> None:
        """Answer whoever waits, and end. Idempotent."""
        for group in list(self._running.values()):
            self._drop(group, Code.NOT_COORDINATOR)
        tasks = [*self._tasks, *([self._following] if self._following is not None else [])]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Who coordinates.

    def refusal(self, group_id: str) -> Code | None:
        """Why this agent does not answer for the group; None when it does."""
        if not self._replica.ready:
            return Code.COORDINATOR_NOT_AVAILABLE
        return None if self.is_coordinator(group_id) else Code.NOT_COORDINATOR

    def is_coordinator(self, group_id: str) -> bool:
        """Whether clients are sent here for the group. A hint: the log decides."""
        return self._hints.coordinator(group_id) == self._replica.node_id

    def group(self, group_id: str) -> ClassicGroup | None:
        """The group as it runs here now; None when it does not."""
        return self._running.get(group_id)

    def running(self) -> list[str]:
        """The groups that run here."""
        return list(self._running)

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        group = self._running.get(group_id)
        if group is not None and group.idle:
            self._drop(group, Code.NOT_COORDINATOR)

    # What clients ask for.

    async def join(self, group_id: str, join: Join) -> Joined:
        """JoinGroup; waits for the end of the join phase."""
        others = self._others_of(group_id)
        if others is not None:
            joined = await others.join(group_id, join)
            if isinstance(joined, Joined):
                return joined
        group = self._find(group_id, bool(join.member_id))
        if isinstance(group, Code):
            return Joined(group, join.member_id)
        future: asyncio.Future[Joined] = self._loop.create_future()
        group.join(self._now, join, partial(_answer, future))
        self._follow_up(group)
        return await future

    async def sync(
        self,
        group_id: str,
        member: tuple[str, str | None],
        generation: int,
        protocols: tuple[str | None, str | None],
        assignments: Sequence[tuple[str, bytes]],
    ) -> Synced:
        """SyncGroup of `member` (member id, instance id); waits for the leader's assignments."""
        others = self._others_of(group_id)
        if others is not None:
            return others.sync(group_id, member, generation, protocols)
        group = self._find(group_id, True)
        if isinstance(group, Code):
            return Synced(group)
        future: asyncio.Future[Synced] = self._loop.create_future()
        group.sync(self._now, *member, generation, protocols, assignments, partial(_answer, future))
        self._follow_up(group)
        return await future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Heartbeat."""
        others = self._others_of(group_id)
        if others is not None:
            return others.heartbeat(group_id, member_id, instance_id, generation)
        group = self._find(group_id, True)
        if isinstance(group, Code):
            return group
        code = group.heartbeat(self._now, member_id, instance_id, generation)
        if group.idle:
            self._follow_up(group)
        return code

    async def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> list[Code] | Code:
        """LeaveGroup of (member id, instance id); a code for each, or one for all."""
        others = self._others_of(group_id)
        if others is not None:
            return await others.leave(group_id, leaving)
        group = self._find(group_id, True)
        if isinstance(group, Code):
            unknown = group is Code.UNKNOWN_MEMBER_ID
            return [group] * len(leaving) if unknown else group
        future: asyncio.Future[list[Code]] = self._loop.create_future()
        group.leave(self._now, leaving, partial(_answer, future))
        self._follow_up(group)
        return await future

    async def settled(self, group_id: str) -> None:
        """Wait while a change of the group is under way: who is leaving has left then."""
        group = self._running.get(group_id)
        if group is not None and group.busy:
            future: asyncio.Future[None] = self._loop.create_future()
            group.when_settled(partial(_answer, future, None))
            await future

    def heard(self, group_id: str, member_id: str) -> None:
        """A member committed positions, so it lives."""
        group = self._running.get(group_id)
        if group is not None:
            group.heard(self._now, member_id)

    # Groups that change their kind (KIP-848).

    def became_consumer(self, group_id: str) -> None:
        """The group is one of KIP-848 now: whoever waits here must join again."""
        group = self._running.get(group_id)
        if group is not None:
            self._drop(group, Code.REBALANCE_IN_PROGRESS)

    def became_classic(self, group_id: str) -> None:
        """The last member of KIP-848 is gone: the others share anew."""
        self._adopt(group_id)
        group = self._running.get(group_id)
        if group is not None:
            group.rebalance(self._now)
            self._follow_up(group)

    def _others_of(self, group_id: str) -> ClassicMembers | None:
        if self.others is not None and self.refusal(group_id) is None and self.others.holds(group_id):
            return self.others
        return None

    # Inside.

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def _now(self) -> float:
        return self._loop.time()

    @property
    def _state(self) -> State:
        return self._replica.state

    def _limits(self) -> Limits:
        configs = self._state.cluster_configs
        return Limits(
            broker_configs.integer(configs, "group.initial.rebalance.delay.ms") / 1000,
            broker_configs.integer(configs, "group.max.size"),
        )

    def _find(self, group_id: str, must_exist: bool) -> ClassicGroup | Code:
        """The group as the log has it, loaded when it is not running; or why it cannot be asked."""
        code = self.refusal(group_id)
        if code is not None:
            return code
        known = self._state.groups.get(group_id)
        group = self._current(group_id)
        if known is not None and known.kind == CONSUMER and not is_empty(known):
            return Code.INCONSISTENT_GROUP_PROTOCOL if not must_exist else Code.UNKNOWN_MEMBER_ID
        if group is None and known is None and must_exist:
            return Code.UNKNOWN_MEMBER_ID
        return group or self._load(group_id, known)

    def _current(self, group_id: str) -> ClassicGroup | None:
        """The running group, unless the log has moved on without it: then it is dropped."""
        group = self._running.get(group_id)
        if group is None or group.busy or group.revision == revision_of(self._state, group_id):
            return group
        known = self._state.groups.get(group_id)
        if group.forming and (known is None or is_empty(known)):  # it expired while its first members came
            group.revision = 0 if known is None else known.revision
            return group
        _log.info("another coordinator changed the group", group=group_id)
        self._drop(group, Code.NOT_COORDINATOR)
        self._load_in(group_id, 0)
        return None

    def _load(self, group_id: str, known: Group | None) -> ClassicGroup:
        group = self._running[group_id] = ClassicGroup(group_id, self._limits)
        if known is not None:
            group.load(known, self._now)
        self._arm(group)
        return group

    def _drop(self, group: ClassicGroup, code: Code) -> None:
        if self._running.get(group.group_id) is group:
            del self._running[group.group_id]
            self._timers.disarm(group.group_id)
        group.abandon(code)

    def _follow_up(self, group: ClassicGroup) -> None:
        """After anything that may have changed the group: ask the log, set the timer, forget what is idle."""
        proposal, group.proposal = group.proposal, None
        if proposal is not None:
            future = self._replica.submit([command(proposal)])
            future.add_done_callback(partial(self._heard, group))
        elif group.idle and self._running.get(group.group_id) is group:
            self._drop(group, Code.NOT_COORDINATOR)
            return
        self._arm(group)

    def _arm(self, group: ClassicGroup) -> None:
        self._timers.arm(group.group_id, group.wake_at)
        if group.wake_at < self._asleep_until:
            self._alarm.set()

    def _heard(self, group: ClassicGroup, future: Results) -> None:
        """The log has answered for the group.

        Nobody waits for this callback, so what it raises must not get lost: a group that cannot go on is
        dropped, which answers the requests that wait for it.
        """
        try:
            self._decided(group, future)
        except BaseException as error:
            tasks.tell("change of a group", error)
            self._drop(group, Code.COORDINATOR_NOT_AVAILABLE)
            self._load_in(group.group_id, AGAIN_S)

    def _decided(self, group: ClassicGroup, future: Results) -> None:
        if self._running.get(group.group_id) is not group:
            return  # dropped meanwhile: whoever waited has been told
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            _log.warning("the log did not answer for a group", group=group.group_id, error=str(error))
            self._drop(group, Code.COORDINATOR_NOT_AVAILABLE)
            self._load_in(group.group_id, AGAIN_S)
            return
        (result,) = future.result()
        if isinstance(result, Refused):
            _log.info("the log refused a change of a group", group=group.group_id, why=result.message)
            self._drop(group, told(result.code))
            self._adopt(group.group_id)
            return
        assert isinstance(result, Done), f"a group's change: {result!r}"
        assert isinstance(result.value, tuple), f"a group's change: {result!r}"
        generation, revision = result.value
        group.decided(self._now, generation, revision)
        self._follow_up(group)

    # Coordination moves.

    def _applied(self, applied: Applied) -> None:
        """After every entry: have the brokers changed, or groups by others' plans?"""
        self.brokers_changed()
        for group_id, member_ids in applied.groups:
            self._changed(group_id)
            for tell in self.on_changed:
                tell(group_id, member_ids)

    def _changed(self, group_id: str) -> None:
        """Load a group that does not run here once it has members: the coordinator before may have added
        them when this agent had taken over already, and their sessions must be kept.
        """
        known = self._state.groups.get(group_id)
        if known is None or known.kind == CONSUMER or is_empty(known) or group_id in self._running:
            return
        if self.is_coordinator(group_id):
            self._load_in(group_id, 0)

    def _load_in(self, group_id: str, seconds: float) -> None:
        """Load a group a while later if it has members, though nobody may ever ask for it: see `_look_at`."""
        if self._tasks:
            self._timers.arm(group_id, self._now + seconds)
            self._alarm.set()

    def brokers_changed(self) -> None:
        """Let go and take over when the brokers are others than at the last look."""
        views = self._hints.views
        if views is not self._serving:
            self._serving = views
            self._moved()

    def _moved(self) -> None:
        """Let go of what is not this agent's any more, and look for what has become so.

        That is done step by step. Requests are refused from now on; who waits hears of it when its group's
        turn has come.
        """
        for tell in self.on_moved:
            tell()
        if self._following is not None:
            self._following.cancel()
        if self._tasks or self._running:
            unsure, self._letting_go = self._letting_go, True
            self._following = tasks.kept(partial(self._follow, unsure), "adoption of groups")

    async def _follow(self, unsure: bool) -> None:
        """`unsure`: the brokers changed again before all groups had been looked at.

        One that seems to have stayed may have been another agent's in between, which heard its members:
        sessions begin anew.
        """

        def look(group: ClassicGroup) -> None:
            if self._lost(group.group_id):
                self._drop(group, Code.NOT_COORDINATOR)
            elif unsure:
                group.restart_sessions(self._now)

        await each(self._running.values(), look, "groups that move")
        self._letting_go = False
        if self._tasks:
            await each(self._state.groups, self._adopt, "adoption of a group")

    def _lost(self, group_id: str) -> bool:
        """Whether a group that runs here is another agent's."""
        return not self.is_coordinator(group_id)

    def _adopt(self, group_id: str) -> None:
        """Load a group with members that is this agent's: their sessions must be kept."""
        known = self._state.groups.get(group_id)
        if known is None or known.kind == CONSUMER or is_empty(known):
            return
        if self.is_coordinator(group_id) and self._current(group_id) is None:
            self._load(group_id, known)

    def _woke(self) -> None:
        """This process was paused: nobody could be heard meanwhile."""
        for group in self._running.values():
            group.restart_sessions(self._now)

    # Time.

    async def _keep_time(self) -> None:
        while True:
            self._alarm.clear()
            at = self._timers.next()
            self._asleep_until = self._now + IDLE_S_MAX if at is None else at
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._asleep_until):
                    await self._alarm.wait()
            self._asleep_until = 0.0
            if not self._replica.ready:
                await asyncio.sleep(READY_POLL_S)
                self._woke()
                continue
            now = self._now
            for _ in range(GROUPS_PER_STEP):
                taken = self._timers.take(now, 1)  # one by one: what is not taken yet cannot get lost
                if not taken:
                    break
                self._look_at(taken[0])
            await asyncio.sleep(0)

    def _look_at(self, group_id: str) -> None:
        """Do what is due in a group. What it raises is its own: others that are due have their turn.

        A group that failed is loaded anew a while later, though nobody may ever ask for it: its sessions must
        be kept.
        """
        if not apart(self._tick, group_id, "time of a group"):
            group = self._running.pop(group_id, None)
            self._timers.arm(group_id, self._now + AGAIN_S)
            if group is not None:
                group.abandon(Code.COORDINATOR_NOT_AVAILABLE)

    def _tick(self, group_id: str) -> None:
        group = self._current(group_id)
        if group is None:
            self._adopt(group_id)  # the log has moved on without it, or it failed
        elif self._lost(group_id):
            self._drop(group, Code.NOT_COORDINATOR)
        else:
            group.tick(self._now)
            self._follow_up(group)


def _answer(future: asyncio.Future[_T], answer: _T) -> None:
    if not future.done():
        future.set_result(answer)
