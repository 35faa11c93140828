"""Floe's catalog passes Iceberg's compatibility kit, but for what it refuses by design."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import kit
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving

pytestmark = pytest.mark.services


async def test_the_kit_passes_but_for_what_is_refused(tmp_path: Path) -> None:
    async with rigs.running(tmp_path) as rig, serving.served(serving.catalog_of(rig)) as url:
        found = await kit.outcomes(url, tmp_path / "report")
    bad = {name: what for name, what in found.items() if what not in (kit.PASSED, kit.LEFT_OUT)}
    assert bad.keys() == kit.REFUSED.keys(), bad
    assert sum(what == kit.PASSED for what in found.values()) >= 125
