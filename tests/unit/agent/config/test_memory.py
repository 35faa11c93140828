"""Caches fit the memory there is: what a control group says, what shrinks, what is refused and warned of."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import Config, load, memory
from agent.config.base import MIB
from agent.config.cgroup import memory_bytes
from agent.config.load import Loaded

LOCAL = ("log.url=memory:", "store.url=file:///a")
NO_LIMIT_V1 = "9223372036854771712"


def root_of(folder: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A folder with /proc and /sys as a machine has them."""
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return folder


@pytest.mark.parametrize(
    ("cgroup", "files", "limit"),
    [
        ("0::/", {"sys/fs/cgroup/memory.max": "314572800"}, 314_572_800),
        ("0::/", {"sys/fs/cgroup/memory.max": "max"}, None),
        ("0::/", {}, None),
        (
            "0::/pods/one/agent",
            {"sys/fs/cgroup/pods/one/agent/memory.max": "max", "sys/fs/cgroup/pods/one/memory.max": "1000"},
            1000,
        ),
        (
            "0::/pods/agent",
            {"sys/fs/cgroup/pods/memory.max": "1000", "sys/fs/cgroup/pods/agent/memory.max": "2000"},
            1000,
        ),
        ("0::/../../elsewhere", {"sys/fs/cgroup/memory.max": "5"}, None),
        (
            "9:name=systemd:/\n4:cpu,memory:/docker/x\n0::/",
            {"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "77"},
            77,
        ),
        ("4:memory:/docker/x", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "78"}, 78),
        ("4:memory:/", {"sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT_V1}, None),
        ("nonsense", {"sys/fs/cgroup/memory.max": "5"}, None),
    ],
)
def test_the_limit_of_a_control_group(
    tmp_path: Path, cgroup: str, files: dict[str, str], limit: int | None
) -> None:
    assert memory_bytes(root_of(tmp_path, cgroup, files)) == limit


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) is None


def within(limit: int, *flags: str) -> Loaded:
    return load(None, [*LOCAL, f"agent.memory_bytes_max={limit}", *flags], environment={})


def test_the_defaults_are_as_large_as_is_said() -> None:
    config = within(memory.DEFAULTS_BYTES).config
    assert config == load(None, [*LOCAL, "agent.memory_bytes_max=2147483648"], environment={}).config
    assert config.fetch == Config.model_fields["fetch"].default
    assert 0.9 * memory.DEFAULTS_BYTES < memory.needed(config) <= memory.DEFAULTS_BYTES


@pytest.mark.parametrize("mib", [416, 512, 768, 1024, 1536, 2000])
def test_what_nobody_gave_shrinks_until_it_fits(mib: int) -> None:
    loaded = within(mib * MIB)
    assert memory.needed(loaded.config) <= mib * MIB
    assert (loaded.memory_problem, loaded.memory_warning) == (None, None)
    assert loaded.origins["fetch", "cache_bytes_max"] == f"memory limit of {mib * MIB} bytes"
    larger = within((mib + 48) * MIB).config
    assert larger.fetch.cache_bytes_max >= loaded.config.fetch.cache_bytes_max


def test_a_control_group_is_read_where_no_setting_says_more(tmp_path: Path) -> None:
    root = root_of(tmp_path, "0::/", {"sys/fs/cgroup/memory.max": str(512 * MIB)})
    loaded = load(None, LOCAL, environment={}, root=root)
    assert loaded.memory_bytes == 512 * MIB
    assert loaded.config.fetch.cache_bytes_max < 64 * MIB
    own = load(None, [*LOCAL, f"agent.memory_bytes_max={1024 * MIB}"], environment={}, root=root)
    assert own.memory_bytes == 1024 * MIB


def test_what_was_given_stays_and_is_warned_of_or_refused_with_its_name() -> None:
    loaded = within(512 * MIB, f"fetch.cache_bytes_max={150 * MIB}")
    assert loaded.config.fetch.cache_bytes_max == 150 * MIB
    assert loaded.memory_problem is None
    warned = loaded.memory_warning or ""
    assert "512 MiB may be too few" in warned
    assert f"lower fetch.cache_bytes_max ({150 * MIB}, --set)" in warned
    refused = within(400 * MIB, f"fetch.cache_bytes_max={200 * MIB}").memory_problem or ""
    assert "400 MiB are too few" in refused
    assert "agent.memory_bytes_max" in refused
    assert "300 MiB are too few" in (within(300 * MIB).memory_problem or ""), "it was killed at that"
    assert within(300 * MIB, "tables.enabled=false").memory_problem is None, "one helper process less"
    assert within(300 * MIB, "agent.roles=produce,fetch").memory_warning is None


@pytest.mark.parametrize(
    "flag",
    [
        f"limits.request_bytes_max={100 * MIB}",
        f"limits.process_bytes_max={2 * MIB}",
        f"produce.chunk_bytes_max={64 * MIB}",
        f"produce.buffer_bytes_max={1 * MIB}",
        f"fetch.response_bytes_max={50 * MIB}",
        f"limits.response_bytes_max={1 * MIB}",
    ],
)
def test_one_of_a_pair_that_was_given_takes_the_other_along(flag: str) -> None:
    """The pairs of rules.py: a value that nobody chose must not contradict one that somebody did."""
    name, _, value = flag.partition("=")
    section, key = name.split(".")
    assert getattr(getattr(within(400 * MIB, flag).config, section), key) == int(value)
