"""`floe serve` and `floe dev`: one agent in this process until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop

from agent.cli.failures import Failure, Status, told, unreachable, usage
from agent.cli.options import BOOTSTRAP_DEFAULT, HTTP_DEFAULT, Assignments, ConfigFile
from agent.config import Loaded, LoggingConfig, embedded_values, load
from agent.config.sections import PROCESSES_MAX
from agent.telemetry import logs
from coordination.log import LogError
from coordination.replica import ReplicaFailed
from coordination.state.errors import StateError
from objectstore import coalesced, tasks
from objectstore.fingerprint import BrokenFingerprint, ForeignBucket
from objectstore.late import without_collections
from objectstore.store import Denied, StoreError

if TYPE_CHECKING:
    from agent.app import App

AUTO = "auto"
DATA_DIR = Path("floe-data")
LOCK = "dev.lock"
NO_LOG = {"log": {"url": "etcd://nobody.invalid/none"}}
"""For a replica, which asks no log: a setting that a configuration must have, and that nobody looks at."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    config: ConfigFile = None,
    assign: Assignments = None,
    processes: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Agents side by side (agent.processes).")
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(metavar="BUCKET_URL", help="Be a read-only replica of the cluster in this bucket."),
    ] = None,
    process: Annotated[int, typer.Option(hidden=True)] = 0,
    watched_at: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one agent of a cluster, or several on this machine, configured by file, environment and --set
    (docs/configuration.md). With --follow it is a read-only replica instead (docs/replica.md).

    floe serve --config floe.yaml --processes auto
    """
    logging = _logging_asked(assign or ())
    try:
        given = [*(assign or ()), *asked_processes(processes)]
        if follow is not None:
            loaded = load(config, [*given, *followed(follow)], base=NO_LOG)
            logging = loaded.config.logging
            _refuse_several(loaded)
            _run(loaded, logging, lambda _app: None, follows=True)
            return
        loaded = load(config, given, process=process)
        logging = loaded.config.logging
        if loaded.config.agent.processes > 1 and watched_at is None:
            _watch_several(loaded, config, given)
        else:
            _run(loaded, logging, lambda _app: None, watched_at)
    except Exception as error:
        failure = told(error)
        if logs.for_people(logging, sys.stderr):
            raise failure from None
        # Who collects this log reads JSON: the last line, which says why it ends, is no exception.
        logs.configure(logging, sys.stderr)
        logs.logger("floe").critical("this agent ends", reason=str(failure), status=int(failure.status))
        raise typer.Exit(failure.status) from None


def followed(url: str) -> list[str]:
    """`--follow` as assignments of --set: who reads tables is lent no keys of the bucket, which may write.

    No table is made here: where new ones would lie, which may be in the source's bucket, says nothing.
    """
    return [f"store.url={url}", "catalog.vending_role_arn=", "tables.warehouse="]


def _refuse_several(loaded: Loaded) -> None:
    if loaded.config.agent.processes != 1:
        raise usage("agent.processes: with --follow it is 1; start several replicas, each with its ports")


def _watch_several(loaded: Loaded, file: Path | None, given: Sequence[str]) -> None:
    """Imported only here: an agent alone has no use for it."""
    from agent.cli.supervising import supervise

    supervise(loaded, file, given)


def asked_processes(asked: str | None) -> list[str]:
    """`--processes` as an assignment of --set. Raises Failure."""
    if asked is None:
        return []
    if asked != AUTO and not (asked.isdecimal() and len(asked) < 10 and 1 <= int(asked) <= PROCESSES_MAX):
        raise usage(f"--processes {asked!r}: give a number from 1 to {PROCESSES_MAX}, or {AUTO}")
    return [f"agent.processes={0 if asked == AUTO else int(asked)}"]


def _logging_asked(assign: Sequence[str]) -> LoggingConfig:
    """How to write of a configuration that cannot be read: by a flag or variable, or as is the default."""
    given = [each.partition("=")[2] for each in assign if each.startswith("logging.format=")]
    asked = given[-1] if given else os.environ.get("FLOE_LOGGING__FORMAT", "auto")
    return LoggingConfig(format="json" if asked == "json" else "console" if asked == "console" else "auto")


def dev(
    data_dir: Annotated[
        Path, typer.Option(help="Folder for the log, the records and the tables.")
    ] = DATA_DIR,
    kafka_port: Annotated[int, typer.Option(min=0, max=65535, help="Kafka port; 0: a free one.")] = 9092,
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0: a free one.")] = 8080,
    config: ConfigFile = None,
    assign: Assignments = None,
) -> None:
    """Run Floe on this machine alone: SQLite and a local folder, no services, topics made on demand.

    Everything is kept in --data-dir; delete the folder to begin anew.
    """
    base = embedded_values(data_dir, kafka_port=kafka_port, http_port=http_port)
    loaded = load(config, assign or (), base={**base, "logging": {"level": "warning"}})
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(Status.FAILED, f"--data-dir {data_dir} cannot be made: {error.strerror}") from None
    with _alone(data_dir):
        _run(loaded, loaded.config.logging, lambda app: _welcome(app, data_dir))


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Hold the folder: two agents of one name would take each other's place again and again."""
    with (data_dir / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "?"
            raise Failure(
                Status.REFUSED,
                f"--data-dir {data_dir} is in use by another floe dev (process {holder}): "
                "stop that one, or give this one a folder and ports of its own",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _welcome(app: App, data_dir: Path) -> None:
    """Where to point clients."""
    scheme = "https" if app.config.http.tls_cert_file else "http"
    kafka, http = f"127.0.0.1:{app.kafka_port}", f"{scheme}://127.0.0.1:{app.http_port}"
    options = "" if kafka == BOOTSTRAP_DEFAULT else f" --bootstrap {kafka}"
    options += "" if http == HTTP_DEFAULT else f" --http {http}"
    lines = (
        "Floe is running. Everything is in " + str(data_dir.absolute()),
        f"  Kafka clients   bootstrap.servers={kafka}",
        f"  Iceberg tables  {http}/iceberg  (REST catalog)",
        f"  Status          {http}/status.html",
        f"Try:  floe produce hello --value world{options}   then   floe consume hello{options}",
        "Ctrl-C stops it.",
    )
    print("\n".join(lines), flush=True)


def _run(
    loaded: Loaded,
    logging: LoggingConfig,
    started: Callable[[App], None],
    watched_at: Path | None = None,
    *,
    follows: bool = False,
) -> None:
    """Run an agent to its end; what ends it becomes the exit status. `watched_at`: as of `App`.

    `follows`: it is a replica of its bucket's cluster.
    """
    config = loaded.config
    logs.configure(logging, sys.stderr, agent=config.agent_name)
    _look_at_memory(loaded)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_live(loaded, started, watched_at, follows))
        except (StateError, ReplicaFailed, ForeignBucket, BrokenFingerprint) as error:
            raise Failure(Status.REFUSED, f"this agent cannot take part: {error}") from None
        except Denied as error:
            raise Failure(Status.REFUSED, f"the store refuses: {error}") from None
        except (LogError, StoreError) as error:
            raise unreachable(f"{type(error).__name__}: {error}") from None
        except OSError as error:
            raise Failure(Status.FAILED, f"{error.strerror or error}") from None


def _look_at_memory(loaded: Loaded) -> None:
    """Say what the memory allows; refuse what cannot work in it. Raises Failure."""
    if loaded.memory_problem:
        raise Failure(Status.CONFIG, loaded.memory_problem)
    if loaded.memory_warning:
        logs.logger("floe").warning(loaded.memory_warning)


async def _live(
    loaded: Loaded, started: Callable[[App], None], watched_at: Path | None, follows: bool
) -> None:
    """Start, live until a signal or a fatal failure, stop within `shutdown.timeout_ms`."""
    make = _maker(follows)
    gc.freeze()  # what was imported stays: the next collection need not walk it either

    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    _take_signals(loop, told.set)
    if watched_at is not None:
        _end_with_parent(told.set)
    config = loaded.config
    app = make(loaded, watched_at)
    tasks.watch(loop)
    coalesced.coalesce(loop)
    signalled = tasks.owned(told.wait(), "signal")
    try:
        starting = tasks.owned(app.start(), "start")
        first: list[asyncio.Future[Any]] = [starting, signalled]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # told to stop while waiting for log or store
            starting.cancel()
            await asyncio.wait([starting])
            return
        await starting
        # All this lives as long as the process: a full collection, for which the loop waits, need not walk it
        # (124 ms of CPU for 180,000 objects, each time that merging had planned many slices).
        gc.freeze()
        started(app)
        ends: list[asyncio.Future[Any]] = [signalled, app.replica.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if app.replica.failed.done() and not app.replica.failed.cancelled():
            app.replica.failed.result()
    finally:
        signalled.cancel()
        await _stop(app, config.shutdown.timeout_ms)


def _take_signals(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call once this process is to end. SIGHUP, which means "read your configuration again", is answered."""
    for number in SIGNALS:
        loop.add_signal_handler(number, ended)
    if sys.stdin is None or not sys.stdin.isatty():  # a terminal that goes away ends what runs in it
        loop.add_signal_handler(signal.SIGHUP, _not_read_again)


def _not_read_again() -> None:
    logs.logger("floe").warning("SIGHUP changes nothing: an agent reads its configuration at its start only")


def _maker(follows: bool) -> Callable[[Loaded, Path | None], App]:
    """What makes the agent, or the replica, inside the event loop; imported only now."""
    with without_collections():
        if follows:
            from agent.following.app import ReplicaApp

            return lambda loaded, _watched_at: ReplicaApp(
                loaded.config, config_file=loaded.file, memory_bytes=loaded.memory_bytes
            )
        from agent.app import App

        return lambda loaded, watched_at: App(
            loaded.config, config_file=loaded.file, memory_bytes=loaded.memory_bytes, watched_at=watched_at
        )


def _end_with_parent(ended: Callable[[], None]) -> None:
    """Call once standard input has ended: it is a pipe of the process that watches this one."""
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()

    def look() -> None:
        if not os.read(pipe, 1):
            loop.remove_reader(pipe)
            ended()

    loop.add_reader(pipe, look)


async def _stop(app: App, timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await app.stop()
    except TimeoutError:
        logs.logger("floe").warning("not everything was finished in time", timeout_ms=timeout_ms)
