"""etcd's data is gone: `floe restore cluster`, and everything that was acknowledged is there."""

from __future__ import annotations

import pytest

from tests.torture.restoring import one_run

pytestmark = pytest.mark.services


async def test_etcd_is_lost_under_load_and_the_cluster_restored() -> None:
    print(await one_run(seed=7))
