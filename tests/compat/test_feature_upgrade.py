"""An upgrade of real agents: the level rises once the last old one is gone, and none comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.net.wire.generated import api_versions as av
from agent.net.wire.generated import update_features as uf
from coordination.kafka_codes import Code
from coordination.state.features import LEVEL
from deploy.services import Etcd, Minio
from deploy.services.kafka import tool
from deploy.services.service import ServiceError
from objectstore.batch import NewRecord, build
from tests.compat import raw
from tests.compat.against.side import NOW, Side
from tests.compat.cluster import Cluster
from tests.equipment.newer_agent import NEXT_LEVEL, UpgradableAgent

UPGRADE = 1


async def raise_level(bootstrap: str) -> tuple[Code, str]:
    """What the agent answers to an update to the next level."""
    wanted = uf.FeatureUpdateKey(LEVEL, NEXT_LEVEL, upgrade_type=UPGRADE)
    answer = await raw.call(bootstrap, "UpdateFeatures", uf.UpdateFeaturesRequest(30_000, [wanted]), 1)
    return Code(answer.error_code), answer.error_message or ""


async def levels(bootstrap: str) -> tuple[int, int]:
    """Floe's level as finalized, and the highest that the agent supports."""
    answer = await raw.call(bootstrap, "ApiVersions", av.ApiVersionsRequest("floe-tests", "1"), 4)
    (finalized,) = (row.max_version_level for row in answer.finalized_features if row.name == LEVEL)
    (supported,) = (row.max_version for row in answer.supported_features if row.name == LEVEL)
    return finalized, supported


async def tried(bootstrap: str, what: str, level: int) -> tuple[bool, str]:
    """Whether `kafka-features <what> --dry-run` says that it can be, and its words."""
    arguments = ("--bootstrap-server", bootstrap, what, "--feature", f"{LEVEL}={level}", "--dry-run")
    done = await asyncio.to_thread(tool, "features", *arguments)
    return done.returncode == 0, done.stdout + done.stderr


@pytest.mark.services
async def test_the_level_rises_with_the_last_agent_and_never_loses_a_record(
    etcd: Etcd, minio: Minio, tmp_path: Path
) -> None:
    cluster = Cluster(etcd, minio, directory=tmp_path, kind=UpgradableAgent)
    first, second = cluster.agents
    assert isinstance(first, UpgradableAgent)
    assert isinstance(second, UpgradableAgent)
    second.newer = True
    record = build([NewRecord(NOW, b"k", b"v")])
    with cluster:
        await Side(first.bootstrap, "").topic("t", retention_ms="-1")
        assert (await raw.produce(first.bootstrap, "t", record)).base_offset == 0
        for agent, known in ((first, NEXT_LEVEL - 1), (second, NEXT_LEVEL)):
            code, message = await raise_level(agent.bootstrap)
            assert code == Code.INVALID_UPDATE_VERSION
            assert "Agent 'agent-0' does not know it" in message
            assert await levels(agent.bootstrap) == (NEXT_LEVEL - 1, known)
        able, said = await tried(second.bootstrap, "upgrade", NEXT_LEVEL)
        assert not able
        assert f"Can not upgrade {LEVEL} to {NEXT_LEVEL}." in said
        assert "Agent 'agent-0' does not know it: run a version that does everywhere first." in said

        await asyncio.to_thread(first.stop)
        first.newer = True
        await asyncio.to_thread(first.start)
        able, said = await tried(second.bootstrap, "upgrade", NEXT_LEVEL)
        assert able, said
        assert await levels(first.bootstrap) == (NEXT_LEVEL - 1, NEXT_LEVEL), "a dry run changes nothing"
        assert await raise_level(second.bootstrap) == (Code.NONE, "")
        await raw.high_watermark(first.bootstrap, "t")  # with a read barrier: it has caught up
        assert [await levels(agent.bootstrap) for agent in (first, second)] == [(NEXT_LEVEL, NEXT_LEVEL)] * 2
        assert (await raw.produce(second.bootstrap, "t", record)).base_offset == 1
        able, said = await tried(first.bootstrap, "downgrade", NEXT_LEVEL - 1)
        assert not able
        assert f"it never goes back. To stay, run versions that know level {NEXT_LEVEL}" in said

        await asyncio.to_thread(second.stop)
        second.newer = False
        with pytest.raises(ServiceError, match=r"run a (newer version|version that knows it)"):
            await asyncio.to_thread(second.start)
        assert len(await raw.fetch_batches(first.bootstrap, "t", 0)) == 2
        assert (await raw.produce(first.bootstrap, "t", record)).base_offset == 2
