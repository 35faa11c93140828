"""What only the etcd log can suffer: pauses beyond the lease, restarts, restores, members, passwords, TLS."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordination.chain import AttemptFailed
from coordination.clock import SystemClock
from coordination.etcd.client import EtcdClient, Tls
from coordination.etcd.errors import EtcdError
from coordination.etcd.follower import FollowOptions
from coordination.etcd.log import EtcdLog, EtcdOptions
from coordination.etcd.proto import rpc_pb2 as pb
from coordination.etcd.stubs import unary
from coordination.etcd.watch import WatchStream
from coordination.log import Chain, Fenced, Full, LogRegressed, Unavailable
from coordination.open import open_log
from deploy.services import Etcd, EtcdCluster
from deploy.services.etcd import EtcdTls
from tests.contract.log_labs import CLUSTER, EtcdLab, EtcdLabClient, until
from tests.contract.test_log import Reader, fill, start
from tests.equipment.proxy import Proxy

pytestmark = pytest.mark.services
EC = ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
QUICK = EtcdOptions(attempt_timeout_s=0.5, call_timeout_s=1.0, follow=FollowOptions(0.2, 0.6))


@pytest.fixture
async def lab(own_etcd: Etcd, tmp_path: Path) -> AsyncIterator[EtcdLab]:
    made = EtcdLab(own_etcd, tmp_path)
    yield made
    await made.close()


async def test_etcd_is_paused_beyond_every_lease(lab: EtcdLab) -> None:
    """Bufstream #2: all leases expire at once. No append is lost or doubled, none is acknowledged wrongly."""
    client = await lab.client()
    chains = [await client.log.register(number, b"", 2.0) for number in (1, 2)]
    reader = Reader(client.log)
    before = [await chain.append(b"before") for chain in chains]
    await reader.reaches(before[-1])
    lab.etcd.pause()
    appends = [asyncio.create_task(chain.append(b"during")) for chain in chains]
    with pytest.raises(Unavailable):
        await client.log.current()
    await asyncio.sleep(4)
    lab.etcd.resume()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    entries = await reader.reaches(await client.log.current())
    during = [entry.revision for entry in entries if entry.payload == b"during"]
    landed = [outcome for outcome in outcomes if isinstance(outcome, int)]
    fenced = [outcome for outcome in outcomes if isinstance(outcome, Fenced)]
    assert len(landed) + len(fenced) == 2
    assert set(landed) <= set(during)
    assert len(during) - len(landed) <= sum(outcome.maybe_appended for outcome in fenced)
    await reader.stop()


async def test_etcd_is_killed_and_comes_back(lab: EtcdLab) -> None:
    client, chain = await start(lab)
    reader = Reader(client.log)
    revisions = await fill(chain, 10)
    await asyncio.to_thread(lab.etcd.kill)
    append = asyncio.create_task(chain.append(b"while it was gone"))
    with pytest.raises(Unavailable):
        await client.log.current()
    with pytest.raises(Unavailable):
        await client.log.register(2, b"", 5.0)
    await asyncio.to_thread(lab.etcd.start)
    revisions.append(await append)
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    await reader.stop()


async def test_a_restored_etcd_that_was_written_on_is_still_refused(lab: EtcdLab) -> None:
    """Its revision is past the one seen, but what was delivered is not in it."""
    client, chain = await start(lab)
    assert isinstance(client, EtcdLabClient)
    reader = Reader(client.log)
    await lab.backup()
    revisions = await fill(chain, 3)
    await reader.reaches(revisions[-1])
    client.link.requests.cut = client.link.answers.cut = True
    await lab.restore()
    _, other = await start(lab, 2)
    await fill(other, 20)
    client.link.heal()
    with pytest.raises(LogRegressed, match="not in etcd any more"):
        await reader.task


async def test_an_emptied_etcd_is_another_log(lab: EtcdLab) -> None:
    """etcd's own cluster id would be the same again; the bucket's fingerprint must not fit [rule 11]."""
    client = await lab.client()
    before = await client.log.identity()
    await asyncio.to_thread(lab.etcd.kill)
    await asyncio.to_thread(shutil.rmtree, lab.etcd.data)
    await asyncio.to_thread(lab.etcd.start)
    assert await (await lab.client()).log.identity() != before


async def test_compaction_by_an_operator_loses_no_entry_to_a_new_follower(lab: EtcdLab) -> None:
    client, chain = await start(lab)
    revisions = await fill(chain, 300)
    await lab.compact()
    entries = await Reader(client.log).reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions


async def test_a_gap_larger_than_one_message_is_read_in_pages(lab: EtcdLab) -> None:
    client, chain = await start(lab)
    payload = b"x" * client.log.entry_bytes_max
    revisions = [await chain.append(payload) for _ in range(70)]
    await lab.compact()
    async with asyncio.timeout(20):
        entries = await Reader(client.log).reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    assert sum(len(entry.payload) for entry in entries) == 70 << 20


async def test_trim_deletes_entries_of_many_incarnations_and_keeps_the_keys_of_the_living(
    lab: EtcdLab,
) -> None:
    client = await lab.client()
    chains = [await client.log.register(number, b"", 60.0) for number in range(1, 131)]
    revisions = await asyncio.gather(*(chain.append(b"x") for chain in chains))
    last = await chains[0].append(b"kept")
    await client.log.trim(max(revisions))
    left = await lab.direct.range(pb.RangeRequest(key=lab.keys.log, range_end=lab.keys.log[:-1] + b"0"))
    assert [kv.value for kv in left.kvs] == [b"kept"]
    assert len(await client.log.members()) == 130
    assert await chains[0].append(b"more") > last


async def test_a_dead_member_is_left_for_another(own_etcd: Etcd) -> None:
    async with Proxy("127.0.0.1", own_etcd.port) as first, Proxy("127.0.0.1", own_etcd.port) as second:
        log = EtcdLog([first.address, second.address], CLUSTER, SystemClock(), QUICK)
        chain = await log.register(1, b"", 10.0)
        reader = Reader(log)
        revisions = await fill(chain, 3)
        await reader.reaches(revisions[-1])
        await first.refuse()
        first.reset()
        revisions += await fill(chain, 3)
        await reader.reaches(revisions[-1])
        await first.start()
        second.answers.cut = True
        revisions += await fill(chain, 3)
        assert [entry.revision for entry in await reader.reaches(revisions[-1])] == revisions
        await reader.stop()
        await log.close()


async def test_nobody_there_is_unavailable_and_definite() -> None:
    client = EtcdClient(["127.0.0.1:9"], SystemClock(), call_timeout_s=0.2)
    with pytest.raises(EtcdError) as refused:
        await client.txn_once(pb.TxnRequest())
    assert not refused.value.ambiguous
    await client.close()


async def test_a_channel_that_is_closed_meanwhile_is_an_error_of_etcd_s() -> None:
    """It is replaced after silence; whoever was still signing in finds it closed."""
    client = EtcdClient(["127.0.0.1:9"], SystemClock(), call_timeout_s=0.2)
    await client._endpoint().channel.close(None)
    for asked in (client.watch(pb.WatchCreateRequest(key=b"k")), client.txn_once(pb.TxnRequest())):
        with pytest.raises(EtcdError, match="closed"):
            await asked
    await client.close()


async def enable_passwords(etcd: Etcd, password: str = "secret") -> None:
    client = EtcdClient([etcd.endpoint], SystemClock())
    channel = client._endpoint().channel
    role, user = pb.AuthRoleAddRequest(name="root"), pb.AuthUserAddRequest(name="root", password=password)
    grant = pb.AuthUserGrantRoleRequest(user="root", role="root")
    await unary(channel, "Auth/RoleAdd", pb.AuthRoleAddRequest, pb.AuthRoleAddResponse)(role)
    await unary(channel, "Auth/UserAdd", pb.AuthUserAddRequest, pb.AuthUserAddResponse)(user)
    await unary(channel, "Auth/UserGrantRole", pb.AuthUserGrantRoleRequest, pb.AuthUserGrantRoleResponse)(
        grant
    )
    await unary(channel, "Auth/AuthEnable", pb.AuthEnableRequest, pb.AuthEnableResponse)(
        pb.AuthEnableRequest()
    )
    await client.close()


async def test_user_and_password_and_a_token_that_became_invalid(own_etcd: Etcd) -> None:
    await enable_passwords(own_etcd)
    url = f"etcd://{own_etcd.endpoint}/{CLUSTER}"
    log = open_log(url, SystemClock(), user="root", password="secret", follow=FollowOptions(0.2, 0.6))
    chain = await log.register(1, b"", 60.0)
    reader = Reader(log)
    revisions = await fill(chain, 3)
    await reader.reaches(revisions[-1])
    await asyncio.to_thread(own_etcd.restart)  # forgets its tokens
    revisions += await fill(chain, 3)
    assert [entry.revision for entry in await reader.reaches(revisions[-1])] == revisions
    await reader.stop()
    await log.close()
    for options in ({"user": "root", "password": "wrong"}, {}):
        stranger = open_log(url, SystemClock(), **options)
        with pytest.raises(Unavailable, match=r"signing in as root|user name is empty"):
            await stranger.current()
        await stranger.close()


def certificates(folder: Path) -> EtcdTls:
    """An authority, a server pair for 127.0.0.1 and a client pair, made by the openssl command."""

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    subject = ["-subj", "/CN=floe test authority"]
    run("req", "-x509", "-newkey", *EC, "-nodes", "-keyout", "ca.key", "-out", "ca.pem", *subject)
    for name in ("server", "client"):
        run(
            "req",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        (folder / f"{name}.ext").write_text(
            "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext"]
        run("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signer)
    paths = ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")
    return EtcdTls(*(folder / path for path in paths))


async def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    files = await asyncio.to_thread(certificates, tmp_path)
    with Etcd(tmp_path / "etcd", tls=files) as etcd:
        tls = Tls(ca=str(files.ca), cert=str(files.client_cert), key=str(files.client_key))
        log = open_log(f"etcd://{etcd.endpoint}/{CLUSTER}", SystemClock(), tls=tls)
        chain = await log.register(1, b"", 60.0)
        revision = await chain.append(b"one")
        assert len(await Reader(log).reaches(revision)) == 1
        await log.close()
        for wrong in (None, Tls(ca=str(files.ca))):
            stranger = open_log(
                f"etcd://{etcd.endpoint}/{CLUSTER}", SystemClock(), tls=wrong, call_timeout_s=0.5
            )
            with pytest.raises(Unavailable):
                await stranger.current()
            await stranger.close()


async def test_idle_followers_and_chains_cost_etcd_little(lab: EtcdLab) -> None:
    """Progress requests and renewals move no revision."""
    client, _ = await start(lab)
    reader = Reader(client.log)
    before = await client.log.current()
    await reader.reaches(before)
    await asyncio.sleep(1.5)
    assert await client.log.current() == before
    await until(lambda: reader.through == before)
    await reader.stop()


async def test_steady_reads_without_writes_leave_the_watch_alone(lab: EtcdLab) -> None:
    """Each wakes whoever asks the watch for progress, which was not asked any more and was taken for dead."""
    client, _ = await start(lab)
    patient = EtcdOptions(follow=FollowOptions(progress_s=0.2, silent_s=2.5))
    log = EtcdLog([lab.etcd.endpoint], CLUSTER, SystemClock(), patient)
    watch, opened = log.client.watch, []

    async def counted(create: pb.WatchCreateRequest) -> WatchStream:
        opened.append(create.start_revision)
        return await watch(create)

    log.client.watch = counted  # type: ignore[method-assign]  # of this client
    reader = Reader(log)
    await reader.reaches(await client.log.current())
    for _ in range(80):
        await log.current()
        await asyncio.sleep(0.05)
    assert len(opened) == 1
    await reader.stop()
    await log.close()


async def test_leaders_die_and_freeze_while_chains_append(tmp_path: Path) -> None:
    """Three members, each its turn: nothing acknowledged is lost, nothing doubled, no false regression."""
    cluster = EtcdCluster()
    await asyncio.to_thread(cluster.start)
    try:
        logs = [
            EtcdLog(cluster.endpoints[turn:] + cluster.endpoints[:turn], CLUSTER, SystemClock(), QUICK)
            for turn in range(3)
        ]
        chains = [await log.register(number, b"", 60.0) for number, log in enumerate(logs, 1)]
        readers = [Reader(log) for log in logs]
        acknowledged: list[int] = []
        done = asyncio.Event()

        async def write(chain: Chain) -> None:
            while not done.is_set():
                acknowledged.append(await chain.append(b"x" * 100))
                await asyncio.sleep(0.002)

        def more_than(count: int) -> bool:
            return len(acknowledged) > count

        writers = [asyncio.create_task(write(chain)) for chain in chains]
        for freeze in (False, True):
            await until(partial(more_than, len(acknowledged) + 50))
            leader = await asyncio.to_thread(cluster.leader)
            leader.pause() if freeze else await asyncio.to_thread(leader.kill)
            await until(partial(more_than, len(acknowledged) + 50))
            leader.resume() if freeze else await asyncio.to_thread(leader.start)
        done.set()
        await asyncio.gather(*writers)
        newest = max(acknowledged)
        orders = [await reader.reaches(newest) for reader in readers]
        assert orders[0] == orders[1] == orders[2]
        assert [entry.revision for entry in orders[0]] == sorted(acknowledged)
        for reader, log in zip(readers, logs, strict=True):
            await reader.stop()
            await log.close()
    finally:
        cluster.stop()


async def test_etcd_runs_out_of_its_quota_and_gets_room_again(tmp_path: Path) -> None:
    """NOSPACE: appends fail at once and for sure, `floe check` says what to do; then the chain goes on."""
    with Etcd(quota_bytes=16 << 20, fsync=False) as etcd:
        log = EtcdLog([etcd.endpoint], CLUSTER, SystemClock(), EtcdOptions(call_timeout_s=20.0))
        chain = await log.register(1, b"", 60.0)
        written = 0
        with suppress(Full):
            while written < 64:
                await chain.append(bytes(1 << 20))
                written += 1
        with pytest.raises(Full, match="NOSPACE"):
            await chain.append(b"small")
        assert await log.current() > 0, "reads go on"
        assert any("NOSPACE" in alarm for alarm in await log.alarms())
        row = await asyncio.to_thread(checked, etcd, tmp_path)
        assert (row["ok"], "disarm" in row["remedy"]) == (False, True)
        etcd.quota_bytes = 64 << 20
        etcd.restart()
        disarm(etcd)
        reader = Reader(log)
        entries = await reader.reaches(await chain.append(b"after"))
        assert [entry.sequence for entry in entries] == list(range(1, written + 2)), "none that was refused"
        assert not await log.alarms()
        await reader.stop()
        await chain.close()
        await log.close()


@pytest.mark.parametrize("applied", [True, False])
async def test_nospace_may_be_the_answer_to_what_was_applied(lab: EtcdLab, applied: bool) -> None:
    """etcd looks at its quota before it proposes, and again as it applies, which it does in any case."""
    client, chain = await start(lab)
    reader = Reader(client.log)
    revisions = await fill(chain, 2)
    log: Any = client.log
    attempt, read = log.attempt, log.key_of
    failed: list[int] = []

    async def no_room(request: pb.TxnRequest) -> pb.TxnResponse:
        if applied:
            await attempt(request)
        raise AttemptFailed("etcd NOSPACE", ambiguous=False, full=True)

    async def not_at_first(incarnation: int) -> Any:
        if not failed:
            failed.append(incarnation)
            raise Unavailable("no leader")
        return await read(incarnation)

    log.attempt, log.key_of = no_room, not_at_first
    if applied:
        revisions.append(await chain.append(b"in the log"))
    else:
        with pytest.raises(Full):
            await chain.append(b"not in the log")
    assert failed
    log.attempt = attempt
    revisions.append(await chain.append(b"after"))
    entries = await reader.reaches(revisions[-1])
    assert [entry.revision for entry in entries] == revisions
    await reader.stop()


def checked(etcd: Etcd, folder: Path) -> dict[str, Any]:
    """What `floe check` says of the log."""
    settings = [f"log.url=etcd://{etcd.endpoint}/full", f"store.url=file://{folder}", "http.port=0"]
    flags = [part for each in (*settings, "listeners.0.port=0") for part in ("--set", each)]
    command = [sys.executable, "-m", "agent", "check", "--output", "json", *flags]
    ran = subprocess.run(command, capture_output=True, check=False)
    (row,) = [each for each in json.loads(ran.stdout) if each["check"] == "log"]
    return dict(row)


def disarm(etcd: Etcd) -> None:
    """As `etcdctl alarm disarm`, by etcd's own JSON gateway."""
    for alarm in _alarm(etcd, action="GET")["alarms"]:
        _alarm(etcd, action="DEACTIVATE", **alarm)


def _alarm(etcd: Etcd, **asked: str) -> Any:
    request = urllib.request.Request(
        f"http://{etcd.endpoint}/v3/maintenance/alarm", json.dumps(asked).encode()
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)
