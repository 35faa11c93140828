"""etcd's data is gone, or is a backup's: `floe restore cluster`, and everything acknowledged is there."""

from __future__ import annotations

import pytest

from tests.equipment.thorough import one_in
from tests.torture.restoring import BACKUP, CUT, MISSING, one_run

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]


@pytest.mark.parametrize("how", one_in(2, [CUT, MISSING, BACKUP]))
async def test_etcd_is_lost_under_load_and_the_cluster_restored(how: str) -> None:
    row = await one_run(7, how)
    print(row.line())
    assert not row.findings
