"""Who may do what in the REST catalog: a table asks for what its topic asks for.

A table of a topic, its latest table and its view are the topic's, and stay so by name when the topic is gone.
A table or view of another engine has no topic: it is asked for as a topic called `namespace.name` would be.
What one may not describe is as if it were not there. Who decides is the agent (`Access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from coordination.state.acl_types import Operation
from coordination.state.redacting import policy_of
from coordination.state.tables import topic_id_of
from iceberg.latest_ids import topic_behind
from iceberg.rest_errors import CatalogError, forbidden, no_such_namespace, no_such_table
from iceberg.view_names import REDACTED

if TYPE_CHECKING:
    from coordination.replica import Replica
    from coordination.state.types import Table, Topic
    from iceberg.rest_pointers import Key

CLUSTER = ""
"""In place of a topic's name."""
Missing = Callable[[str, str], CatalogError]


class Access(Protocol):
    """What whoever asks may do."""

    @property
    def principal(self) -> str:
        """Who asks, without `User:`."""
        ...

    @property
    def cleared(self) -> bool:
        """Whether fields that schemas mark are for him too (`floe.redact`)."""
        ...

    def may(self, operation: Operation, topic: str, *, quiet: bool = False) -> bool:
        """Whether he may do this with the topic (CLUSTER: the cluster). `quiet`: a no is no refusal."""
        ...

    def holds(self, operation: Operation, topic: str) -> bool:
        """Whether ACLs allow it, also while they are only watched: a no is no refusal yet."""
        ...


class Everybody:
    """May do everything: nobody asks who it is."""

    principal = "ANONYMOUS"
    cleared = True

    def may(self, operation: Operation, topic: str, *, quiet: bool = False) -> bool:
        """Yes."""
        return True

    def holds(self, operation: Operation, topic: str) -> bool:
        """Yes."""
        return True


@dataclass(frozen=True, slots=True)
class Gate:
    """What one request passes, by the state as it is now. Each method raises CatalogError."""

    replica: Replica
    access: Access

    def topic_of(self, key: Key) -> str:
        """What ACLs call a table or a view: its topic's name."""
        tables = self.replica.state.tables
        table = tables.get(key)
        if table is None and key[1].endswith(REDACTED):
            table = tables.get((key[0], key[1].removesuffix(REDACTED)))
        if table is None:
            return ".".join(key)
        living = self._living(table)
        return living.name if living is not None else table.topic or ".".join(key)

    def sees(self, key: Key) -> bool:
        """Whether it is shown in lists."""
        return self.access.may(Operation.DESCRIBE, self.topic_of(key), quiet=True)

    def describe(self, key: Key, missing: Missing = no_such_table) -> None:
        """Raises `missing`, a 404. What is not there is nobody's refusal."""
        if not self._is_there(key) or not self.access.may(Operation.DESCRIBE, self.topic_of(key)):
            raise missing(*key)

    def read(self, key: Key, missing: Missing = no_such_table) -> None:
        """Also whoever may not read fields that schemas mark reads no table that has them, its view only."""
        self.describe(key, missing)
        topic = self.topic_of(key)
        if not self.access.may(Operation.READ, topic):
            raise _refused(Operation.READ, topic, f"read {'.'.join(key)}")
        marking = self._marking(key)
        if marking is not None and not self.access.cleared:
            raise forbidden(
                f"{'.'.join(key)} has fields that are not for everybody (floe.redact of topic "
                f"{marking.name!r}): who reads them is in redaction.cleared_principals"
            )

    def alter(self, key: Key, missing: Missing = no_such_table) -> None:
        """A commit, a drop, a rename from this name."""
        self.describe(key, missing)
        topic = self.topic_of(key)
        if not self.access.may(Operation.ALTER, topic):
            raise _refused(Operation.ALTER, topic, f"change {'.'.join(key)}")

    def create(self, key: Key) -> None:
        """A table or view of this name, which may be there."""
        topic = ".".join(key)
        if not self._may_create(topic):
            raise _refused(Operation.CREATE, topic, f"create {topic}")

    def commit(self, key: Key, *, creates: bool) -> None:
        """A commit to a table that is there, or `creates` one. What is hidden counts as not there."""
        if key in self.replica.state.tables and (not creates or self.sees(key)):
            self.alter(key)
        elif creates:
            self.create(key)

    def cluster(self, operation: Operation, what: str) -> None:
        """What concerns no table."""
        if not self.access.may(operation, CLUSTER):
            raise _refused(operation, CLUSTER, what)

    def namespace(self, name: str) -> None:
        """Raises 404 for one that is not shown."""
        if not self.namespaces([name]):
            raise no_such_namespace(name)

    def namespaces(self, names: Iterable[str]) -> list[str]:
        """Those that are shown: all to whoever may describe the cluster or create in it, else those that have
        a table or view which is shown.
        """
        if any(self.access.may(each, CLUSTER, quiet=True) for each in (Operation.DESCRIBE, Operation.CREATE)):
            return list(names)
        shown: set[str] = set()
        for key in self.replica.state.tables:
            if key[0] not in shown and self.sees(key):
                levels = key[0].split(".")
                shown.update(".".join(levels[:depth]) for depth in range(1, len(levels) + 1))
        return [each for each in names if each in shown]

    def _is_there(self, key: Key) -> bool:
        """Whether there is such a table or view; a view of Floe's may be none for another reason."""
        tables = self.replica.state.tables
        return key in tables or (
            key[1].endswith(REDACTED) and (key[0], key[1].removesuffix(REDACTED)) in tables
        )

    def _may_create(self, topic: str) -> bool:
        """As Kafka asks for topics: on the cluster, or by the name."""
        return self.access.holds(Operation.CREATE, CLUSTER) or self.access.may(Operation.CREATE, topic)

    def _living(self, table: Table) -> Topic | None:
        state = self.replica.state
        own = state.topics_by_id.get(topic_id_of(state, table))
        return own if own is not None else topic_behind(state, table)

    def _marking(self, key: Key) -> Topic | None:
        """The topic that redacts, where this is its table: of all rows, or the newest."""
        table = self.replica.state.tables.get(key)
        topic = self._living(table) if table is not None else None
        if topic is None or policy_of(self.replica.state, topic) is None:
            return None
        return topic


def _refused(operation: Operation, topic: str, what: str) -> CatalogError:
    on = f"topic {topic!r}" if topic != CLUSTER else "the cluster"
    return forbidden(f"not authorized to {what}: that takes {operation.name.capitalize()} on {on}")
