"""Incarnations and brokers: who may write to the log, and what Metadata shows.

An incarnation is one run of an agent. It begins with RegisterAgent and ends with FenceIncarnation, or
when a newer run takes over its name. Fenced, it is remembered for a while with the sequence of its last
entry, so that an author can learn what became of an append whose answer it lost.
"""

from __future__ import annotations

from dataclasses import replace

from coordination.commands import (
    EnterMetadata,
    FenceIncarnation,
    Heartbeat,
    JudgeAgent,
    LeaveMetadata,
    RegisterAgent,
)
from coordination.kafka_codes import Code
from coordination.state import bounds, multipart
from coordination.state.data import StateData
from coordination.state.leaders import chosen_anew
from coordination.state.levels import TOLD_PACE
from coordination.state.types import (
    BACKGROUND,
    ROLES,
    At,
    Broker,
    Done,
    Endpoint,
    Incarnation,
    Pace,
    Refused,
    Result,
)

FENCED_REMEMBERED_MAX = 4096  # fenced incarnations kept in the state
AGENTS_MAX = 1000  # live incarnations
NAME_LENGTH_MAX = 253  # characters of an agent's name (a DNS name)
REASON_LENGTH_MAX = 500  # characters of why an agent is unwell
PACE_US_MAX = 600_000_000  # ten minutes, microseconds: nothing is waited for that long


def register_agent(state: StateData, message: RegisterAgent, at: At) -> Result:
    """Make the author a broker; an older run under its name is fenced. Done's value: the node id."""
    author = at.author
    if author.registered_revision:
        return Refused(
            Code.DUPLICATE_BROKER_REGISTRATION, f"incarnation {author.incarnation:016x} is registered already"
        )
    refusal = _refusal(state, message)
    if refusal:
        return refusal
    for other in [i for i in state.incarnations.values() if i.live and i.name == message.name]:
        fence(state, other, at)
    node_id = _node_id(state, message)
    author.name = message.name
    author.node_id = node_id
    author.registered_revision = at.revision
    author.feature_min, author.feature_max = message.feature_min, message.feature_max
    state.incarnations[author.incarnation] = state.live[author.incarnation] = author
    with chosen_anew(state):
        state.brokers[node_id] = Broker(
            node_id,
            message.name,
            author.incarnation,
            tuple(Endpoint(listener.name, listener.host, listener.port) for listener in message.listeners),
            message.zone,
            message.http_address,
            message.version,
            tuple(message.roles) or ROLES,
            message.peer_address,
            not message.joining,
        )
    return Done(node_id)


def _refusal(state: StateData, message: RegisterAgent) -> Refused | None:
    if not 0 < len(message.name) <= NAME_LENGTH_MAX:
        return Refused(
            Code.INVALID_REGISTRATION, f"agent name {message.name!r}: 1 to {NAME_LENGTH_MAX} characters"
        )
    unknown = [role for role in message.roles if role not in ROLES]
    if unknown:
        return Refused(
            Code.INVALID_REGISTRATION,
            f"agent {message.name!r}: role {unknown[0]!r} is unknown: {', '.join(ROLES)} are possible",
        )
    if not message.feature_min <= state.feature_level <= message.feature_max:
        return Refused(
            Code.UNSUPPORTED_VERSION,
            f"agent {message.name!r} applies feature levels {message.feature_min} to {message.feature_max}, "
            f"the cluster is at {state.feature_level}: run a version that knows it",
        )
    if len(state.brokers) >= AGENTS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has {AGENTS_MAX} agents, the most it takes")
    holder = state.brokers.get(message.node_id)
    if holder is not None and holder.name != message.name:
        return Refused(
            Code.DUPLICATE_BROKER_REGISTRATION,
            f"node id {message.node_id} belongs to live agent {holder.name!r}: give {message.name!r} another",
        )
    return None


def _node_id(state: StateData, message: RegisterAgent) -> int:
    """The agent's node id: the one it asks for, the one its name had before, or a new one."""
    wanted = message.node_id
    if wanted < 0:
        known = state.node_ids.get(message.name)
        if known is not None:
            return known
        wanted = _free_node_id(state)
    for name in [name for name, node_id in state.node_ids.items() if node_id == wanted]:
        del state.node_ids[name]  # a dead agent's: the id moves to the one that asks for it by number
    state.node_ids[message.name] = wanted
    state.next_node_id = bounds.NODE_ID.cut(max(state.next_node_id, wanted + 1))
    return wanted


def _free_node_id(state: StateData) -> int:
    """The next node id; once somebody has taken the highest there is, the lowest that nobody has."""
    taken = frozenset(state.node_ids.values())
    if state.next_node_id not in taken:
        return state.next_node_id
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


def fence_incarnation(state: StateData, message: FenceIncarnation, at: At) -> Result:
    """End an incarnation. Done's value: the sequence of its last entry; None when it was not live."""
    known = state.incarnations.get(message.incarnation)
    if known is None or not known.live:
        return Done(None)
    fence(state, known, at)
    return Done(known.sequence)


def fence(state: StateData, incarnation: Incarnation, at: At) -> None:
    """From here on nothing of this incarnation counts: broker, claims and pending changes go."""
    incarnation.fenced_revision = at.revision
    at.fenced.append(incarnation.incarnation)
    _drop_broker(state, incarnation)
    _drop_claims(state, incarnation)
    multipart.drop_all_of(state, incarnation.incarnation)
    # Moved to the end: the order of the dict is then live ones by registration, fenced ones by fencing.
    state.live.pop(incarnation.incarnation, None)
    del state.incarnations[incarnation.incarnation]
    state.incarnations[incarnation.incarnation] = incarnation
    state.fenced_count += 1
    if state.fenced_count > FENCED_REMEMBERED_MAX:
        oldest = next(key for key, value in state.incarnations.items() if not value.live)
        del state.incarnations[oldest]
        state.fenced_count -= 1


def leave_metadata(state: StateData, message: LeaveMetadata, at: At) -> Result:
    """Take the author out of Metadata; its claims go to others, its commands still count. Value: None."""
    _drop_broker(state, at.author)
    _drop_claims(state, at.author)
    return Done()


def enter_metadata(state: StateData, message: EnterMetadata, at: At) -> Result:
    """Let Metadata name the author. Done's value: None. An author that has left stays away."""
    broker = state.brokers.get(at.author.node_id)
    if broker is None or broker.incarnation != at.author.incarnation:
        return Refused(Code.BROKER_ID_NOT_REGISTERED, f"agent {at.author.name!r} has left Metadata")
    with chosen_anew(state):
        state.brokers[broker.node_id] = replace(broker, named=True)
    return Done()


def judge_agent(state: StateData, message: JudgeAgent, at: At) -> Result:
    """Note that an agent cannot do its work, or can again (see `serving_of`). Done's value: None.

    Of another an agent only says that nothing is heard of it: refused when something was, in the log's order.
    """
    known = state.incarnations.get(message.incarnation)
    broker = None if known is None else state.brokers.get(known.node_id)
    if known is None or broker is None or broker.incarnation != message.incarnation:
        return Refused(Code.BROKER_ID_NOT_REGISTERED, f"agent {message.incarnation:016x} is not in Metadata")
    if len(message.unwell) > REASON_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, f"unwell: at most {REASON_LENGTH_MAX} characters are taken")
    if message.incarnation != at.author.incarnation:
        if not message.unwell:
            return Refused(Code.INVALID_REQUEST, f"only {known.name!r} itself says that it is well")
        if known.sequence > message.heard:
            return Refused(
                Code.INVALID_UPDATE_VERSION, f"{known.name!r} was heard since entry {message.heard}"
            )
    with chosen_anew(state):
        state.brokers[broker.node_id] = replace(broker, unwell=message.unwell)
    if message.unwell:
        _drop_claims(state, known)
    return Done()


def runs_jobs(state: StateData, incarnation: int) -> bool:
    """Whether this incarnation should do background jobs; anyone while there is nobody."""
    willing = job_runners(state)
    return not willing or incarnation in [broker.incarnation for broker in willing]


def job_runners(state: StateData) -> list[Broker]:
    """Who should do background jobs: whose role says so, or all where nobody who is well has that role.

    Advice to the agents: claims decide who acts.
    """
    brokers = state.brokers.values()
    well = [broker for broker in brokers if not broker.unwell] or list(brokers)
    return [broker for broker in well if BACKGROUND in broker.roles] or well


def _drop_broker(state: StateData, incarnation: Incarnation) -> None:
    broker = state.brokers.get(incarnation.node_id)
    if broker is not None and broker.incarnation == incarnation.incarnation:
        with chosen_anew(state):
            del state.brokers[incarnation.node_id]


def _drop_claims(state: StateData, incarnation: Incarnation) -> None:
    number = incarnation.incarnation
    for name in [name for name, holder in state.claims.items() if holder.incarnation == number]:
        del state.claims[name]


def heartbeat(state: StateData, message: Heartbeat, at: At) -> Result:
    """Nothing but what every entry does: note the author's applied revision.

    Done's value: how fast the author says it is, a Pace; None when it says nothing. Nothing of it is kept.
    """
    if state.feature_level < TOLD_PACE:
        return Done()
    pace = Pace(*(min(said, PACE_US_MAX) for said in _said(message)))
    return Done(pace if any(pace) else None)


def _said(message: Heartbeat) -> tuple[int, ...]:
    return message.append_us, message.append_late_us, message.put_us, message.put_late_us
