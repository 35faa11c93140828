"""`floe check`: everything that an agent needs, tried before it is started, each failure with its remedy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import typer

from agent.cli.agent_http import ask
from agent.cli.failures import Failure, Status
from agent.cli.options import Assignments, ConfigFile, Form, Output
from agent.cli.output import print_json, print_table
from agent.config import Config, Loaded, load, memory
from agent.config.base import MIB
from agent.dependencies import log_of, store_of, store_options
from coordination.clock import Clock, SystemClock
from coordination.log import Alarmed, LogError
from objectstore import bucket, fingerprint
from objectstore.bucket import Level
from objectstore.store import CREATE, ClockSkewed, Denied, NotFound, ObjectStore, Precondition, StoreError

STEP_S_MAX = 15.0
SKEW_MS_MAX = 2_000
PROBE_FOLDER = "preflight/"
NO_SPACE_REMEDY = (
    "NOSPACE: make room with etcdctl compact REVISION and etcdctl defrag on each member, or raise "
    "--quota-backend-bytes; then etcdctl alarm disarm"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was found, and when it is not fine, what to do."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def check(config: ConfigFile = None, assign: Assignments = None, output: Output = Form.TABLE) -> None:
    """Try log, store, clock and ports as `floe serve` would use them. Status 1 when something is wrong."""
    loaded = load(config, assign or ())
    findings = [*asyncio.run(_all(loaded.config, SystemClock())), _memory(loaded)]
    if output is Form.JSON:
        rows = [{"check": f.name, "ok": f.ok, "found": f.found, "remedy": f.remedy} for f in findings]
        print_json(rows)
    else:
        print_table(
            ("check", "", "found", "remedy"),
            [(f.name, "ok" if f.ok else "FAILED", f.found, f.remedy) for f in findings],
        )
    if not all(finding.ok for finding in findings):
        raise typer.Exit(Status.FAILED)


async def _all(config: Config, clock: Clock) -> list[Finding]:
    log, identity = await _log(config, clock)
    findings = [log]
    if config.store.url.startswith("s3:"):
        findings += await asyncio.to_thread(_bucket, config, clock)
    store = store_of(config, clock, tries_max=1)
    try:
        findings += await _store(config, store, clock)
        if identity and findings[-1].name != "store":
            findings.append(await _fingerprint(config, store, identity))
    finally:
        await store.close()
    return [*findings, *await asyncio.to_thread(lambda: list(_ports(config)))]


async def _timed(clock: Clock, work: Callable[[], Awaitable[object]]) -> tuple[object, float]:
    started = clock.monotonic()
    async with asyncio.timeout(STEP_S_MAX):
        value = await work()
    return value, (clock.monotonic() - started) * 1000


async def _log(config: Config, clock: Clock) -> tuple[Finding, str]:
    """What was found, and the log's identity; empty when it was not learned."""
    try:
        log = log_of(config, clock)
    except (ValueError, OSError) as error:
        return Finding("log", False, str(error), "correct the log section of the configuration"), ""
    try:
        alarms = await log.alarms() if isinstance(log, Alarmed) else ()
        if alarms:  # it answers, and takes nothing
            return Finding("log", False, "; ".join(alarms), NO_SPACE_REMEDY), ""
        identity, took_ms = await _timed(clock, log.identity)
        return Finding("log", True, f"{identity} answers in {took_ms:.1f} ms"), str(identity)
    except (LogError, TimeoutError, OSError) as error:
        remedy = f"start it, or correct log.url ({config.log.url}), user and TLS settings"
        return Finding("log", False, f"{type(error).__name__}: {error}", remedy), ""
    finally:
        with suppress(LogError, TimeoutError):
            async with asyncio.timeout(STEP_S_MAX):
                await log.close()


def _bucket(config: Config, clock: Clock) -> list[Finding]:
    found = bucket.check(config.store.url, store_options(config, clock), clock.monotonic)
    return [Finding(f"bucket {f.subject}", f.level is not Level.FAILURE, f.message, f.remedy) for f in found]


async def _store(config: Config, store: ObjectStore, clock: Clock) -> list[Finding]:
    """Write, read back, write again in vain, and remove one small object."""
    key = f"{PROBE_FOLDER}{clock.random_bits(64):016x}"
    content = b"floe check"
    try:
        _, put_ms = await _timed(clock, lambda: store.put(key, [content], CREATE))
        now_ms = clock.now_ms()
        read, get_ms = await _timed(clock, lambda: store.get(key))
        refuses = await _refuses_a_second_create(store, key)
        meta = await store.head(key)
        await store.delete([key])
    except (StoreError, TimeoutError, OSError) as error:
        return [Finding("store", False, f"{type(error).__name__}: {error}", _store_remedy(config, error))]
    skew_ms = abs(meta.modified_ms - now_ms)
    return [
        Finding(
            "store",
            read == content,
            f"PUT {put_ms:.1f} ms, GET {get_ms:.1f} ms",
            "" if read == content else "it returns other bytes than it was given; do not use it",
        ),
        Finding(
            "conditional PUT",
            refuses,
            "a second create is refused" if refuses else "a second create was accepted",
            "" if refuses else "this store cannot keep chunks apart; use one with If-None-Match",
        ),
        Finding(
            "clock",
            skew_ms <= SKEW_MS_MAX,
            f"{skew_ms} ms apart from the store's",
            "" if skew_ms <= SKEW_MS_MAX else "synchronise this machine's clock (NTP)",
        ),
    ]


async def _fingerprint(config: Config, store: ObjectStore, identity: str) -> Finding:
    """Whether the bucket's prefix is free or belongs to this cluster and log (rule 11)."""
    try:
        found = await fingerprint.read(store)
        fingerprint.check(found, fingerprint.Fingerprint(config.cluster.name, found.cluster_id, identity))
    except NotFound:
        return Finding("cluster", True, "the store's prefix is free: the first agent takes it")
    except (fingerprint.ForeignBucket, fingerprint.BrokenFingerprint) as error:
        return Finding("cluster", False, str(error), "use a prefix of its own for each cluster (store.url)")
    except StoreError as error:
        return Finding("cluster", False, f"{type(error).__name__}: {error}", _store_remedy(config, error))
    return Finding("cluster", True, f"the store's prefix belongs to {found.cluster!r} and this log")


async def _refuses_a_second_create(store: ObjectStore, key: str) -> bool:
    try:
        await store.put(key, [b"other"], CREATE)
    except Precondition:
        return True
    return False


def _store_remedy(config: Config, error: Exception) -> str:
    if isinstance(error, ClockSkewed):
        return "synchronise this machine's clock (NTP): the store refuses requests signed at another time"
    if isinstance(error, Denied):
        return "correct store.access_key and store.secret_key, or grant read, write, list and delete"
    return f"start it, or correct store.url ({config.store.url}) and store.endpoint"


def _memory(loaded: Loaded) -> Finding:
    """Whether caches and buffers fit the memory that this agent may use."""
    limit = loaded.memory_bytes
    if limit is None:
        return Finding("memory", True, "no limit is known")
    by = "agent.memory_bytes_max" if loaded.config.agent.memory_bytes_max else "its control group"
    found = f"{limit // MIB} MiB ({by}), of which up to {memory.needed(loaded.config) // MIB} are used"
    for ok, told in ((False, loaded.memory_problem), (True, loaded.memory_warning)):
        if told:
            return Finding("memory", ok, found, told.removeprefix("memory: "))
    return Finding("memory", True, found)


def _ports(config: Config) -> Iterator[Finding]:
    """Whether each port is free, or is held by the agent that this configuration is of."""
    wanted = [(f"listeners {one.name}", one.host, one.port) for one in config.listeners]
    if config.peers.enabled and config.peers.port and config.log.url.startswith("etcd:"):
        wanted.append(("peers", config.peers.host, config.peers.port))
    taken = []
    for name, host, port in [*wanted, ("http", config.http.host, config.http.port)]:
        problem = _bind(host, port)
        if problem:
            taken.append((name, f"{host}:{port}", problem))
        else:
            yield Finding(name, True, f"{host}:{port} is free")
    own = _own_agent(config) if taken else ""
    for name, at, problem in taken:
        if own:
            yield Finding(name, True, f"{at} is used by this agent itself, {own}")
        else:
            yield Finding(
                name, False, f"{at}: {problem}", "stop what uses it, or choose another port or host"
            )


def _bind(host: str, port: int) -> str:
    """Why the port cannot be bound; empty when it can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _own_agent(config: Config) -> str:
    """How the agent does that runs by this configuration; empty when what answers is another one, or nothing.

    One that serves has bound all its listeners: it would have ended otherwise.
    """
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.http.host, config.http.host)
    host = f"[{local}]" if ":" in local else local
    try:
        scheme = "https" if config.http.tls_cert_file else "http"
        status = ask(f"{scheme}://{host}:{config.http.port}", "/status.json", seconds_max=STEP_S_MAX)
    except Failure:
        return ""
    ours = {"cluster": config.cluster.name, "agent": config.agent_name}
    if not isinstance(status, dict) or any(status.get(key) != value for key, value in ours.items()):
        return ""
    reasons = status.get("reasons")
    return f"not ready: {'; '.join(map(str, reasons))}" if isinstance(reasons, list) and reasons else "ready"
