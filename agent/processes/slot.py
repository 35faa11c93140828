"""One place for an agent: the process that has it, and the next one when that has ended."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.processes.asking import LIVEZ, READYZ, Answer, ask
from agent.telemetry.logs import logger
from agent.telemetry.supervised import SupervisorMetrics
from coordination.backoff import Backoff
from coordination.clock import Clock
from objectstore import tasks

LOOK_S = 1.0
"""Between two looks at an agent."""
ANSWER_S = 5.0
"""How long it may take to say that it is alive."""
START_TIMES = 5
"""A start may take so many times the silence that an agent may keep: on a busy machine it takes minutes."""
PAUSE_S = 0.25
"""Before the first that ended is replaced; doubled for each that follows soon."""
KILL_S = 2.0
"""What an agent gets beyond the bound of its own stop."""
HOPELESS = (3, 5)
"""Exit statuses that no second try changes: configuration refused, refused (agent/cli/failures.py)."""

_log = logger("supervisor")


class Hopeless(Exception):
    """An agent that never served ended by what another one would end by, too."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"agent {name} ended with status {status}: its own last line says why")
        self.status = status


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds, seconds: of a stop, of silence, of the pause before the next one."""

    stop_s: float
    silence_s: float
    pause_s_max: float


class Slot:
    """The agent of one process. `command` starts it, `socket` is where it answers."""

    def __init__(
        self,
        number: int,
        name: str,
        command: Sequence[str],
        socket: Path,
        patience: Patience,
        clock: Clock,
        metrics: SupervisorMetrics,
    ) -> None:
        self.number, self.name, self.socket = number, name, socket
        self._command, self._patience, self._clock, self._metrics = command, patience, clock, metrics
        self._process: Process | None = None
        self._leaving, self._ready = asyncio.Event(), asyncio.Event()
        self._why = ""
        self.served = False
        """Whether there was one that was ready."""
        self.replaced = 0
        """How many others have had this place."""
        self.last = ""
        """How the one before ended; empty for the first."""
        metrics.up.labels(str(number)).set(0)

    @property
    def pid(self) -> int | None:
        """Of the agent that is there now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def ask(self, what: str, seconds: float = ANSWER_S) -> Answer:
        """What the agent that is there now answers."""
        return await ask(self.socket, what, seconds)

    async def run(self) -> None:
        """Have an agent here until `stop`. Raises Hopeless."""
        delays = self._delays()
        while True:
            begun = self._clock.monotonic()
            status = await self._live()
            if self._leaving.is_set():
                return
            lived, why = self._clock.monotonic() - begun, self._why or "ended"
            if why == "ended" and status in HOPELESS and not self.served:
                raise Hopeless(self.name, status)
            if lived > self._patience.pause_s_max:
                delays = self._delays()
            pause_s = 0.0 if why == "asked" else next(delays)
            self._note(why, status, pause_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause_s)
                return

    def _delays(self) -> Iterator[float]:
        return Backoff(self._clock, PAUSE_S, self._patience.pause_s_max).delays()

    def _note(self, why: str, status: int, pause_s: float) -> None:
        self.replaced += 1
        self.last = f"{why}, {_ended_by(status)}"
        self._metrics.replaced.labels(str(self.number), why).inc()
        tell = _log.info if why == "asked" else _log.error
        tell(
            "an agent is replaced",
            process=self.number,
            name=self.name,
            why=why,
            end=_ended_by(status),
            pause_s=round(pause_s, 2),
            times=self.replaced,
        )

    async def _live(self) -> int:
        """One agent from its start to its end: its exit status, negative for a signal."""
        self._why = ""
        self._ready.clear()
        self.socket.unlink(missing_ok=True)
        try:
            # Its own session: what a terminal sends goes to this process, which tells each what to do. Its
            # standard input ends with this process, and it then stops by itself (agent/cli/serving.py).
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
        except OSError as error:
            _log.error("no process can be made", process=self.number, error=error.strerror or str(error))
            return 1
        self._process = process
        if self._leaving.is_set():
            self._signal(signal.SIGTERM)
        watching = tasks.start(self._watch(), "watching an agent")
        try:
            return await process.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self._ready.clear()
            self._metrics.up.labels(str(self.number)).set(0)

    async def _watch(self) -> None:
        """Look whether it is alive; end one that is not."""
        heard, silence_s = self._clock.monotonic(), self._patience.silence_s * START_TIMES
        while True:
            await self._clock.sleep(LOOK_S)
            answer = await self.ask(LIVEZ)
            alive = answer.status == 200
            self._metrics.up.labels(str(self.number)).set(alive)
            if alive:
                heard, silence_s = self._clock.monotonic(), self._patience.silence_s
                if not self._ready.is_set() and (await self.ask(READYZ)).status == 200:
                    self.served = True
                    self._ready.set()
            elif self._clock.monotonic() - heard > silence_s:
                silent = answer.status == 0
                self._why = "silent" if silent else "not alive"
                return await self.end(0.0 if silent else self._patience.stop_s)

    async def renew(self) -> None:
        """End the agent that is here for another one; returns once that is ready."""
        self._why = "asked"
        self._ready.clear()
        await self.end(self._patience.stop_s)
        await self._ready.wait()

    async def stop(self) -> None:
        """End it and have no other; within the bound of a stop."""
        self._leaving.set()
        await self.end(self._patience.stop_s)

    async def end(self, seconds: float) -> None:
        """SIGTERM, and SIGKILL when it is still there after so many seconds; 0: at once."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if seconds:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds + KILL_S):
                    await process.wait()
                return
        _log.error("an agent does not end by itself", process=self.number, name=self.name)
        self._signal(signal.SIGKILL)
        await process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def _ended_by(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    with suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"
