"""Positions of every group, judged from inside: none goes back, none is told that was over when asked for.

What the log decides is written down when the first agent applies it. A position may go back for one reason:
the request for the older one was taken by an agent behind that for the newer one, as where it was held up in
the network. Positions of transactions never go back: the simulation's clients read on from what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agent.kafka.context import Context
from agent.kafka.handlers import k08_offset_commit, k09_offset_fetch
from agent.kafka.handlers.lookup import find_partition, find_topic
from agent.net.wire.api import Encoded
from agent.net.wire.generated import offset_fetch
from agent.net.wire.generated.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from coordination.state.state import State

CHANGES = frozenset(
    {
        "commit_offsets", "end_transaction", "delete_offsets", "delete_groups", "expire_offsets",
        "delete_topic", "end",
    }
)  # fmt: skip
"""Kinds of commands that can change a position."""
NONE = -1
Key = tuple[str, int]
"""Group and handle."""


def _plain(answer: Encoded | OffsetFetchResponse, version: int) -> OffsetFetchResponse:
    if isinstance(answer, Encoded):
        return offset_fetch.decode_response(b"".join(answer.buffers), version)
    return answer


class Positions:
    """One run's. `wrong` is told the anomaly and the details."""

    def __init__(self, wrong: Callable[[str, str], None]) -> None:
        self._wrong = wrong
        self._known: dict[Key, list[tuple[int, int]]] = {}
        """By key what it was from which change on."""
        self._changes = 0
        self._taken: dict[tuple[str, int, int], tuple[int, int]] = {}
        """By group, handle and offset the first and the last request for it, numbered as agents took them."""
        self._takings = 0
        self._newest: dict[str, int] = {}
        """By group the revision of the last change that an agent has applied."""
        self.behind = 0
        """How often an agent was asked that had not come to it: then only the read barrier helps."""

    @contextmanager
    def watches(self) -> Iterator[None]:
        """What agents are asked meanwhile."""
        commit, fetch = k08_offset_commit.handle, k09_offset_fetch.handle

        async def committed(ctx: Context, request: Any, version: int) -> Any:
            self._take(ctx, request)
            return await commit(ctx, request, version)

        async def fetched(ctx: Context, request: Any, version: int) -> Any:
            since = self._changes
            group = request.group_id
            named = [group, *(each.group_id for each in request.groups)]
            self.behind += any(ctx.state.revision < self._newest.get(each, 0) for each in named)
            answer = await fetch(ctx, request, version)
            told = _plain(answer, version)
            asked: Sequence[OffsetFetchResponse | OffsetFetchResponseGroup] = told.groups or [told]
            for each in asked:
                self._told(ctx, getattr(each, "group_id", "") or group, each, since)
            return answer

        k08_offset_commit.handle, k09_offset_fetch.handle = committed, fetched
        try:
            yield
        finally:
            k08_offset_commit.handle, k09_offset_fetch.handle = commit, fetch

    def forget(self) -> None:
        """Positions may be any again: the log went back."""
        self._known.clear()
        self._taken.clear()
        self._newest.clear()

    def applied(self, state: State, kinds: Sequence[str], commands: Sequence[Any]) -> None:
        """An entry, by the first agent that comes to it."""
        if CHANGES.isdisjoint(kinds):
            return
        plain: dict[Key, int] | None = None if "end" in kinds else {}
        for kind, command in zip(kinds, commands, strict=True):
            if kind == "commit_offsets" and plain is not None:
                message = command.commit_offsets
                plain |= {
                    (message.group, each): at
                    for each, at in zip(message.partition, message.offset, strict=False)
                }
        self._look({
            (group.group_id, handle): offset
            for group in state.groups.values()
            for handle, offset in zip(group.offsets.handles, group.offsets.offsets, strict=True)
        }, plain, state.revision)  # fmt: skip

    def _look(self, found: Mapping[Key, int], plain: Mapping[Key, int] | None, revision: int) -> None:
        """`plain`: what was committed outside of transactions; None where it came in parts and may be any."""
        self._changes += 1
        for key, offset in found.items():
            history = self._known.setdefault(key, [(0, NONE)])
            before = history[-1][1]
            if offset == before:
                continue
            maybe_plain = plain is None or plain.get(key) == offset
            if offset < before and not (maybe_plain and self._late(key, before, offset)):
                self._wrong(
                    "position-back", f"group {key[0]}, handle {key[1]}: {before}, at {revision} {offset}"
                )
            history.append((self._changes, offset))
            self._newest[key[0]] = revision
        for key, history in self._known.items():
            if history[-1][1] != NONE and key not in found:
                history.append((self._changes, NONE))

    def _late(self, key: Key, before: int, offset: int) -> bool:
        """Whether an older position was asked for behind the newer one, as far as agents know."""
        newest, older = self._taken.get((*key, before)), self._taken.get((*key, offset))
        return newest is None or older is None or older[1] > newest[0]

    def _take(self, ctx: Context, request: Any) -> None:
        self._takings += 1
        for topic in request.topics:
            known = find_topic(ctx.state, topic.name, topic.topic_id, not topic.name)
            for each in topic.partitions:
                partition = find_partition(known, each.partition_index)
                if partition is not None:
                    key = (request.group_id, partition.handle, each.committed_offset)
                    self._taken[key] = (self._taken.get(key, (self._takings, 0))[0], self._takings)

    def _told(self, ctx: Context, group: str, answer: Any, since: int) -> None:
        """Every position of an answer was so at some time from the question on."""
        for topic in answer.topics:
            known = find_topic(ctx.state, topic.name, getattr(topic, "topic_id", b""), not topic.name)
            for row in topic.partitions:
                partition = find_partition(known, row.partition_index)
                if partition is None or row.error_code or answer.error_code:
                    continue
                history = self._known.get((group, partition.handle), [(0, NONE)])
                begun = max(n for n, (change, _) in enumerate(history) if change <= since)
                if row.committed_offset not in [offset for _, offset in history[begun:]]:
                    place = f"group {group}, {topic.name}-{row.partition_index}"
                    self._wrong("stale-position", f"{place}: told {row.committed_offset}, {history[begun:]}")
