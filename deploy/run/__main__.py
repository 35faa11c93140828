"""`python -m deploy.run [--cluster [--secure]] [--break drop,double,change]`: the main job.

Exit status 0: all is equal; 1: something differs, the last lines say what; 2: the job could not be done.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from deploy.run.children import ChildFailed
from deploy.run.damage import WAYS, CannotDamage
from deploy.run.display import Display
from deploy.run.job import Job, Options, clean
from deploy.run.source import SourceChanged
from deploy.run.stages import Cluster, Embedded, Stage
from deploy.run.timeline import Timeline
from deploy.run.topics import TopicNotCreated
from deploy.run.watch import TablesBehind
from deploy.services.service import ServiceError
from deploy.setup.jars import JarsFailed, ensure
from deploy.setup.java import NoJava, java_home

OUT = Path(__file__).resolve().parents[2] / "build" / "run"
COLUMNS = 110
EXPECTED = (
    ChildFailed,
    CannotDamage,
    JarsFailed,
    NoJava,
    ServiceError,
    SourceChanged,
    TablesBehind,
    TimeoutError,
    TopicNotCreated,
    subprocess.TimeoutExpired,
)


def main() -> int:
    """Run the job; every process that it started is gone when this returns or raises."""
    parser = argparse.ArgumentParser(prog="python -m deploy.run", description="Floe's main job, end to end")
    parser.add_argument("--cluster", action="store_true", help="etcd, MinIO and three agents, with faults")
    parser.add_argument(
        "--secure", action="store_true", help="with --cluster: TLS, logins and ACLs everywhere"
    )
    parser.add_argument(
        "--break",
        dest="damage",
        type=_ways,
        default=(),
        help="damage a row: drop, double, change, or several",
    )
    parser.add_argument("--limit", type=int, default=0, help="rows per topic; 0: all")
    parser.add_argument("--out", type=Path, default=OUT, help="where data and report go")
    arguments = parser.parse_args()
    if arguments.secure and not arguments.cluster:
        parser.error("--secure needs --cluster")
    if arguments.secure and arguments.damage:
        parser.error("--secure does not go with --break, whose hand in the bucket has no certificates")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    out = arguments.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run is using {out}: wait for it, or give --out another folder", file=sys.stderr)
            return 2
        try:
            options = Options(out, arguments.limit, arguments.damage)
            return _run(options, cluster=arguments.cluster, secure=arguments.secure)
        except EXPECTED as error:
            print(f"the job could not be done: {error}\nlogs: {out / 'logs'}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130


def _run(options: Options, *, cluster: bool, secure: bool) -> int:
    clean(options.out)
    timeline = Timeline()
    console = Console(width=None if sys.stdout.isatty() else COLUMNS)
    with Display(console) as display:
        where = options.out / "data"

        def fault(what: str) -> None:
            timeline.fault(what)
            display.say(f"fault: {what}")

        stage: Stage = Cluster(where, fault, secure=secure) if cluster else Embedded(where)
        display.say(f"starting Floe ({stage.title}) …")
        with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
            java = pool.submit(lambda: (ensure("iceberg"), java_home()))
            with timeline.step("start Floe"):
                stack.enter_context(stage)
            job = Job(stage, options, display, timeline)
            equal = job.run(java)
    print(job.line)
    return 0 if equal else 1


def _ways(named: str) -> tuple[str, ...]:
    """As `drop,change`. Raises argparse's error."""
    ways = tuple(named.split(","))
    unknown = [each for each in ways if each not in WAYS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(WAYS)}")
    return ways


def _leave(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


if __name__ == "__main__":
    sys.exit(main())
