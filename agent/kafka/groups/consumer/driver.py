"""The groups of KIP-848 that this agent coordinates. Start reading here, then runner.py, then heartbeat.py.

A heartbeat that changes nothing is answered from the state and writes nothing. Everything else is planned
by the group's Runner. Who coordinates is a hint: a group is taken over from the state, with its epochs,
so members carry on; what two agents plan at once the log decides. Timers are proposals like any request.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import JOIN, Answer, Heartbeat, beat, unchanged
from agent.kafka.groups.consumer.patterns import check_regex
from agent.kafka.groups.consumer.runner import (
    Runner,
    StateTopics,
    Surroundings,
    consumer_data,
    session_seconds,
)
from agent.kafka.groups.consumer.sessions import Key, Sessions, Timer
from agent.kafka.groups.consumer.work import Work, fencing
from agent.kafka.groups.steps import GROUPS_PER_STEP, apart, each
from agent.kafka.groups.timers import Timers
from agent.telemetry.logs import logger
from coordination import broker_configs, group_configs
from coordination.clock import Clock
from coordination.kafka_codes import Code
from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember
from objectstore import tasks

_log = logger("groups.consumer")

TICK_S = 0.1
LATE_S = 0.5  # a tick this late: the loop stood still, and nobody could be heard
HURRY_MS = 500  # heartbeat interval of a member that waits for partitions of others, or for a target


class ConsumerGroups:
    """Lives in one event loop. `refusal` tells why this agent does not answer for a group, if so.

    `coordinates` tells whether clients are sent here for a group, also while this agent answers nobody.
    """

    def __init__(
        self, around: Surroundings, refusal: Callable[[str], Code | None], coordinates: Callable[[str], bool]
    ) -> None:
        self._around = around
        self._replica = around.replica
        self._refusal = refusal
        self._coordinates = coordinates
        self._running: dict[str, Runner] = {}
        self._timers = Timers()  # when to look at each group that runs here
        self._begun = asyncio.Event()  # a group runs here
        self._tasks: list[asyncio.Task[None]] = []
        self._following: asyncio.Task[None] | None = None
        self._letting_go = False  # not every group was looked at since the brokers changed
        self._lost_s = 0.0  # for which the loop stood still, while time was kept
        around.replica.on_wake.append(self._count_anew)

    # Life.

    def start(self) -> None:
        """Begin to keep time, and take over the groups that are this agent's."""
        self._tasks.append(tasks.kept(self._keep_time, "time of consumer groups"))
        self.moved()

    async def stop(self) -> None:
        """Answer whoever waits, and end. Idempotent."""
        tasks = [*self._tasks, *([self._following] if self._following is not None else [])]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for runner in list(self._running.values()):
            await runner.close()
        self._running.clear()

    def moved(self) -> None:
        """Brokers came or went: let go of what is not this agent's, and look for what has become so.

        That is done step by step. Requests are refused from now on; who waits hears of it when its group's
        turn has come.
        """
        if self._following is not None:
            self._following.cancel()
        if self._tasks or self._running:
            unsure, self._letting_go = self._letting_go, True
            self._following = tasks.kept(partial(self._follow, unsure), "adoption of consumer groups")

    async def _follow(self, unsure: bool) -> None:
        """`unsure`: as in GroupCoordinator; groups that have stayed may have been another agent's between."""

        def look(runner: Runner) -> None:
            if not self._coordinates(runner.group_id):
                self._let_go(runner)
            elif unsure:
                self._restart(runner)

        await each(self._running.values(), look, "groups that move")
        self._letting_go = False
        if self._tasks:
            await each(self._replica.state.groups, self._adopt, "adoption of a consumer group")

    def _let_go(self, runner: Runner) -> None:
        if self._running.get(runner.group_id) is runner:
            del self._running[runner.group_id]
            self._timers.disarm(runner.group_id)
        runner.give_up()

    def _adopt(self, group_id: str) -> None:
        """Watch a group with members that is this agent's: their sessions must be kept."""
        data = self.data(group_id)
        if data is not None and data.members and self._coordinates(group_id):
            self._watch(group_id, data.members.values())

    def _watch(self, group_id: str, members: Iterable[ConsumerMember]) -> None:
        """Count for these members of a group, and for all where it does not run here yet."""
        runner = self._running.get(group_id)
        if runner is None:
            self.runner(group_id)
        else:
            runner.sessions.watch(members, self._session_s(group_id), self._now)

    def changed(self, group_id: str, member_ids: Iterable[str]) -> None:
        """The log has changed members of a group, by anybody's plan: whoever coordinates it counts for them.

        A plan of the coordinator before may land when this agent has taken the group over already, and one
        of its own after those who asked were told that nothing is known. Nobody else ends those sessions.
        """
        data = self.data(group_id)
        if self._tasks and data is not None and data.members and self._coordinates(group_id):
            self._watch(group_id, (data.members[each] for each in member_ids if each in data.members))

    # What clients ask for.

    async def heartbeat(self, request: Heartbeat) -> Answer:
        """ConsumerGroupHeartbeat, checked before. Raises GroupError."""
        self.check_coordinator(request.group_id)
        state = self._replica.state
        data = self.data(request.group_id)
        if data is not None:
            runner = self.runner(request.group_id)
            answer = unchanged(data, request)
            if answer is not None and not runner.busy and runner.stands(state, request):
                runner.sessions.heard(answer.member_id, self._session_s(request.group_id), self._now)
                return answer
        if request.regex and request.regex not in self._around.patterns:
            await asyncio.to_thread(check_regex, request.regex)
        new_id = request.member_id or member_id_of(self._around.clock)
        work = Work(
            lambda draft: beat(draft, request, new_id),
            creates=request.epoch == JOIN,
            kind="Group" if request.leaves else "Consumer group",
            topics=request.topics or (),
            regex=request.regex or None,
            member_id=new_id,
            viewer=request.viewer,
        )
        planned = cast(Answer, await self.ask(request.group_id, work))
        sessions = None if request.leaves else self.sessions_of(request.group_id, planned.member_id)
        if sessions is not None:
            sessions.heard(planned.member_id, self._session_s(request.group_id), self._now)
        return planned

    async def ask(self, group_id: str, work: Work) -> Any:
        """Plan one request together with what else is ready; its outcome once the log has it.

        The group may be another agent's by then: see `sessions_of`. Raises GroupError.
        """
        self.check_coordinator(group_id)
        work.future = asyncio.get_running_loop().create_future()
        self.runner(group_id).add(work)
        return await work.future

    async def settled(self, group_id: str) -> None:
        """Wait while a change of the group is under way: who is leaving has left then."""
        runner = self._running.get(group_id)
        if runner is not None:
            await runner.settled()

    def check_coordinator(self, group_id: str) -> None:
        """Raise GroupError when this agent does not answer for the group."""
        code = self._refusal(group_id)
        if code is not None:
            raise GroupError(code, "This is not the correct coordinator.")

    def interval_ms(self, answer: Answer, group_id: str) -> int:
        """After how many ms the member shall send its next heartbeat.

        Sooner than the group's config says where an assignment that it waits for may be ready any moment.
        """
        interval = group_configs.integer(self._replica.state, group_id, "consumer.heartbeat.interval.ms")
        return min(interval, HURRY_MS) if answer.hurry else interval

    def assignors(self) -> list[str]:
        """The assignors that members may name; the first is the default."""
        return broker_configs.items(self._replica.state.cluster_configs, "group.consumer.assignors")

    # Groups.

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _session_s(self, group_id: str) -> float:
        return session_seconds(self._replica.state, group_id)

    def data(self, group_id: str) -> ConsumerGroupData | None:
        """What the state holds of the group; None when it is none of KIP-848."""
        return consumer_data(self._replica.state.groups.get(group_id))

    def sessions_of(self, group_id: str, member_id: str) -> Sessions | None:
        """Where the deadlines of a member stand; None when this agent must not have any for it.

        To be asked after every wait for the log. The entry before the awaited one may have moved the group
        away: nobody is heard here any more, so a clock that began anew would call all its members late. A
        heartbeat and the same member's leaving may be planned together: by the time the heartbeat is answered
        the member is gone, and a deadline would call it late for ever.
        """
        if not self._coordinates(group_id) or not self._is_member(group_id, member_id):
            return None
        return self.runner(group_id).sessions

    def _is_member(self, group_id: str, member_id: str) -> bool:
        data = self.data(group_id)
        return data is not None and member_id in data.members

    def topics(self) -> StateTopics:
        """The topics as they are now; patterns cannot be asked for."""
        return StateTopics(self._replica.state, {})

    def running(self) -> int:
        """How many groups run here."""
        return len(self._running)

    def runner(self, group_id: str) -> Runner:
        """The group as it runs here; begun when it does not."""
        runner = self._running.get(group_id)
        if runner is None:
            look_at = partial(self._timers.arm, group_id)
            runner = self._running[group_id] = Runner(group_id, self._around, look_at)
            self._begun.set()
            self._restart(runner)
            if not runner.sessions.busy:  # nothing may come of it
                look_at(self._now)
        return runner

    # Time.

    def _restart(self, runner: Runner) -> None:
        """Count the sessions of a group from now on."""
        data = runner.data
        if data is not None:
            runner.sessions.restart(data, self._session_s(runner.group_id), self._now)

    def _count_anew(self) -> None:
        """This process was paused: nobody could be heard meanwhile, and nobody is late who was called so."""
        for runner in self._running.values():
            apart(self._restart, runner, "time of a consumer group")

    async def _keep_time(self) -> None:
        away = False
        while True:
            if not self._running:  # an agent without groups does not wake twenty times a second
                self._begun.clear()
                await self._begun.wait()
                self._lost_s, away = 0.0, False
            late_s, self._lost_s = self._lost_s, 0.0
            if not self._replica.ready:
                away = True
            elif away:
                away = False
                await each(self._running.values(), self._restart, "time of a consumer group")
            elif late_s:
                await self._delay(late_s)
            else:
                await self._look(self._now)
            await self._rest(TICK_S)

    async def _delay(self, seconds: float) -> None:
        await each(
            self._running.values(),
            lambda runner: runner.sessions.delay(seconds),
            "time of a consumer group",
        )

    async def _rest(self, seconds: float) -> None:
        """Sleep, and note by how much longer than that the loop stood still."""
        begun = self._now
        await asyncio.sleep(seconds)
        late_s = self._now - begun - seconds
        if late_s > LATE_S:
            self._lost_s += late_s

    async def _look(self, now: float) -> None:
        """Look at the groups whose time has come, as of `now`."""
        while self._replica.ready:
            for _ in range(GROUPS_PER_STEP):
                due = self._timers.take(now, 1)  # one by one: what is not taken yet cannot get lost
                if not due:
                    return
                self._look_at(due[0], now)
            await self._rest(0)

    def _look_at(self, group_id: str, now: float) -> None:
        """Propose what is due in a group, or forget it. What it raises stops no other group's clock."""
        runner = self._running.get(group_id)
        if runner is None:
            return
        apart(lambda one: self._propose_due(one, now), runner, "time of a consumer group")
        if self._running.get(group_id) is runner:
            self._timers.arm(group_id, max(runner.sessions.next, now + TICK_S))

    def _propose_due(self, runner: Runner, now: float) -> None:
        if not self._coordinates(runner.group_id):  # whoever is heard, is heard elsewhere
            self._let_go(runner)
            return
        try:
            for key in runner.sessions.take_due(now):
                self._propose(runner, key)
        except GroupError as error:  # too many requests wait; what is due is due again a while later
            _log.warning("a late member must wait", group=runner.group_id, why=error.message)
        if not runner.busy and not runner.sessions.busy:
            del self._running[runner.group_id]

    def _propose(self, runner: Runner, key: Key) -> None:
        member_id, timer = key
        if not self._is_member(runner.group_id, member_id):  # the log took it out without this agent's plan
            runner.sessions.forget(member_id)
            return
        epoch = None
        if timer is Timer.REBALANCE:
            epoch = runner.sessions.asked_to_revoke_at(member_id)
            if epoch is None:
                return
        _log.info("a member is late", group=runner.group_id, member=member_id, why=timer.value)
        runner.add(Work(fencing(member_id, partial(runner.sessions.still_late, key), epoch)))


def member_id_of(clock: Clock) -> str:
    """A member id as Kafka makes them: 16 random bytes, URL-safe."""
    return base64.urlsafe_b64encode(clock.random_bytes(16)).decode().rstrip("=")
