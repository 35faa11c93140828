"""The compiler's helper process: kept, replaced, and ended when a source hangs or kills it."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schema import compiler, compiling
from schema.compiler import CompileError, compile_protos

A = {"a.proto": b'syntax = "proto3"; message A { int32 a = 1; }'}
DIES = "import os, sys; sys.stdin.readline(); os._exit(3)"
HANGS = "import sys, time; sys.stdin.readline(); time.sleep(600)"


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Helpers of other tests are no part of these."""
    compiling.end_all()
    yield
    compiling.end_all()


def _kept() -> list[int]:
    return [each._process.pid for each in compiling._idle]


def test_one_helper_serves_source_after_source() -> None:
    compiled = compile_protos(A)
    first = _kept()
    assert len(first) == 1
    with pytest.raises(CompileError, match="Expected field number"):
        compile_protos({"a.proto": b'syntax = "proto3"; message A { int32 a = ; }'})
    assert compile_protos(A) == compiled
    assert _kept() == first


def test_as_many_as_are_needed_run_and_few_are_kept() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _: compile_protos(A), range(40)))
    assert len(made) == 1
    assert 1 <= len(_kept()) <= compiling.HELPERS_KEPT_MAX


def test_a_helper_that_is_gone_is_replaced() -> None:
    compiled = compile_protos(A)
    (pid,) = _kept()
    os.kill(pid, signal.SIGKILL)
    assert compile_protos(A) == compiled
    assert _kept() != [pid]


def test_all_that_were_kept_may_be_gone() -> None:
    compiled = compile_protos(A)
    one = compiling._Helper()
    compiling._put_back(one, well=True)
    kept = _kept()
    assert len(kept) == compiling.HELPERS_KEPT_MAX
    for pid in kept:
        os.kill(pid, signal.SIGKILL)
    assert compile_protos(A) == compiled


def test_a_helper_ends_after_a_while_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "SOURCES_MAX", 2)
    compile_protos(A)
    assert _kept()
    compile_protos(A)
    assert not _kept()


def test_a_source_that_kills_the_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stands_in(DIES, tmp_path, monkeypatch)
    with pytest.raises(CompileError, match=r"a\.proto: the compiler ended without a reason"):
        compile_protos(A)
    assert not _kept()


def test_a_source_that_hangs_is_refused_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stands_in(HANGS, tmp_path, monkeypatch)
    monkeypatch.setattr(compiler, "COMPILE_SECONDS_MAX", 0.5)
    with pytest.raises(CompileError, match=r"a\.proto: not compiled within 0 s"):
        compile_protos(A)
    assert not _kept()


def test_an_agent_with_very_many_connections_compiles() -> None:
    """select() takes no descriptor above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert compile_protos(A)
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_one_source_leaves_does_not_reach_the_next() -> None:
    """Neither its files nor its complaints."""
    with pytest.raises(CompileError):
        compile_protos({"b.proto": b"nonsense"})
    with pytest.raises(CompileError, match=r'Import "b\.proto" was not found') as caught:
        compile_protos({"a.proto": b'syntax = "proto3"; import "b.proto";'})
    assert not any("nonsense" in str(each) for each in caught.value.problems)


def _stands_in(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "helper.py"
    path.write_text(program)
    monkeypatch.setattr(compiling, "PROGRAM", str(path))
