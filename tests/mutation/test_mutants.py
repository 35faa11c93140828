"""The changes that mutants are made of."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.__main__ import CHANGED, LOADED, ROOT, TESTS
from tests.mutation.lab import swap, watch
from tests.mutation.mutants import mutants


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("def f():\n    return a < b", {"a <= b"}),
        ("def f():\n    return a in b and c", {"a not in b and c", "a in b or c"}),
        ("def f():\n    x = a + 1", {"a - 1", "a + 2"}),
        ("def f():\n    if a:\n        g()", {"if False:"}),
        ("def f():\n    g()\n    a.b = c", {"    pass\n    a.b = c", "    g()\n    pass"}),
        ("def f():\n    return True", {"return False"}),
    ],
)
def test_each_change_is_made_once(source: str, made: set[str]) -> None:
    texts = [ast.unparse(mutant.tree) for mutant in mutants(source)]
    assert len(texts) == len(set(texts)) == len(made)
    for wanted in made:
        assert sum(wanted in text for text in texts) == 1, texts


def test_what_is_changed_and_what_should_notice_are_there() -> None:
    assert [pattern for pattern in CHANGED if not list(ROOT.glob(pattern))] == []
    assert [test for test in (*TESTS, *LOADED) if not (ROOT / test).exists()] == []


SAMPLE = """
LIMIT = 3

class C:
    def below(self, n, most=LIMIT + 0):
        def inner():
            return n < most
        return inner()
"""


def test_a_change_belongs_to_the_outermost_function_whose_body_it_is_in() -> None:
    found = {(mutant.what.split("  ")[0], mutant.function) for mutant in mutants(SAMPLE)}
    assert found == {("3", ""), ("LIMIT + 0", ""), ("0", ""), ("n < most", "C.below")}


def test_a_mutant_takes_the_place_of_a_function_wherever_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    known: dict[str, Any] = {}
    exec(compile(SAMPLE, str(path), "exec"), known)
    below = known["C"]().below
    assert (below(2), below(3)) == (True, False)
    mutant = next(each for each in mutants(SAMPLE) if each.what.startswith("n < most"))
    swap(path, mutant)
    assert (below(2), below(3)) == (True, True)


def test_functions_say_that_they_are_run(tmp_path: Path) -> None:
    path, found = tmp_path / "sample.py", set[tuple[str, str]]()
    path.write_text(SAMPLE)
    known: dict[str, Any] = {}
    exec(compile(SAMPLE, str(path), "exec"), known)
    watch(frozenset({str(path)}), found)
    assert found == set()
    assert known["C"]().below(2)
    assert found == {(str(path), "C.below")}
