"""One simulated run: agents, clients and faults from a seed, to a judgement. Start reading here."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from contextvars import Context
from string import digits
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from agent.app import App
from agent.net.wire.api import APIS
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, UpdateFeatures
from coordination.log import LogError, LogRegressed
from coordination.memory_server import MemoryServer
from coordination.replica.errors import ReplicaFailed
from coordination.state import StateError
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.features import LEVEL
from coordination.state.levels import SOFT_DELETE
from tests.checker.findings import Finding, Judgement
from tests.checker.judge import judge
from tests.checker.operations import History
from tests.checker.progress import Patience
from tests.sim import archived, avro_memory, held_objects, quick, restored, schedule, scrubbing
from tests.sim.audit import audit
from tests.sim.beginners import Beginners, Begun
from tests.sim.bindings import Binder, asks_any
from tests.sim.clerk import Clerk
from tests.sim.clients import RETRY_S, Reader, Recorder, Surroundings, Writer
from tests.sim.clock import START_MS, virtual_time
from tests.sim.collector import without_collector, without_list_of_tasks
from tests.sim.coverage import Seen
from tests.sim.damage import Hurt, Skipper, judged
from tests.sim.faults import FAULTS
from tests.sim.faults.upgrade import UPGRADE
from tests.sim.final import all_ended, caught_up, committed, copies_differ, passed_over, positions, read_all
from tests.sim.follower import Follower
from tests.sim.gate import Gate, Gatekeeper, Replayer, settled
from tests.sim.keepers import (
    KEPT,
    KEPT_PARTITIONS,
    SHORT_LIVED,
    SHORT_PARTITIONS,
    Keeper,
    Ledger,
    Restorer,
)
from tests.sim.keys import Keys
from tests.sim.limits import small_limits
from tests.sim.loop import NODE, VirtualLoop
from tests.sim.members import GROUP as MEMBERS
from tests.sim.members import PATIENCE_S, SHARED, Member
from tests.sim.modern import GROUP as MODERN
from tests.sim.modern import Modern
from tests.sim.mortal import Mortal
from tests.sim.network import Network
from tests.sim.node import AgentNode, Node
from tests.sim.operator import Operator
from tests.sim.outcome import Outcome
from tests.sim.pipeliner import Pipeliner
from tests.sim.plan import Plan
from tests.sim.queues import Queues
from tests.sim.registrar import Registrar, asks_http
from tests.sim.relay import COPIES, COPIES_PARTITIONS, GROUP, Relay
from tests.sim.replicas import Following
from tests.sim.scrubbing import Vandal, Vandalism
from tests.sim.settings import CLUSTER, COMPACTED, NEWEST, SHORT_RETENTION, settings_of
from tests.sim.sick.bed import Sickbed
from tests.sim.sick.goers import Goers
from tests.sim.solo import Solo
from tests.sim.traced_store import TracedStore
from tests.sim.transactors import Transactor
from tests.sim.waits import quick_waits
from tests.sim.witness import Witness

HEAL_S_MAX, DRAIN_S, RESTART_S = 60.0, 8.0, 1.0
SMALL_FETCH_BYTES = 1000
TOPIC = "sim"


class Living(Protocol):
    """What a client is while its process runs."""

    async def live(self) -> None:
        """Until told to stop."""


class NotHealed(Exception):
    """An agent did not come back although nothing is broken any more."""


class World:
    """Everything that a run is made of."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lines: list[str] = []
        self.loop = VirtualLoop(plan.seed)
        self.network = Network(self.loop, self.trace)
        self.network.default_latency_s = plan.latency_s
        self.server = MemoryServer("sim")
        self.objects = TracedStore(self.trace, lambda: START_MS + int(self.loop.time() * 1000))
        world = (self.server, self.objects)
        settings = settings_of(plan)
        self.held: set[str] = set()
        self.agents = [
            AgentNode(self.loop, self.network, f"a{n}", n, world, settings, plan.ways())
            for n in range(plan.agents)
        ]
        for agent, skew in zip(self.agents, plan.skews_ms, strict=True):
            agent.skew_ms = skew
            agent.feature_max = plan.level
            agent.held = self.held
        self.recorder = Recorder(self.loop, self.trace)
        first = [TopicPartition(TOPIC, n) for n in range(plan.partitions)]
        self.keys = Keys(first, max(plan.live_keys, plan.partitions), plan.key_writes)
        self.clients: list[Node] = []
        self.living: dict[str, Living] = {}
        self.seen = Seen(NODE.get)
        self.ledger, self.witness = Ledger(), Witness(registry=plan.registrar)
        self.around: Surroundings | None = None
        self.broken: list[Finding] = []
        self.sickbed, self.hurt, self.gate = Sickbed(self), Hurt(self.objects, self.agents), Gate()
        self.vandalism = Vandalism(self.objects, on=plan.scrubbed)
        self.begun, self.kept = Begun(), archived.Kept(self.objects, on=plan.archived)
        self.following, self.queues = Following(self), Queues(self)

    def trace(self, text: str) -> None:
        """One line of the trace, stamped with virtual time."""
        self.lines.append(f"{self.loop.time():.6f} {text}")

    def run(self) -> Outcome:
        """The whole run."""
        avro_memory.remember()
        quick.quicken()
        asyncio.set_event_loop(self.loop)
        try:
            with (
                virtual_time(self.loop, self.plan.seed),
                self.witness.watches(),
                self.seen.watches(),
                self.gate.watches() if self.plan.gated else nullcontext(),
                without_collector(),
                without_list_of_tasks(),
                quick_waits(),
                small_limits(),
            ):
                judgement = self.loop.run_until_complete(self._main())
                virtual_s, lines = self.loop.time(), list(self.lines)
                self.loop.put_away()
        finally:
            asyncio.set_event_loop(None)
        digest, seen = hashlib.sha256("\n".join(lines).encode()).hexdigest(), self.seen.counts
        return Outcome(self.plan, judgement, lines, digest, virtual_s, seen, self.recorder.operations)

    async def _main(self) -> Judgement:
        for agent in self.agents:
            agent.start()
        for agent in self.agents:
            assert agent.started is not None, "it was started above"
            try:
                await agent.started
            except ReplicaFailed as failed:
                return self._stuck(f"{agent.name} does not start: {failed}")
        await self._node("setup", self._create_topics())
        self.following.begin()
        await self.queues.begin()
        around = self.around = self._surroundings()
        for client in self._cast():
            self._begin_client(client)
        await schedule.play(self)
        try:
            healed = await self._heal()
        except NotHealed as stuck:
            return self._stuck(str(stuck))
        around.stopping.set()
        around.healed_s = self.loop.time()
        await asyncio.sleep(DRAIN_S)
        for node in self.clients:
            if not isinstance(self.living[node.name], Member | Modern):
                self._leave_pending(node)
                node.crash()
        findings: list[Finding] = await self._node("final", self._final())
        patience = Patience(group_ns=int(PATIENCE_S * 1e9), resumed=frozenset(around.readers[MODERN]))
        judgement = judge(History(self.recorder.operations), healed_ns=healed, patience=patience)
        judgement.findings += findings
        judgement.findings += self.ledger.findings
        found = await self._audited()
        judgement.findings += [*found, *(e for a in self.agents for e in self.witness.judged(a))]
        if self.plan.restored and not self.plan.sick and judgement.valid and not self.witness.findings:
            judgement.findings += await restored.play(self)
        judgement.findings += self.witness.findings + self.broken + around.findings + self.vandalism.findings
        self._count()
        return judgement

    async def _audited(self) -> list[Finding]:
        """What no client sees."""
        agents, objects, truths = self.agents, self.objects, self.witness.truths
        auditing = audit(agents, objects, self.ledger, truths, self.witness.mortal.was_start)
        found: list[Finding] = await self._node("audit", auditing)
        if self.plan.archived:
            first = self.vandalism.first
            found += await self._node("audit", archived.judged(agents, objects, self.kept, first))
        if self.plan.beginners:
            found += await self._node("audit", self.begun.judged(agents[0], objects))
        return found

    def _stuck(self, detail: str) -> Judgement:
        """What can be said when it does not go on."""
        judgement = judge(History(self.recorder.operations))
        judgement.findings.append(Finding("stuck", "", detail, ()))
        judgement.findings += self.ledger.findings + self.witness.findings
        judgement.findings += self.around.findings if self.around is not None else []
        return judgement

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            self.loop,
            self.recorder,
            [a.bootstrap for a in self.agents],
            self.keys,
            asyncio.Event(),
            self.plan.fetch_bytes,
            self.plan.seeks_back,
            propose=asks_any(self.loop, self.agents),
            ask=asks_http(self.loop, self.agents),
            crash=self._crash_own,
            revision=lambda: self.server.revision,
            sent=self.witness.sent,
        )

    async def _final(self) -> list[Finding]:
        """The last reads, when no transaction is open any more."""
        app = self.agents[0].app
        assert app is not None, "healed before it is judged"
        assert self.around is not None, "the world ran"
        findings = await settled(self.around, self.gate) if self.plan.gated else []
        findings += await all_ended(app) or await read_all(self.around)
        if findings:
            return findings
        read = committed(self.recorder)
        findings += await self.queues.judged(self.around, read)
        findings += await held_objects.judged(self.around, app, self.held)
        findings += await self.following.judged(self.around, read)
        if self.plan.relay:
            findings += await copies_differ(self.around, COPIES, read, positions(self.around, app, GROUP))
        if self.plan.members or self.plan.modern:
            findings += await self._groups_judged(self.around, app, read)
        await scrubbing.judged(self.around, self.vandalism, self.agents)
        return findings + await judged(self.around, self.hurt)

    async def _groups_judged(
        self, around: Surroundings, app: App, read: Mapping[str, set[int]]
    ) -> list[Finding]:
        """Members come to the end, and then stop; nothing was passed over, nothing copied twice."""
        plan = self.plan
        of_first = {key: offsets for key, offsets in read.items() if key.rpartition("-")[0] == TOPIC}
        groups = [(MEMBERS, read)] * bool(plan.members) + [(MODERN, of_first)] * bool(plan.modern)
        findings = [each for group, due in groups for each in await caught_up(around, app, group, due)]
        around.drained.set()
        await asyncio.sleep(DRAIN_S)
        members = [each for each in self.clients if isinstance(self.living[each.name], Member | Modern)]
        for client in members:
            self._leave_pending(client)
            client.crash()
        findings += await all_ended(app)
        for group, due in groups:
            at = positions(around, app, group)
            if group == MEMBERS and plan.member_kind == "v2":
                findings += await copies_differ(around, SHARED, due, at)
                continue
            given = (each for each in self.recorder.operations if each.process in around.readers[group])
            findings += passed_over(group, given, due, at)
        return findings

    def _cast(self) -> list[str]:
        """Who takes part: the names of the clients."""
        plan = self.plan
        cast = [f"w{n}" for n in range(plan.writers)] + [f"r{n}" for n in range(plan.readers)]
        cast += [f"t{n}" for n in range(len(plan.transactors))]
        cast += [f"p{n}" for n in range(plan.pipeliners)]
        cast += ["relay"] if plan.relay else []
        cast += [
            each for each in ("solo", "operator", "mortal", "binder", "registrar") if getattr(plan, each)
        ]
        cast += ["beginners"] * plan.beginners + ["vandal"] * plan.scrubbed
        cast += ["follower"] * plan.registrar + ["gatekeeper", "replayer"] * plan.gated
        cast += [f"k{n}" for n in range(plan.modern)] + ["going"] * plan.sick
        cast += [f"m{n}" for n in range(plan.members)] + ["skipper"] * (plan.hurt and not plan.sick)
        if plan.changes or plan.key_writes or plan.live_keys > plan.partitions:
            cast += ["clerk"]
        return (
            cast
            + (["keeper", "restorer"] if plan.keepers else [])
            + self.following.cast()
            + self.queues.cast()
        )

    def _count(self) -> None:
        """What the run did besides its faults, for the coverage."""
        app, counts = self.agents[0].app, self.seen.counts
        assert app is not None, "healed before it is judged"
        partitions = [each for each in app.replica.state.partitions if each is not None]
        merged = [each.merged for each in partitions if each.merged is not None]
        counts["job merged"] += len(merged)
        counts["job compacted"] += sum(each.first_dirty_offset > 0 for each in merged)
        counts["job moved log starts"] += sum(each.log_start > 0 for each in partitions)
        counts["job restored"] += self.ledger.restores
        counts["keys retired"] += self.keys.retired
        counts["keys"] += len(self.keys.every)
        if self.around is not None:
            counts.update(self.around.counts)
            counts["skipped behind an abort"] += len(self.around.skipped)
        counts["puts landed late"] += sum(agent.hanging.landed for agent in self.agents)
        counts["small fetches"] += self.plan.fetch_bytes < SMALL_FETCH_BYTES
        self.witness.counted(counts)
        for log in (each for agent in self.agents for each in agent.relayed if each is not None):
            counts["relay entries"] += log.by_relay
            counts.update({f"relay left {reason}": number for reason, number in log.left.items()})
        for event, number in self.network.events.items():
            counts[f"network {event}"] += number
        for kinds, word in ((self.network.requests, "request"), (self.network.held, "held")):
            for key, number in kinds.items():
                counts[f"{word} {APIS[key].name if key in APIS else key}"] += number

    def _begin_client(self, client: str) -> None:
        assert self.around is not None, "the world runs"
        node = next((each for each in self.clients if each.name == client), None)
        if node is None:
            node = Node(self.loop, self.network, client)
            self.clients.append(node)
        node.begin()
        own = self.following.life(client, self.around) or self.queues.life(client, self.around)
        living, life = own or self._life(client), node.life
        self.living[client] = living
        node.spawn(living.live()).add_done_callback(lambda ended: self._ended(node, life, ended))

    def _ended(self, client: Node, life: int, ended: asyncio.Task[None]) -> None:
        """What an error of aiokafka's ends begins again, as any process does; another error is ours."""
        # only aiokafka cancels clients: a consumer's stop() ends so when its fetch waits to be tried again
        if (error := asyncio.CancelledError() if ended.cancelled() else ended.exception()) is None:
            return
        if ended.cancelled() or "aiokafka" in traceback.extract_tb(error.__traceback__)[-1].filename:
            self.seen.counts[f"broke {client.name.rstrip(digits)} {type(error).__name__}"] += 1
            self.loop.call_later(RETRY_S, self._begin_again, client, life)
        else:
            told = "".join(traceback.format_exception(error)[-2:])
            self.broken.append(Finding("client-broke", client.name, told, ()))

    def _begin_again(self, client: Node, life: int) -> None:
        assert self.around is not None, "clients live"
        goes_on = not self.around.stopping.is_set() or isinstance(self.living[client.name], Member | Modern)
        if client.life == life and goes_on:
            self._leave_pending(client)
            client.crash()
            self._begin_client(client.name)

    def _life(self, client: str) -> Living:
        around, plan = self.around, self.plan
        assert around is not None, "the world runs"
        match client[0], client:
            case "w", _:
                return Writer(around, plan.rate)
            case "p", _:
                return Pipeliner(around, plan.rate)
            case _, "beginners":
                return Beginners(around, self.begun)
            case "k", str(node) if node != "keeper":
                return Modern(around, node, plan.partitions, static=plan.static)
            case _, "solo" | "going":
                return Solo(around) if client == "solo" else Goers(around)
            case _, "skipper":
                return Skipper(around, self.hurt)
            case _, "vandal":
                return Vandal(around, self.vandalism, self.agents)
            case _, "binder":
                return Binder(around, self.witness.bindings, plan.bound())
            case _, "registrar":
                return Registrar(around, self.witness.subjects, plan.agents)
            case _, "follower":
                return Follower(around, self.witness.subjects)
            case _, "gatekeeper" | "replayer":
                return (Gatekeeper if client == "gatekeeper" else Replayer)(around, self.gate)
            case _, "operator" | "mortal":
                return Operator(around) if client == "operator" else Mortal(around, self.witness.mortal)
            case "t", _:
                version = plan.transactors[int(client[1:])]
                return Transactor(around, client, version, plan.timeout_ms, plan.micro_max)
            case "m", str(node) if node != "mortal":
                return Member(around, client, plan.member_kind, plan.timeout_ms, static=plan.static)
            case _, "clerk":
                return Clerk(around, plan.changes)
            case _, "relay":
                return Relay(around, plan.relay, plan.timeout_ms)
            case _, "keeper" | "restorer":
                return (Keeper if client == "keeper" else Restorer)(around, self.ledger)
        return Reader(around)

    def crash_client(self, client: Node) -> None:
        """Tear a client down; another life follows."""
        if self.around is None or self.around.stopping.is_set():
            return
        self._leave_pending(client)
        client.crash()
        self._begin_client(client.name)

    def _crash_own(self) -> None:
        """Tear the client down that runs."""
        own = NODE.get().partition("/")[0]
        node = next(each for each in self.clients if each.name == own)
        self.loop.call_soon(self.crash_client, node, context=Context())  # which is nobody's

    def _leave_pending(self, client: Node) -> None:
        """Note what a client that dies has under way, with the outcome that this means."""
        life = self.living.get(client.name)
        pending = getattr(life, "pending", None)
        if pending is not None:
            life.pending = None  # type: ignore[union-attr]  # it has one
            self.recorder.leave(pending)

    async def _heal(self) -> int:
        """Everything is put right; the time at which every agent serves, ns."""
        self.trace("heal")
        for fault in (*FAULTS, UPGRADE) if self.plan.level < FEATURE_LEVEL_MAX else FAULTS:
            fault.end(self, self.agents)
        for agent in self.agents:  # one that is ahead ends every transaction that is younger than its lead
            agent.set_clock_right()
        self.network.release_all()
        self.seen.faults.clear()
        self.seen.armed.clear()
        self.network.heal_all()
        try:
            async with asyncio.timeout(HEAL_S_MAX):
                while not all(a.alive and a.ready and a.error is None for a in self.agents):
                    self._restart_failed()
                    await asyncio.sleep(RESTART_S)
        except TimeoutError:
            late = [agent.name for agent in self.agents if not agent.ready]
            raise NotHealed(f"not ready {HEAL_S_MAX:.0f} s after the last fault: {late}") from None
        await self.agents[0].spawn(self._finalize())
        self.trace("healed")
        return self.recorder.now_ns()

    async def _finalize(self) -> None:
        """The newest level, when every agent knows it."""
        app = self.agents[0].app
        assert app is not None, "healed"
        while app.replica.state.feature_level < FEATURE_LEVEL_MAX:
            update = UpdateFeatures.Update(
                name=LEVEL, level=FEATURE_LEVEL_MAX, kind=UpdateFeatures.Update.UPGRADE
            )
            with suppress(LogError):  # its lease may just have ended: whoever administers asks again
                self.trace(f"level {await app.replica.propose(UpdateFeatures(updates=[update]))}")
            await asyncio.sleep(RESTART_S)

    def _restart_failed(self) -> None:
        """An agent that ended with an error is started again, as its supervisor would."""
        for agent in self.agents:
            if (error := agent.error) is None:
                continue
            if isinstance(error, StateError):  # somebody gave it what the log does not have
                self.broken.append(Finding("poisoned", "", f"{agent.name}: {error}"[:300], ()))
            if isinstance(error, LogRegressed):  # restored.py plays that when all is over
                self.broken.append(Finding("log-lost", "", f"{agent.name}: {error}"[:300], ()))
            agent.crash()
            agent.start()

    async def _node(self, client: str, work: Any) -> Any:
        node = Node(self.loop, self.network, client)
        node.begin()
        return await node.spawn(work)

    async def _create_topics(self) -> None:
        app = self.agents[0].app
        assert app is not None, "it was started above"
        configs = CLUSTER | (NEWEST if self.plan.level >= SOFT_DELETE else {})
        changes = [AlterTopicConfigs.Change(name=key, value=value) for key, value in configs.items()]
        await self.agents[0].spawn(app.replica.propose(AlterClusterConfigs(changes=changes)))
        admin = AIOKafkaAdminClient(bootstrap_servers=self.agents[0].bootstrap)
        await admin.start()
        await admin.create_topics(
            [
                NewTopic(TOPIC, self.plan.partitions, 1),
                NewTopic(COPIES, COPIES_PARTITIONS, 1),
                NewTopic(SHARED, COPIES_PARTITIONS, 1),
                NewTopic(KEPT, KEPT_PARTITIONS, 1, topic_configs=COMPACTED | self.plan.kept()),
                NewTopic(SHORT_LIVED, SHORT_PARTITIONS, 1, topic_configs=SHORT_RETENTION),
            ]
        )
        await admin.close()
