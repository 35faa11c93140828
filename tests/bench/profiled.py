"""An agent that samples where its main thread's CPU time goes: `python -m tests.bench.profiled OUT serve …`.

A timer of the thread's own CPU clock interrupts it every few milliseconds of work; the interpreter then
notes the stack at the next bytecode, so time inside a C function counts for the line that called it. At the
end OUT gets three tables: what the event loop called, functions by the samples at or below them, and lines by
their own samples. Last come the threads' CPU seconds, as some are not Python's (the store's).
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from agent.cli import main

PERIOD_NS = 4_000_000  # kernels tick that often; a shorter period loses samples
ROWS = 60
CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID = 3, 4


class _Sigevent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Sampler:
    """Counts of stacks, taken on the main thread's CPU clock."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[CodeType, int]] = Counter()
        self.functions: Counter[CodeType] = Counter()
        self.roots: Counter[CodeType] = Counter()
        self.samples = 0

    def start(self) -> None:
        """Sample from now on."""
        signal.signal(signal.SIGPROF, self._sample)
        libc = ctypes.CDLL(None, use_errno=True)
        timer = ctypes.c_void_p()
        event = _Sigevent(None, signal.SIGPROF, SIGEV_THREAD_ID, os.getpid(), b"")
        every = _Itimerspec(0, PERIOD_NS, 0, PERIOD_NS)
        if libc.timer_create(CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(timer)):
            raise OSError(ctypes.get_errno(), "timer_create")
        if libc.timer_settime(timer, 0, ctypes.byref(every), None):
            raise OSError(ctypes.get_errno(), "timer_settime")

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self.samples += 1
        self.lines[frame.f_code, frame.f_lineno] += 1
        seen: dict[CodeType, None] = {}
        root = frame.f_code
        while frame is not None and frame.f_code is not asyncio.Runner.run.__code__:
            root = frame.f_code
            seen[root] = None
            frame = frame.f_back
        self.roots[root] += 1
        self.functions.update(seen.keys())

    def write(self, out: Path) -> None:
        """The tables, and the threads' CPU. Sampling ends."""
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        total = self.samples or 1
        rows = [f"{total} samples of {PERIOD_NS / 1e6:g} ms of the main thread"]
        for title, counts in (("called by the loop", self.roots), ("at or below a function", self.functions)):
            rows += ["", title]
            for code, count in counts.most_common(ROWS):
                rows.append(f"{count / total:7.1%}  {_short(code)}:{code.co_firstlineno} {code.co_qualname}")
        rows += ["", "own time by line"]
        for (code, line), count in self.lines.most_common(ROWS):
            rows.append(f"{count / total:7.1%}  {_short(code)}:{line} {code.co_qualname}")
        out.write_text("\n".join([*rows, "", "CPU seconds by thread (user, system)", *_threads(), ""]))


def _short(code: CodeType) -> str:
    return "/".join(Path(code.co_filename).parts[-3:])


def _threads() -> list[str]:
    rows = []
    for task in sorted(Path("/proc/self/task").iterdir()):
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        user, system = (int(tick) / os.sysconf("SC_CLK_TCK") for tick in fields.split()[11:13])
        rows.append(f"{user:8.2f} {system:8.2f}  {name}")
    return rows


if __name__ == "__main__":
    path = Path(sys.argv.pop(1)).absolute()
    sampler = Sampler()
    atexit.register(lambda: sampler.write(path))
    sampler.start()
    main()
