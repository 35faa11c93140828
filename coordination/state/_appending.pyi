from coordination.state.slices import SliceIndex
from coordination.state.types import Partition, ProducerEntry

def bind(
    partition: type[Partition],
    entry: type[ProducerEntry],
    index: type[SliceIndex],
    offset_max: int,
    remembered: int,
    /,
) -> None: ...
def append_following(
    partitions: list[Partition | None],
    columns: tuple[list[int], list[int], list[int], list[int], list[int], list[int], list[int], list[int]],
    place: int,
    position: int,
    before: Partition | None,
    serial: int,
    freezes: int,
    now_ms: int,
    base_offsets: list[int],
    /,
) -> tuple[int, int, Partition | None, int]: ...
