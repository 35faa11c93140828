"""The job that keeps another catalog's entries at the pointers of Floe's own, for one configured catalog.

Floe's catalog alone commits. Here a location is told elsewhere, behind that: nothing in this job is waited
for by a commit. One agent at a time does it, by the claim `publish/<catalog>`.

A pass: what differs is looked at in the other catalog; then a read barrier shows where the tables are now,
and that the claim is still held; then the entries are changed. In this order a publisher that lost its claim
cannot move an entry back: what it would write was newest after it looked, so whoever wrote a newer one did it
after that look, and the compare-and-swap fails. Of catalogs without one (REST) see docs/catalogs.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from coordination.jobs import STORE_FAILURES_MAX, Job
from coordination.state.types import ClaimHolder
from iceberg import latest_ids, ledger, metadata
from iceberg.folders import folder_of
from iceberg.publish.other import (
    CannotReplace,
    CatalogAway,
    CatalogFailed,
    Entry,
    EntryUnanswered,
    Key,
    OtherCatalog,
    Pointer,
)
from iceberg.publish.plan import Action, Plan, Published, Rules, decided, due, is_topics, published
from iceberg.publish.seen import Seen
from iceberg.publish.steps import Steps
from iceberg.sealed import read
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.store import NotFound, ObjectStore, StoreError
from objectstore.turns import in_turns

if TYPE_CHECKING:
    from coordination.replica import Replica

_logger = logging.getLogger("floe.iceberg.publish")
_T = TypeVar("_T")

TABLES_STEP = 500
"""Tables looked at in the state before the event loop gets a turn: about two milliseconds."""
STUCK_MAX = 16
"""Requests that have not ended long after their time, of clients without a bound: then none more is begun."""
WHOLE = "the catalog"
"""The name of what fails when no table would fare better."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """One configured catalog. Times in seconds. A pass looks at `entries_per_pass_max` and changes them."""

    name: str
    kind: str
    rules: Rules = field(default_factory=Rules)
    interval_s: float = 1.0
    check_s: float = 60.0
    retry_s: float = 1.0
    retry_s_max: float = 60.0
    entries_per_pass_max: int = 500
    requests_in_flight_max: int = 4
    drops: bool = True
    """Where a catalog takes no new location for a name, drop the entry and make it anew."""


Note = Callable[[str], None]
"""Is told `moved` or `failed`, per entry."""


class Publisher(Job):
    """Starts with `start()`; what it knows of tables is in `seen`."""

    expected = (*Job.expected, CatalogFailed)

    def __init__(
        self,
        replica: Replica,
        store: ObjectStore,
        warehouse: Warehouse,
        catalog: OtherCatalog,
        options: PublishOptions,
        steps: Steps | None = None,
    ) -> None:
        self.claim = f"publish/{options.name}"
        super().__init__(replica, options.interval_s)
        self.options = options
        self.seen = Seen(options.retry_s, options.retry_s_max)
        self.note: Note = lambda what: None
        self._store, self._warehouse = store, warehouse
        self._catalog = catalog
        self._steps = steps or Steps()
        self._pool: ThreadPoolExecutor | None = None
        self._stuck: set[Future[Any]] = set()
        self._unlisted: set[str] = set()
        self._held: ClaimHolder | None = None
        self._listed_s = 0.0
        self._away_until_s = 0.0
        self._tries = 0
        self._left_out: set[str] = set()

    async def stop(self) -> None:
        """End the job; a request under way ends by its own timeout."""
        await super().stop()
        self._let_go()
        await asyncio.to_thread(self._catalog.close)

    @property
    def publishes(self) -> bool:
        """Whether this agent is the one that publishes to the catalog now."""
        return self._held is not None and self.held() == self._held

    def late(self) -> dict[str, float]:
        """Since when each topic's entry is not what it should be, seconds; 0 where it is."""
        now_s, late = asyncio.get_running_loop().time(), self.seen.late
        return {
            each.topic: now_s - late[key] if key in late else 0.0 for key, each in self.seen.wanted.items()
        }

    def error_of(self, each: Published) -> str:
        """Why a table's entry is not what it should be; empty when it is, or is only late."""
        for name in (_item(each.key), f"table {each.table} has no entry", _space(each.key[0]), WHOLE):
            failure = self.failures.get(name)
            if failure is not None:
                return failure.error
        return ""

    async def step(self, held: ClaimHolder) -> None:
        """One pass, if the catalog is not to be left alone for now."""
        now_s = asyncio.get_running_loop().time()
        if held != self._held:  # what another agent did meanwhile is not known
            self._held, self._listed_s, self._away_until_s, self._tries = held, 0.0, 0.0, 0
            self.seen.forget()
        plan = await self._plan()
        self.seen.compare(plan, now_s)
        if now_s < self._away_until_s:
            return
        try:
            await self._pass(plan, held, now_s)
        except CatalogAway as error:
            self._is_away(error)
        else:
            self._tries = 0
            self.item_worked(WHOLE)

    def _is_away(self, error: CatalogAway) -> None:
        """Leave the catalog alone for a while, longer each time."""
        self.item_failed(WHOLE, error)
        self.note("failed")
        options = self.options
        waits = min(options.retry_s_max, options.retry_s * 2 ** min(self._tries, 16))
        self._tries += 1
        self._away_until_s = asyncio.get_running_loop().time() + waits

    async def _pass(self, plan: Plan, held: ClaimHolder, now_s: float) -> None:
        if not self._listed_s or now_s - self._listed_s >= self.options.check_s:
            await self._list(plan)
            self._listed_s = now_s
        wanted, left_out = plan.entries(self.seen.folders)
        self._tell_left_out(wanted, left_out)
        keys = [
            key
            for key in due(wanted, self.seen.entries)
            if key[0] not in self._unlisted and not self.seen.waits(key, now_s)
        ]
        keys = keys[: self.options.entries_per_pass_max]
        if not keys:
            return
        found = await self._looked(keys)
        await self._steps.before("barrier")
        await self.replica.barrier()
        now = await self._plan()
        wanted, _ = now.entries(self.seen.folders)
        doing = [(key, decided(wanted.get(key), *found[key][1:])) for key in found]
        drops = [each for each in doing if each[1] is Action.DROP]
        others = [each for each in doing if each[1] is not Action.DROP]
        for some in (drops, others):
            await self._each(
                [
                    (key, partial(self._act, key, what, found[key][0], wanted.get(key), held))
                    for key, what in some
                ]
            )
        self.seen.compare(now, asyncio.get_running_loop().time())

    async def _plan(self) -> Plan:
        """All topics' tables as the state has them, in steps."""
        state, rules = self.replica.state, self.options.rules
        plan = Plan(namespaces={rules.namespace_of(each) for each in state.namespaces})
        for number, table in enumerate(list(state.tables.values())):
            each = published(state, table, rules)
            if each is not None:
                spelled = self._catalog.spelled(each.key)
                plan.by_folder[folder_of(each.location)] = replace(each, key=spelled)
            if number % TABLES_STEP == TABLES_STEP - 1:
                await asyncio.sleep(0)
        return plan

    async def _list(self, plan: Plan) -> None:
        """Learn which names the catalog has; entries of tables that are gone are found by it.

        A namespace that cannot be listed stops no other. Raises CatalogAway, also where none can be.
        """
        namespaces = {self._catalog.spelled((each, ""))[0] for each in plan.namespaces}
        failed: dict[str, CatalogFailed] = {}
        every = sorted(namespaces | self.seen.namespaces)
        for namespace in every:
            await self._steps.before("list")
            try:
                names = await self._call(self._catalog.names, namespace)
            except CatalogAway:
                raise
            except CatalogFailed as error:
                failed[namespace] = error
                continue
            entries = {(namespace, name): self._told(location) for name, location in names.items()}
            self.seen.listed(namespace, entries)
        if failed and len(failed) == len(every):
            raise CatalogAway(str(next(iter(failed.values()))))
        for namespace in self._unlisted - failed.keys():
            self.item_worked(_space(namespace))
        for namespace, failure in failed.items():
            self.item_failed(_space(namespace), failure)
        self._unlisted = set(failed)

    def _told(self, location: str | None) -> str | None:
        """What a list says of an entry, as `Seen` has it."""
        try:
            plain = self._warehouse.locate(self._warehouse.key(location)) if location else location
        except OutsideWarehouse:
            return ""
        return plain if not plain or self.seen.is_known(folder_of(plain)) else None

    async def _own(self, location: str) -> str:
        """A location in Floe's own spelling if it is of a topic's table, else empty.

        The state knows where tables are. Of one that was dropped its metadata says whose it was.
        """
        try:
            plain = self._warehouse.locate(self._warehouse.key(location))
        except OutsideWarehouse:
            return ""
        if self.seen.is_known(folder_of(plain)):
            return plain
        try:
            content = await read(self._store, self._warehouse, plain)
            found = await in_turns(metadata.decode_steps(content))
            return plain if ledger.owner(found) or latest_ids.owner(found) else ""
        except NotFound:
            return plain if is_topics(folder_of(plain)) else ""
        except (StoreError, ValueError) as error:
            _logger.warning("catalog %s: %s is left alone: %s", self.options.name, plain, error)
            return ""

    async def _looked(self, keys: Sequence[Key]) -> dict[Key, tuple[Entry | None, str | None, bool]]:
        """(entry, its location in Floe's spelling, whether it is Floe's), of what could be looked at."""
        found: dict[Key, tuple[Entry | None, str | None, bool]] = {}

        async def look(key: Key) -> None:
            await self._steps.before("look")
            entry = await self._call(self._catalog.look, key)
            own = await self._own(entry.location) if entry is not None else ""
            found[key] = (entry, None if entry is None else own or entry.location, bool(own))
            self.seen.looked(key, None if entry is None else own)

        await self._each([(key, partial(look, key)) for key in keys])
        return {key: found[key] for key in keys if key in found}

    async def _each(self, work: Sequence[tuple[Key, Callable[[], Awaitable[None]]]]) -> None:
        """Work on several entries side by side: what fails for one stays with it. Raises CatalogAway, also
        where several in a row begin to be unanswered: it is the catalog then.
        """
        room = asyncio.Semaphore(self.options.requests_in_flight_max)
        away: list[CatalogAway] = []
        unanswered = 0

        def note(key: Key, error: Exception) -> None:
            nonlocal unanswered
            unanswered += isinstance(error, EntryUnanswered) and _item(key) not in self.failures
            self.seen.unknown(key)
            self._failed(key, error)
            if unanswered >= STORE_FAILURES_MAX:
                away.append(CatalogAway(str(error)))

        async def one(key: Key, do: Callable[[], Awaitable[None]]) -> None:
            nonlocal unanswered
            async with room:
                if away:
                    return
                try:
                    await do()
                    unanswered = 0
                except CatalogAway as error:
                    away.append(error)
                    self.seen.unknown(key)
                except (CatalogFailed, StoreError, ValueError) as error:
                    note(key, error)

        for outcome in await asyncio.gather(*(one(*each) for each in work), return_exceptions=True):
            if outcome is not None:
                raise outcome
        if away:
            raise away[0]

    async def _act(
        self, key: Key, what: Action, entry: Entry | None, wanted: Published | None, held: ClaimHolder
    ) -> None:
        """Do it, if this agent is still the one that does. Raises CatalogFailed."""
        if self.held() != held:
            return
        title = ".".join(key)
        if what is Action.TAKEN:
            raise CatalogFailed(
                f"{title} is there, and is not Floe's: rename or drop it in that catalog, or set "
                f"floe.table.name, or floe.table.publish=false, of topic {wanted.topic if wanted else ''}"
            )
        if what is Action.AHEAD:
            raise CatalogFailed(
                f"{title} is at {entry.location if entry else ''}, which is newer than the table's "
                f"{wanted.location if wanted else ''}: it is not moved back. Was this cluster restored? "
                "Drop the entry in that catalog"
            )
        if what is Action.DROP and entry is not None:
            await self._steps.before("drop")
            await self._call(self._catalog.drop, key, entry)
            self.seen.looked(key, None)
            _logger.info("catalog %s: %s is dropped", self.options.name, title)
        elif wanted is not None and what in (Action.CREATE, Action.REPLACE):
            await self._point(key, entry, wanted)
            self.seen.moved(key, wanted.location)
            self.note("moved")
        self.seen.worked(key)
        self.item_worked(_item(key))

    async def _point(self, key: Key, entry: Entry | None, wanted: Published) -> None:
        """Make the entry point to the table's current metadata."""
        pointer = Pointer(wanted.location, await self._shown(wanted.location))
        if entry is None:
            await self._steps.before("create")
            await self._call(self._catalog.create, key, pointer)
            _logger.info("catalog %s: %s is published", self.options.name, ".".join(key))
            return
        try:
            await self._steps.before("replace")
            await self._call(self._catalog.replace, key, entry, pointer)
        except CannotReplace as error:
            if not self.options.drops:
                raise CatalogFailed(
                    f"{error}; allow it to be dropped and made anew (`replace: drop`)"
                ) from error
            await self._made_anew(key, entry, pointer)

    async def _made_anew(self, key: Key, entry: Entry, pointer: Pointer) -> None:
        """Drop and create: for a moment there is no such table. What cannot be created has its former one."""
        await self._steps.before("drop")
        await self._call(self._catalog.drop, key, entry)
        try:
            await self._steps.before("create")
            await self._call(self._catalog.create, key, pointer)
        except CatalogFailed:
            await self._call(self._catalog.create, key, Pointer(entry.location, pointer.metadata))
            raise

    async def _shown(self, location: str) -> dict[str, Any]:
        """The metadata, for a catalog that shows columns. Raises StoreError, and ValueError."""
        if not self._catalog.shows_metadata:
            return {}
        content = await read(self._store, self._warehouse, location)
        return await in_turns(metadata.decode_steps(content))

    def _tell_left_out(self, wanted: Mapping[Key, Published], left_out: Mapping[Key, Published]) -> None:
        """Two tables of Floe's may come to one name there: the second one has no entry."""
        told = set()
        for key, each in left_out.items():
            error = CatalogFailed(
                f"{each.table} and {wanted[key].table} would both be {'.'.join(key)} there: "
                "give one topic another floe.table.name"
            )
            told.add(f"table {each.table} has no entry")
            self.item_failed(f"table {each.table} has no entry", error, partial(self._without, each.topic))
        for name in self._left_out - told:
            self.item_worked(name)
        self._left_out = told

    def _without(self, topic: str) -> bool:
        """Whether there is no such topic, so that its table needs no entry any more."""
        return topic not in self.replica.state.topics

    def _failed(self, key: Key, error: Exception) -> None:
        self.item_failed(_item(key), error)
        self.seen.failed(key, asyncio.get_running_loop().time())
        self.note("failed")

    async def _call(self, method: Callable[..., _T], *given: Any) -> _T:
        """A blocking call, in one of this catalog's own threads: a dead one holds up no other.

        One that does not end in its time is left behind, with threads and connections. Raises CatalogAway.
        """
        self._stuck = {each for each in self._stuck if not each.done()}
        if len(self._stuck) >= STUCK_MAX:
            raise CatalogAway(
                f"{len(self._stuck)} requests to it do not end: restart this agent, or that catalog"
            )
        if self._pool is None:
            name = f"publish-{self.options.name}"
            self._pool = ThreadPoolExecutor(self.options.requests_in_flight_max, thread_name_prefix=name)
        asked = self._pool.submit(method, *given)
        try:
            async with asyncio.timeout(self._catalog.call_s_max):
                return await asyncio.wrap_future(asked)
        except TimeoutError:
            if not asked.done():
                self._stuck.add(asked)
            self._let_go()
            await asyncio.to_thread(self._catalog.close)
            raise CatalogAway(
                f"it says nothing for {self._catalog.call_s_max:g} s (look at its address, and at timeout_ms)"
            ) from None

    def _let_go(self) -> None:
        """Begin anew, by other threads: what those of now do may not end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _space(namespace: str) -> str:
    return f"namespace {namespace}"


def _item(key: Key) -> str:
    return f"table {'.'.join(key)}"
