"""Clients of the schema registry: they register, race, delete, change settings and look up, by any agent.

They ask the application that an agent serves over HTTP (agent/http), each request in a task of that agent and
without sockets: a body that is read, judgements, read barriers and proposals are the product's own, a request
ends with its agent's life, and an answer that does not come in time leaves its outcome open. Whatever is
answered must be the registry (subjects.py) of some moment between question and answer: so two that register
one text at once are told one id and one version, what is acknowledged is found at once through any other
agent, and nobody is refused for what was over when he asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

from coordination.state.subject_types import Compatibility, Mode
from tests.checker.findings import Finding
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.loop import VirtualLoop
from tests.sim.node import AgentNode
from tests.sim.subjects import SUBJECTS, TEXTS, Subjects, Text, View

ASKERS, ASKED_S = 2, 0.3
"""Who asks side by side, and how long each waits between two requests on average."""
ANSWER_S_MAX = 3.0
WAY_S_MAX = 0.004
RACE_OF = 0.3
"""Registrations of which another agent is asked at the same time, for the same text or another."""
FRESH_OF = 0.5
"""Of these, the ones for a subject that nobody has made."""
STORE = 50001
"""Others were always faster: the one error of status 500 that the registry has a reason for."""
IMPORTED_STEP = 1000
"""Between ids that imports give, so that no other one comes to have them."""
LEVELS = ("BACKWARD", "BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")
MODES = ("READWRITE", "READWRITE", "READONLY", "IMPORT")
PERMANENT_OF = 0.4
ERRORS = (OSError, EOFError, TimeoutError)
Ask = Callable[[int, str, str, object], Awaitable[tuple[int, Any]]]
"""An agent's number, method, path with query, and body: to status and JSON. Raises OSError without answer."""
Held = Callable[[View], bool]


def asks_http(loop: VirtualLoop, agents: Sequence[AgentNode]) -> Ask:
    """How somebody asks an agent over HTTP."""

    async def asked(number: int, method: str, path: str, body: object) -> tuple[int, Any]:
        await asyncio.sleep(loop.random.uniform(0.0, WAY_S_MAX))
        agent = agents[number]
        if agent.http is None or not agent.alive or not agent.ready:
            raise OSError(f"{agent.name} is not there")
        work = _served(agent.http, method, path, json.dumps(body).encode())
        answer: tuple[int, Any] = await agent.spawn(work)
        await asyncio.sleep(loop.random.uniform(0.0, WAY_S_MAX))
        return answer

    return asked


async def _served(app: ASGIApp, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """What an application answers. Raises OSError where it does not."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
             "query_string": query.encode(), "root_path": "", "headers": [], "scheme": "http"}  # fmt: skip
    await app(scope, receive, send)
    if not sent:
        raise OSError("the connection was closed")
    return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent[1:]))


class Answer(NamedTuple):
    """What was told, and the registry as it was between question and answer. `code`: 200, or the error's."""

    code: int
    told: Any
    views: list[View]


class Registrar:
    """One process."""

    def __init__(self, around: Surroundings, subjects: Subjects, agents: int) -> None:
        self._around = around
        self._subjects = subjects
        self._agents = agents

    async def live(self) -> None:
        """Until told to stop."""
        async with asyncio.TaskGroup() as group:
            for _ in range(ASKERS):
                group.create_task(self._ask())

    async def _ask(self) -> None:
        random = self._around.loop.random
        acts = (self._register, self._delete, self._set, self._import, self._look)
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / ASKED_S))
            (act,) = random.choices(acts, (8, 4, 1, 1, 3))
            await act(random.choice(SUBJECTS))

    def _agent(self) -> int:
        return self._around.loop.random.randrange(self._agents)

    async def _asked(
        self, method: str, path: str, body: object = None, agent: int | None = None, **query: Any
    ) -> Answer | None:
        """The answer; None where the outcome is not known."""
        since = self._around.revision()
        agent = self._agent() if agent is None else agent
        target = path + ("?" + urlencode(query) if query else "")
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                status, told = await self._around.ask(agent, method, target, body)
        except ERRORS:
            await asyncio.sleep(RETRY_S)
            return None
        code = int(told.get("error_code", status)) if isinstance(told, dict) else status
        if status == 500 and code != STORE:
            self._found("unexplained", f"{method} {target} {body}: {told}")
        if status >= 500:
            return None
        self._around.counts[f"registry {method} {code}"] += 1
        return Answer(code, told, self._subjects.between(since, self._around.revision()))

    def _found(self, anomaly: str, detail: str) -> None:
        self._around.findings.append(Finding(anomaly, "registry", detail[:2000], ()))

    def _judge(self, what: str, answer: Answer, held: Held | None) -> None:
        """The answer must have been so (`held`) at some moment; None: it must never be."""
        if held is None:
            self._found("unexplained", f"{what}: {answer.code} {answer.told}")
        elif not any(held(view) for view in answer.views):
            self._found("registry-stale", f"{what}: {answer.code} {answer.told}, but {answer.views}")

    async def _register(self, subject: str) -> None:
        """One agent, or two at once with the same text or another one; who was answered looks it up."""
        random = self._around.loop.random
        text, agents = random.choice(TEXTS), [self._agent()]
        texts = [text]
        if random.random() < RACE_OF:
            agents = random.sample(range(self._agents), 2)
            others = [each for each in TEXTS if each.family != text.family]
            texts = [text, random.choice((text, random.choice(TEXTS), random.choice(others)))]
            self._around.counts["registry races"] += 1
            if random.random() < FRESH_OF:  # to which each of two would go
                self._around.names += 1
                subject = f"fresh{self._around.names}"
        async with asyncio.TaskGroup() as group:
            for agent, each in zip(agents, texts, strict=True):
                group.create_task(self._registered(subject, each, agent))

    async def _registered(self, subject: str, text: Text, agent: int) -> None:
        what = f"register {text} at {subject}"
        answer = await self._asked("POST", f"/subjects/{subject}/versions", _body(text), agent)
        if answer is None:
            return
        self._judge(what, answer, _registered(answer, subject, text))
        if answer.code == 200:
            self._subjects.told[answer.told["id"]] = text
            await self._looked_up(subject, text)

    async def _import(self, subject: str) -> None:
        """With an id that nobody has. Whoever is not in this mode refuses."""
        random = self._around.loop.random
        self._around.names += 1
        number, text = self._around.names * IMPORTED_STEP, random.choice(TEXTS)
        held = [each.number for each in self._subjects.now.versions(subject)]
        body = {**_body(text), "id": number, "version": max(held, default=0) + random.randint(1, 3)}
        answer = await self._asked("POST", f"/subjects/{subject}/versions", body)
        if answer is None:
            return
        if answer.code == 200:
            self._subjects.told[number] = text
            self._judge(f"import {body}", answer, _holds(subject, text, number, body["version"]))
        else:
            refused = answer.code == 42205  # by the mode, or since the subject has gone on
            self._judge(f"import {body}", answer, (lambda _: True) if refused else None)

    async def _delete(self, subject: str) -> None:
        """A version, hidden first, then for good; in whatever order comes."""
        random = self._around.loop.random
        versions = self._subjects.now.versions(subject)
        if not versions:
            return
        permanent = random.random() < PERMANENT_OF
        known = [each.number for each in versions if each.deleted is permanent]
        number = random.choice(known or [each.number for each in versions])
        query: dict[str, Any] = {"permanent": "true"} if permanent else {}
        path = f"/subjects/{subject}/versions/{number}"
        answer = await self._asked("DELETE", path, **query)
        if answer is not None:
            held = _deleted(answer.code, subject, number, permanent=permanent)
            self._judge(f"delete {number} of {subject} {query}", answer, held)

    async def _set(self, subject: str) -> None:
        random = self._around.loop.random
        if random.random() < 0.5:
            level = random.choice(LEVELS)
            answer = await self._asked("PUT", f"/config/{subject}", {"compatibility": level})
            if answer is not None and answer.code == 42205:
                self._judge(
                    f"level of {subject}", answer, lambda view: view.of(subject).mode == Mode.READONLY
                )
            elif answer is not None:
                wanted = Compatibility.Value(level)
                self._judge(f"level of {subject}", answer, _is_set(answer, subject, "level", wanted))
            return
        mode = random.choice(MODES)
        answer = await self._asked("PUT", f"/mode/{subject}", {"mode": mode}, force="true")
        if answer is not None:
            self._judge(f"mode of {subject}", answer, _is_set(answer, subject, "mode", Mode.Value(mode)))
        if mode != "READWRITE":  # not for long
            await asyncio.sleep(random.uniform(0.0, 1.0))
            await self._asked("PUT", f"/mode/{subject}", {"mode": "READWRITE"}, force="true")

    async def _look(self, subject: str) -> None:
        """At something, fresh."""
        random = self._around.loop.random
        looks = (self._listed, self._newest, self._by_id, self._mode)
        if random.random() < 0.4:
            await self._looked_up(subject, random.choice(TEXTS))
        else:
            await random.choice(looks)(subject)

    async def _looked_up(self, subject: str, text: Text) -> None:
        answer = await self._asked("POST", f"/subjects/{subject}", _body(text))
        if answer is None:
            return

        def held(view: View) -> bool:
            found = [each for each in view.live(subject) if each.text == text]
            if answer.code == 200:
                told = answer.told["version"], answer.told["id"]
                return bool(found) and (found[0].number, found[0].schema_id) == told
            return not found if answer.code == 40403 else not view.live(subject)

        self._judge(f"look up {text} at {subject}", answer, held if answer.code in (200, *_MISSING) else None)

    async def _listed(self, subject: str) -> None:
        answer = await self._asked("GET", f"/subjects/{subject}/versions")
        if answer is not None:
            told = answer.told if answer.code == 200 else []

            def held(view: View) -> bool:
                return [each.number for each in view.live(subject)] == told

            self._judge(f"versions of {subject}", answer, held if answer.code in (200, 40401) else None)

    async def _newest(self, subject: str) -> None:
        answer = await self._asked("GET", f"/subjects/{subject}/versions/latest")
        if answer is not None:
            told = [(answer.told["version"], answer.told["id"])] if answer.code == 200 else []

            def held(view: View) -> bool:
                return [each[:2] for each in view.live(subject)[-1:]] == told

            self._judge(f"newest of {subject}", answer, held if answer.code in (200, *_MISSING) else None)

    async def _by_id(self, _subject: str) -> None:
        """Which versions an id is, of those that were ever told."""
        if not self._subjects.told:
            return
        schema_id = self._around.loop.random.choice(list(self._subjects.told))
        answer = await self._asked("GET", f"/schemas/ids/{schema_id}/versions")
        if answer is None:
            return

        def held(view: View) -> bool:
            users = view.users(schema_id)
            if answer.code != 200:
                return not users
            live = {(name, each.number) for name, each in users if not each.deleted}
            return bool(users) and {(each["subject"], each["version"]) for each in answer.told} == live

        self._judge(f"versions of id {schema_id}", answer, held if answer.code in (200, 40403) else None)

    async def _mode(self, subject: str) -> None:
        answer = await self._asked("GET", f"/mode/{subject}", defaultToGlobal="true")
        if answer is not None:
            told = Mode.Value(answer.told["mode"]) if answer.code == 200 else 0
            held = _is_set(answer, subject, "mode", told)
            self._judge(f"mode of {subject}", answer, held)


_MISSING = (40401, 40402, 40403)


def _body(text: Text) -> dict[str, Any]:
    return {"schema": text.given, "schemaType": "PROTOBUF"}


def _holds(subject: str, text: Text, schema_id: int, number: int) -> Held:
    """The subject has it, under these."""
    return lambda view: any(
        (each.number, each.schema_id, each.text) == (number, schema_id, text) for each in view.live(subject)
    )


def _registered(answer: Answer, subject: str, text: Text) -> Held | None:
    """What must have been so where a registration was answered like that; None: it never is."""
    match answer.code:
        case 200:
            return _holds(subject, text, answer.told["id"], answer.told["version"])
        case 409:
            return lambda view: not view.fits(subject, text)
        case 42205:
            return lambda view: view.of(subject).mode != Mode.READWRITE
    return None


def _deleted(code: int, subject: str, number: int, *, permanent: bool) -> Held | None:
    """The same of a deletion."""

    def found(view: View) -> list[bool]:
        return [each.deleted for each in view.versions(subject) if each.number == number]

    match code:
        case 200:
            return lambda view: found(view) in (([],) if permanent else ([], [True]))
        case 40401 | 40402 | 40403:
            return lambda view: not found(view)
        case 40406 if not permanent:
            return lambda view: found(view) == [True]
        case 40407 if permanent:
            return lambda view: found(view) == [False]
        case 42205:
            return lambda view: view.of(subject).mode == Mode.READONLY
    return None


def _is_set(answer: Answer, subject: str, name: str, value: int) -> Held | None:
    """What was set is so at some moment."""
    return (lambda view: getattr(view.of(subject), name) == value) if answer.code == 200 else None
