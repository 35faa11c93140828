"""One group of KIP-848 as it runs here: what waits is planned together, becomes one command, is answered.

The command names the revision of the group that it was planned on; when the log refuses it, somebody else
changed the group, and everything is planned anew on what there is now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from agent.kafka.groups.codes import told
from agent.kafka.groups.consumer.command import command_of
from agent.kafka.groups.consumer.draft import Draft, Rules
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import FIRST_EPOCH, Heartbeat
from agent.kafka.groups.consumer.migration import upgraded
from agent.kafka.groups.consumer.patterns import Names, Patterns, Stamp
from agent.kafka.groups.consumer.sessions import Sessions
from agent.kafka.groups.consumer.sights import ALL, Seen, Sight, Sights
from agent.kafka.groups.consumer.topics import wanted_partitions
from agent.kafka.groups.consumer.work import Work, plan_all, refuse
from agent.telemetry.logs import logger
from coordination import broker_configs, group_configs
from coordination.clock import Clock
from coordination.commands import ChangeConsumerGroup, DowngradeConsumerGroup, command
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica import Replica
from coordination.replica.errors import OutcomeUnknown
from coordination.state import Refused, State
from coordination.state.consumer_types import ConsumerGroupData
from coordination.state.data import StateData
from coordination.state.group_types import CLASSIC, CONSUMER, ClassicGeneration, Group
from coordination.state.groups import revision_of
from objectstore import tasks

_log = logger("groups.consumer")

WORKS_PER_PLAN = 1_000  # requests of one group that are planned together
WORKS_MAX = 20_000  # requests of one group that wait
ATTEMPTS_MAX = 10  # plans of the same requests before their senders are told to come again
OFFLOAD_FROM = 1_000  # members, and partitions owned or wanted, from which a plan is made in a thread
Ground = tuple[Stamp, int]  # of the topics, and of what members may see of them
Change = ChangeConsumerGroup | DowngradeConsumerGroup
_NOTHING = ConsumerGroupData(group_epoch=FIRST_EPOCH)


@dataclass(slots=True)
class Surroundings:
    """What all groups of an agent share. The two calls tell that a group changed its kind."""

    replica: Replica
    clock: Clock
    on_upgrade: Callable[[str], None]
    on_downgrade: Callable[[str], None]
    acls: Callable[[], int] | None = None
    """The revision of the ACLs; None: none are asked for what a pattern may show."""
    patterns: Patterns = field(default_factory=Patterns)


class StateTopics:
    """The topics of the state, and what the patterns matched that are asked for. Of none other may be asked:
    an answer that is missing must not pass for one that says that there are no topics."""

    def __init__(self, state: StateData, matched: Mapping[str, Names], sight: Sight = ALL) -> None:
        self._state = state
        self._matched = matched
        self._sight = sight

    def find(self, name: str) -> tuple[bytes, int] | None:
        """A topic's id and number of partitions."""
        topic = self._state.topics.get(name)
        return (topic.topic_id, len(topic.partitions)) if topic is not None else None

    def name_of(self, topic_id: bytes) -> str | None:
        """A topic's name."""
        topic = self._state.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def matching(self, regex: str, view: Hashable = None) -> Names:
        """What a pattern matched when it was last resolved, as far as it is seen.

        Raises KeyError when it was not resolved.
        """
        return self._matched[regex] if view is None else self._sight.names(regex, view)

    def view(self, member_id: str) -> Hashable:
        """What members have in common that see the same."""
        return self._sight.view(member_id)


@dataclass(slots=True)
class _Opened:
    """A plan's ground. `known`: what the state holds; `stamp` None: patterns are of older topics.

    `stale`: the topics are others than those that the group's epoch is known to stand for.
    """

    draft: Draft
    known: ConsumerGroupData
    revision: int
    exists: bool
    upgrades: bool
    stale: bool
    stamp: Ground | None
    sight: Sight


def stamp_of(state: StateData) -> Stamp:
    """Differs whenever a topic came, went or grew: handles are never given twice."""
    return len(state.partitions), state.partition_count


def consumer_data(group: Group | None) -> ConsumerGroupData | None:
    """The group's members and epochs; None when it is none of KIP-848."""
    return group.consumer if group is not None and group.kind == CONSUMER else None


class Runner:
    """Lives while the group has members here, or requests wait.

    `look_at` is told when (loop time, s) something may be due, or nothing is left that it would live for.
    """

    def __init__(self, group_id: str, around: Surroundings, look_at: Callable[[float], object]) -> None:
        self.group_id = group_id
        self.sessions = Sessions(look_at)
        self._look_at = look_at
        self.stamp: Ground | None = None  # of the topics that the group epoch is known to stand for
        self.sights = Sights(around.acls)
        self._around = around
        self._queue: list[Work] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether requests wait, or the log is being asked."""
        return self._task is not None

    @property
    def data(self) -> ConsumerGroupData | None:
        """What the state holds now."""
        return consumer_data(self._around.replica.state.groups.get(self.group_id))

    def stands(self, state: StateData, request: Heartbeat) -> bool:
        """Whether the group's epoch stands for the topics of now, as this member sees them."""
        data = self.data
        member = data.members.get(request.member_id) if data is not None else None
        now = (stamp_of(state), self.sights.stamp)
        return self.stamp == now and self.sights.knows(member, request.viewer)

    def add(self, work: Work) -> None:
        """Queue a request. Raises GroupError when too many wait."""
        if len(self._queue) >= WORKS_MAX:
            raise GroupError(Code.COORDINATOR_NOT_AVAILABLE, f"{WORKS_MAX} requests wait for this group")
        self._queue.append(work)
        if self._task is None:
            self._task = tasks.start(self._work(), "plans of a consumer group", apart=True)

    async def settled(self) -> None:
        """Wait until what waits now is planned, and the log has it."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Answer whoever waits, and end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.give_up()

    def give_up(self) -> None:
        """The group is another agent's now: tell those that are not being planned. Nobody is late here."""
        self.sessions.end()
        queue, self._queue = self._queue, []
        refuse(queue, Code.NOT_COORDINATOR, "This is not the correct coordinator.")

    async def _work(self) -> None:
        works: list[Work] = []
        try:
            await asyncio.sleep(0)  # whoever comes in this round of the loop is planned together
            while self._queue:
                works = self._queue[:WORKS_PER_PLAN]
                del self._queue[:WORKS_PER_PLAN]
                try:
                    await self._rounds(works)
                except (LogError, OutcomeUnknown) as error:
                    _log.warning("the log did not answer for a group", group=self.group_id, error=str(error))
                    refuse(works, Code.COORDINATOR_NOT_AVAILABLE, str(error))
                except BaseException as error:  # these are told; whoever waits behind them is still served
                    if tasks.cancelled(error):
                        raise
                    tasks.tell("plan of a consumer group", error)
                    refuse(works, Code.COORDINATOR_NOT_AVAILABLE, f"the agent failed: {error!r}")
        finally:
            self._task = None
            refuse(works, Code.COORDINATOR_NOT_AVAILABLE, "the coordinator ended")  # but for those told
            if not self.sessions.busy:
                self._look_at(asyncio.get_running_loop().time())

    async def _rounds(self, works: list[Work]) -> None:
        """Plan, ask the log, answer; what is left when the group became classic goes to whoever sent it."""
        for _ in range(ATTEMPTS_MAX):
            opened = await self._open(works)
            if opened is None:
                return
            taken, change = await self._plan(opened, works)
            if change is not None:
                (result,) = await self._around.replica.submit([command(change)])
                if isinstance(result, Refused) and result.code is Code.NOT_COORDINATOR:
                    continue  # somebody changed the group meanwhile
                if isinstance(result, Refused):
                    _log.error("the log refused a plan", group=self.group_id, why=result.message)
                    refuse(works, told(result.code), result.message)
                    return
            self._took(opened, change)
            for work in works[:taken]:
                work.settle()
            refuse(works[taken:], Code.REBALANCE_IN_PROGRESS, "the group became a classic one")
            return
        refuse(works, Code.COORDINATOR_NOT_AVAILABLE, "another coordinator keeps changing the group")

    async def _plan(self, opened: _Opened, works: list[Work]) -> tuple[int, Change | None]:
        if _size(opened.draft, works) < OFFLOAD_FROM:
            return _planned(opened, works)
        return await asyncio.to_thread(_planned, opened, works)

    async def _open(self, works: list[Work]) -> _Opened | None:
        """The group as it is now, ready to be planned on; None when all were answered already."""
        for work in works:
            self.sights.heard(work.member_id, work.viewer)
        stamp, matched, seen = await self._resolve(works)
        state = self._around.replica.state
        group = state.groups.get(self.group_id)
        data = consumer_data(group)
        sight = self.sights.sight(data or _NOTHING, matched, seen, StateTopics(state, {}).name_of)
        topics = StateTopics(state, matched, sight)
        rules = _rules(state, self.group_id)
        before, upgrades = data or _NOTHING, False
        classic = _live_generation(group)
        if classic is not None and any(work.creates for work in works):
            try:
                before = upgraded(
                    self.group_id, classic, topics, allowed=rules.upgrade, size_max=rules.size_max
                )
            except GroupError as error:
                refuse(works, error.code, error.message)
                return None
            upgrades = True
        now_ms = self._around.clock.now_ms()
        draft = Draft(self.group_id, before, topics, rules, now_ms, self.sessions.ends)
        stale = data is not None and bool(data.members) and self.stamp != stamp
        stale = stale or sight.changed
        revision = revision_of(state, self.group_id)
        known = _NOTHING if data is None else data.note()  # apply goes on while a plan is made beside it
        return _Opened(draft, known, revision, data is not None, upgrades, stale, stamp, sight)

    async def _resolve(self, works: list[Work]) -> tuple[Ground | None, dict[str, Names], Seen]:
        """What every pattern of the group and of its requests matches, and what is seen of it; the stamp of
        what it stands for.

        The plan has these results for itself: what the agent remembers others push out at any time.
        """
        stamp: Stamp | None = stamp_of(self._around.replica.state)
        matched: dict[str, Names] = {}
        looked: set[tuple[str, str]] | None = None
        acls, seen = 0, Seen()
        while (wishes := self._wishes(works)) != looked:  # members may come while others are looked at
            state = self._around.replica.state
            now = asyncio.get_running_loop().time()
            if missing := {regex for _, regex in wishes} - matched.keys():
                found, fresh = await self._around.patterns.resolve(
                    sorted(missing), state.topics, stamp_of(state), now
                )
                matched |= found
                stamp = stamp if fresh else None
            acls, seen = await self.sights.of(matched, wishes)
            looked = wishes
        return None if stamp is None else (stamp, acls), matched, seen

    def _wishes(self, works: list[Work]) -> set[tuple[str, str]]:
        """Members with their patterns, of the group as it is now and of requests."""
        data = self.data
        members = data.members.values() if data is not None else ()
        return {(one.member_id, one.regex) for one in (*works, *members) if one.regex}

    def _took(self, opened: _Opened, change: Change | None) -> None:
        """The log has the change: watch what it set going."""
        self.stamp = opened.stamp
        self.sights.took(opened.sight, opened.draft.data.members.values())
        now = asyncio.get_running_loop().time()
        members = opened.draft.data.members
        if isinstance(change, ChangeConsumerGroup):
            for member_id in change.removed:
                self.sessions.forget(member_id)
            for row in change.assignments:
                self.sessions.stands(members[row.member_id], now)
            if opened.upgrades:
                session_s = session_seconds(self._around.replica.state, self.group_id)
                self.sessions.restart(opened.draft.data, session_s, now)
                self._around.on_upgrade(self.group_id)
        elif isinstance(change, DowngradeConsumerGroup):
            self.sessions.end()
            self._around.on_downgrade(self.group_id)


def session_seconds(state: StateData, group_id: str) -> float:
    """How long a member of the consumer protocol may be silent."""
    return group_configs.integer(state, group_id, "consumer.session.timeout.ms") / 1000


def _size(draft: Draft, works: list[Work]) -> int:
    """What a plan is long by; a new group owns nothing yet, and all that it wants is assigned."""
    members = draft.data.members.values()
    size = len(members) + draft.data.owned()
    wishes = chain(((work.topics, work.regex) for work in works), ((m.topics, m.regex) for m in members))
    return size if size >= OFFLOAD_FROM else size + wanted_partitions(draft.topics, wishes, OFFLOAD_FROM)


def _planned(opened: _Opened, works: list[Work]) -> tuple[int, Change | None]:
    """How many works were taken, and the change that they come to. May run beside the event loop."""
    if opened.stale:
        opened.draft.refresh(sights_changed=opened.sight.changed)
    taken = plan_all(opened.draft, works, opened.exists)
    if opened.upgrades and all(work.refused for work in works):
        return taken, None
    return taken, command_of(opened.draft, opened.known, opened.revision)


def _live_generation(group: Group | None) -> ClassicGeneration | None:
    """The generation of a classic group with members."""
    if group is None or group.kind != CLASSIC or group.classic is None or not group.classic.members:
        return None
    return group.classic


def _rules(state: State, group_id: str) -> Rules:
    configs = state.cluster_configs
    policy = broker_configs.text(configs, "group.consumer.migration.policy").lower()
    return Rules(
        size_max=broker_configs.integer(configs, "group.consumer.max.size"),
        assignment_interval_ms=group_configs.integer(state, group_id, "consumer.assignment.interval.ms"),
        assignors=tuple(broker_configs.items(configs, "group.consumer.assignors")),
        classic_size_max=broker_configs.integer(configs, "group.max.size"),
        upgrade=policy in ("bidirectional", "upgrade"),
        downgrade=policy in ("bidirectional", "downgrade"),
    )
