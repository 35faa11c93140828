"""Stories as text: commands in, results and state out. See README.md for the form of a line."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import text_format

from agent.kafka.fetch.planner import Wanted, plan_fetch
from coordination.commands import Command, Entry
from coordination.log import LogEntry
from coordination.snapshot import decode, encode
from coordination.state import Applied, ChunkCommitted, Done, Partition, Refused, Result, State, StateError
from coordination.state.agreed_time import agreed_ms, apart_ms
from coordination.state.features import finalized
from objectstore.naming import MarkerId, SliceRef

START_MS = 1_700_000_000_000


class Storyteller:
    """Runs a story's lines against the real apply and writes what came of each."""

    def __init__(self) -> None:
        self.state = State()
        self.now_ms = START_MS
        self.authors: dict[str, int] = {}
        self.sequences: dict[int, int] = {}
        self.entries: list[LogEntry] = []
        self._actions = {
            "show": self._show,
            "snapshot": self._snapshot,
            "time": self._time,
            "replay": self._replay,
            "fetch": self._fetch,
            "clock": self._clock,
            "beats": self._beats,
        }

    def tell(self, story: str) -> str:
        """The story with every outcome as it is now."""
        out: list[str] = []
        for line in story.splitlines():
            if line.startswith(">"):
                out += [line, *self._entry(line[1:].strip())]
            elif line.startswith("!"):
                action, _, argument = line[1:].strip().partition(" ")
                out += [line, *(f"    {said}" for said in self._actions[action](argument))]
            elif not line.startswith("    "):
                out.append(line)
        return "\n".join(out) + "\n"

    def _entry(self, line: str) -> Iterator[str]:
        head, _, content = line.partition(": ")
        author, *options = head.split()
        number = self.authors.setdefault(author, 0xA0 + len(self.authors))
        self.sequences[number] = self.sequences.get(number, 0) + 1
        applied = next((int(o.removeprefix("applied=")) for o in options if o.startswith("applied=")), 0)
        commands = [_command(part) for part in content.split(" + ")]
        entry = Entry(
            format=1,
            incarnation=number,
            sequence=self.sequences[number],
            proposed_ms=self.now_ms,
            applied_revision=applied,
            commands=commands,
        )
        revision = (self.entries[-1].revision if self.entries else 0) + 1
        self.entries.append(LogEntry(revision, number, entry.sequence, entry.SerializeToString()))
        try:
            answer = self.state.apply(self.entries[-1])
        except StateError as error:
            yield f"    stops: {type(error).__name__}: {error}"
            return
        yield from self._outcome(answer)

    def _outcome(self, applied: Applied) -> Iterator[str]:
        for result in applied.results:
            yield f"    {applied.revision}: {_said(result)}"
        for number in applied.fenced:
            yield f"    {applied.revision}: fenced {self._name(number)}"

    def _name(self, number: int) -> str:
        return next((name for name, known in self.authors.items() if known == number), f"{number:x}")

    def _time(self, argument: str) -> Iterator[str]:
        self.now_ms += int(argument)
        yield f"{self.now_ms}"

    def _clock(self, argument: str) -> Iterator[str]:
        """The log's clock, and which agents are apart from what counts."""
        yield f"the log's clock: {self.state.clock_ms}, deletes by {agreed_ms(self.state)}"
        for number in self.state.live:
            if apart := apart_ms(self.state, number):
                yield f"{self._name(number)} is apart by {apart} ms"

    def _beats(self, argument: str) -> Iterator[str]:
        """Heartbeats of these authors in turn, so many of each."""
        count, *authors = argument.split()
        for _ in range(int(count)):
            for author in authors:
                list(self._entry(f"{author}: heartbeat {{}}"))
        yield f"revision {self.state.revision}"

    def _snapshot(self, argument: str) -> Iterator[str]:
        before = self.state.hash
        self.state = decode(encode(self.state))
        yield f"revision {self.state.revision}, hash {'kept' if self.state.hash == before else 'CHANGED'}"

    def _replay(self, argument: str) -> Iterator[str]:
        other = State()
        for entry in self.entries:
            other.apply(entry)
        same = (other.hash, encode(other)) == (self.state.hash, encode(self.state))
        yield f"another agent at revision {other.revision}: {'the same' if same else 'DIFFERENT'}"

    def _fetch(self, argument: str) -> Iterator[str]:
        """What a consumer gets: `topic-index offset [bytes=n] [committed]`, by the agent's own planner."""
        place, at, *options = argument.split()
        name, _, index = place.rpartition("-")
        bytes_max = next((int(o.removeprefix("bytes=")) for o in options if o.startswith("bytes=")), 1 << 30)
        partition = self.state.topics[name].partitions[int(index)]
        wanted = [Wanted(partition, int(at), bytes_max)]
        (planned,) = plan_fetch(wanted, 1 << 30, "committed" in options).partitions
        if planned.code:
            yield f"{planned.code.name}, log start {planned.log_start}, watermark {planned.high_watermark}"
            return
        for ref in planned.slices:
            yield f"{ref.base_offset}..{ref.end_offset - 1} {self._where(ref)}"
        for each in planned.aborted:
            yield f"left out: producer {each.producer_id} from {each.first_offset} on"
        if not planned.slices:
            yield "reads what is merged" if planned.merged else "waits: nothing yet"

    def _show(self, argument: str) -> Iterator[str]:
        for name, topic in self.state.topics.items():
            for partition in topic.partitions:
                stable = partition.last_stable
                until = "" if stable == partition.high_watermark else f", stable below {stable}"
                yield f"{name}-{partition.index} [{partition.log_start}, {partition.high_watermark}){until}"
                yield from self._show_merged(partition)
                for s in partition.slices.plan(0, 1 << 60):
                    yield f"  {s.base_offset}..{s.end_offset - 1} {self._where(s)}"
                for skipped in partition.skipped:
                    yield f"  damage in {skipped.start}..{skipped.end - 1} is passed over, says {skipped.by}"
                for first, key, value in partition.spans:
                    yield f"  from {first} on keys of schema {key}, values of schema {value}"
                for key, entry in partition.producers.items():
                    yield f"  producer {key} epoch {entry.epoch} last {entry.last_sequence}"
                for each in partition.aborted(0, 1 << 60):
                    yield f"  aborted: producer {each.producer_id}, {each.first_offset}..{each.marker_offset}"
        for (space, name), table in self.state.tables.items():
            yield f"table {space}.{name} at {table.metadata_location} ledger {list(table.next_offsets)}"
        yield from self._show_groups()
        yield from self._show_transactions()
        yield from self._show_configs()
        for name, holder in self.state.claims.items():
            yield f"claim {name}: {self._name(holder.incarnation)} since {holder.revision}"
        brokers = [f"{b.node_id} {b.name} ({self._name(b.incarnation)})" for b in self.state.brokers.values()]
        yield f"brokers: {', '.join(brokers) or 'none'}"
        yield from self._show_rest()

    def _where(self, ref: SliceRef) -> str:
        chunk = ref.chunk
        if isinstance(chunk, MarkerId):
            how = "commit" if chunk.committed else "abort"
            return f"marks the {how} of producer {chunk.producer_id}, epoch {chunk.epoch}"
        return f"in {self._name(chunk.incarnation)}/{chunk.number} at {ref.position}+{ref.length}"

    def _show_transactions(self) -> Iterator[str]:
        for name, known in self.state.transactions.items():
            pair = f"producer {known.producer_id} epoch {known.epoch}"
            on = (
                f", partitions {list(known.partitions)}, groups {list(known.groups)}" if known.ongoing else ""
            )
            yield f"transaction {name} {known.number} {known.phase.name}, {pair}{on}"
        for group, by_transaction in self.state.pending_offsets.items():
            for name, waiting in by_transaction.items():
                yield f"waiting for {name}: {group} {[(handle, p.offset) for handle, p in waiting.items()]}"

    def _show_merged(self, partition: Partition) -> Iterator[str]:
        merged = partition.merged
        if merged is not None:
            name = f"{self._name(merged.manifest.incarnation)}/{merged.manifest.number}"
            yield f"  {merged.start_offset}..{merged.end_offset - 1} in {merged.segments} segments of {name}"

    def _show_groups(self) -> Iterator[str]:
        for group in self.state.groups.values():
            yield f"group {group.group_id} ({group.kind}) at revision {group.revision}"
            classic = group.classic
            if classic is not None:
                shares = [f"{m.member_id}={m.assignment.decode()!r}" for m in classic.members.values()]
                how = "assigned" if classic.assigned else "to be assigned"
                yield f"  generation {classic.generation}, led by {classic.leader!r}, {how}: {shares}"
            for handle in group.offsets:
                position = group.offsets.get(handle)
                assert position is not None
                yield f"  handle {handle}: {position.offset} {position.metadata!r}"

    def _show_configs(self) -> Iterator[str]:
        for name, topic in self.state.topics.items():
            yield from (f"{name}: {config} = {value!r}" for config, value in topic.configs.items())
        for config, value in self.state.cluster_configs.items():
            yield f"cluster: {config} = {value!r}"
        for group, configs in self.state.group_configs.items():
            yield from (f"group {group}: {config} = {value!r}" for config, value in configs.items())
        if self.state.features_epoch:
            levels = ", ".join(f"{name} {level}" for name, level in finalized(self.state).items())
            yield f"features of epoch {self.state.features_epoch}: {levels}"

    def _show_rest(self) -> Iterator[str]:
        for number, one in self.state.incarnations.items():
            if not one.live:
                name = self._name(number)
                yield f"fenced {name} at {one.fenced_revision}, its last entry was {one.sequence}"
        for chunk, since in self.state.chunks.garbage.items():
            yield f"garbage {self._name(chunk.incarnation)}/{chunk.number} since {since - START_MS} ms"
        for segment, since in self.state.segment_garbage.items():
            name = f"{self._name(segment.incarnation)}/{segment.partition}/{segment.number}"
            yield f"garbage segment {name} since {since - START_MS} ms"
        for manifest, (since, whole) in self.state.manifest_garbage.items():
            name = f"{self._name(manifest.incarnation)}/{manifest.partition}/{manifest.number}"
            with_what = " with its segments" if whole else ""
            yield f"garbage manifest {name}{with_what} since {since - START_MS} ms"
        for author, change in self.state.pending:
            yield f"open change {change} of {self._name(author)}"
        if self.state.snapshots or self.state.trimmed_through:
            kept = [snapshot.revision for snapshot in self.state.snapshots]
            yield f"snapshots at {kept}, trimmed through {self.state.trimmed_through}"
        yield f"feature level {self.state.feature_level}, hash {self.state.hash}"


def _command(text: str) -> Command:
    """A command as text; `?` is one of a kind that no version knows so far."""
    if text == "?":
        return Command.FromString(b"\xfa\x7f\x00")  # field 2047, an empty message
    return text_format.Parse(text, Command())


def _said(result: Result) -> str:
    if isinstance(result, ChunkCommitted):
        pairs = zip(result.errors, result.base_offsets, strict=True)
        return "; ".join(
            f"offset {offset}" if not error else f"error {error}" + (f" AT {offset}" if offset != -1 else "")
            for error, offset in pairs
        )
    if isinstance(result, Refused):
        return f"refused {result.code.name}: {result.message}"
    assert isinstance(result, Done)
    if isinstance(result.value, tuple):
        inner = [
            _said(r) if isinstance(r, Done | Refused | ChunkCommitted) else repr(r) for r in result.value
        ]
        return f"done ({'; '.join(inner)})"
    return "done" if result.value is None else f"done {result.value!r}"
