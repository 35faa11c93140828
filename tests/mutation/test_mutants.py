"""The changes that mutants are made of."""

from __future__ import annotations

import ast

import pytest

from tests.mutation.__main__ import ROOT, TARGETS
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
    for pattern, tests in TARGETS.items():
        assert list(ROOT.glob(pattern)), pattern
        assert [test for test in tests if not (ROOT / test).is_file()] == []
