"""What a task of a replay writes: each record once, by whatever attempts, one beside the other too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from deploy.run.stages import Embedded
from iceberg.spark.replay_writer import HEADER, ReplayFailed, Row, Task, write
from tests.spark.embedded import command
from tests.spark.quarantined import positions, read

pytestmark = [pytest.mark.services]

COUNT, BATCH = 10, 3


class Died(Exception):
    """The task's."""


@pytest.fixture
def task(floe: Embedded) -> Task:
    """Of partition 1 of a topic that stands for a quarantine; its end is a marker."""
    command(floe, "topic", "create", "t.quarantine", "--partitions", "2")
    return Task(floe.bootstrap, "t", 2, "t.quarantine", 1, COUNT + 1, BATCH, {})


def rows(first: int = 0, end: int = COUNT) -> Iterator[Row]:
    """Every second one was meant for a partition that is no more."""
    for offset in range(first, end):
        yield Row(offset, offset % 2 * 5, 1_000 + offset, None, b"%d" % offset, [("h", None)])


def there(floe: Embedded) -> Counter[bytes]:
    """Where the topic's records come from."""
    return Counter(dict(each.headers() or [])[HEADER] for each in read(floe, "t", 2))


DUE = Counter(b"t.quarantine/1/%d" % offset for offset in range(COUNT))


def test_an_attempt_goes_on_where_the_last_transaction_ended(floe: Embedded, task: Task) -> None:
    def dying() -> Iterator[Row]:
        yield from rows(0, 8)
        raise Died

    with pytest.raises(Died):
        write(task, dying())
    assert positions(floe, "t", 2) == [0, 6]
    assert write(task, rows()) == 4, "those of the transaction that was open, and what it had not come to"
    assert positions(floe, "t", 2) == [0, COUNT + 1]
    assert write(task, rows()) == 0
    assert there(floe) == DUE


def test_who_is_overtaken_writes_no_more(floe: Embedded, task: Task) -> None:
    """A speculative attempt takes over in the midst of a transaction of the first one."""

    def overtaken() -> Iterator[Row]:
        yield from rows(0, 5)
        assert write(task, rows()) == COUNT - 3
        yield from rows(5)

    with pytest.raises(ReplayFailed, match="what was committed before stays"):
        write(task, overtaken())
    assert there(floe) == DUE
    with pytest.raises(ReplayFailed, match="comes twice"):
        write(task, [*rows(20, 21), *rows(20, 21)])
