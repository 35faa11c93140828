"""Files that settings name: what changed is used, or it is told that it is not, until it is as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from agent.config import Config
from agent.health.files import BY_CALL, BY_RENEWAL, CONFIG_FILE, Files, Watched, files_of
from agent.http.gauges import FIGURES
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from tests.unit.agent.http.conftest import agent_on, connect

SETTINGS = ("log.tls_ca_file", "log.password_file", "store.ca_file", CONFIG_FILE)


class Rig:
    """Four files, and a log that renews unless it is told not to."""

    def __init__(self, folder: Path) -> None:
        self.paths = {name: folder / name.replace(" ", "_") for name in SETTINGS}
        for path in self.paths.values():
            path.write_text("before")
        self.renewed = 0
        self.refuses = ""
        watched = [Watched(name, path) for name, path in self.paths.items()]
        self.files = Files(watched, self._renew, 0.01, asyncio.get_running_loop().time)

    async def _renew(self) -> bool:
        if self.refuses:
            raise ValueError(self.refuses)
        self.renewed += 1
        return True

    async def stale(self) -> Mapping[str, str]:
        await self.files.look()
        return self.files.stale


@pytest.fixture
async def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    await made.files.start()
    await made.files.stop()
    return made


async def test_what_can_be_used_is_used(rig: Rig) -> None:
    assert await rig.stale() == {}
    for name in ("log.tls_ca_file", "log.password_file"):
        rig.paths[name].write_text("after")
    with capture_logs() as lines:
        assert await rig.stale() == {}
        assert await rig.stale() == {}
    assert rig.renewed == 1
    assert [line["event"] for line in lines] == ["a file changed and is used"] * 2


async def test_what_needs_a_restart_is_told_until_it_is_as_it_was(rig: Rig) -> None:
    for name in ("store.ca_file", CONFIG_FILE):
        rig.paths[name].write_text("after")
    with capture_logs() as lines:
        for _ in range(100):
            assert set(await rig.stale()) == {"store.ca_file", CONFIG_FILE}
        rig.paths[CONFIG_FILE].write_text("before")
        assert set(await rig.stale()) == {"store.ca_file"}
    assert [line["setting"] for line in lines] == ["store.ca_file", CONFIG_FILE, CONFIG_FILE]
    assert rig.renewed == 0


async def test_what_is_no_pair_is_told_and_used_once_it_is_one(rig: Rig) -> None:
    rig.paths["log.tls_ca_file"].write_text("half")
    rig.refuses = "key values mismatch"
    assert await rig.stale() == {"log.tls_ca_file": "ValueError: key values mismatch"}
    rig.refuses = ""
    assert await rig.stale() == {}
    rig.paths["log.password_file"].unlink()
    assert await rig.stale() == {"log.password_file": "it cannot be read"}


async def test_it_looks_by_itself_and_the_metric_says_it(rig: Rig) -> None:
    await rig.files.start()
    store = FaultyStore(MemoryStore(), 1)
    async with agent_on(MemoryServer(), store) as edge, connect(edge.rebuilt(files=rig.files)) as client:
        for wanted in ("0.0", "1.0"):
            while True:
                text = (await client.get("/metrics")).text
                if f'floe_restart_needed{{setting="store.ca_file"}} {wanted}' in text:
                    break
                await asyncio.sleep(0.01)
            rig.paths["store.ca_file"].write_text("after")
        assert (await client.get("/status.json")).json()["files"].keys() == {"store.ca_file"}
    await rig.files.stop()
    assert FIGURES["restart_needed"].labels == ("setting",)


def test_every_file_that_a_setting_names_is_looked_at(tmp_path: Path) -> None:
    values = {
        "log": {"url": "etcd://a:1/x", "tls": True, "tls_ca_file": "/ca", "user": "u", "password_file": "/p"},
        "store": {"url": "s3://b/x", "access_key_file": "/a", "secret_key_file": "/s", "ca_file": "/sca"},
    }
    found = {each.setting for each in files_of(Config.model_validate(values), tmp_path / "floe.yaml")}
    assert found == {
        *("log.tls_ca_file", "log.password_file", "store.access_key_file", "store.secret_key_file"),
        *("store.ca_file", CONFIG_FILE),
    }
    assert not BY_CALL & BY_RENEWAL
