"""Of what is surely good protovalidate's library finds nothing wrong: random rules, random messages."""

from __future__ import annotations

from random import Random

import pytest

from schema.descriptors import load
from schema.rules.evaluation import Evaluator, RulesError
from schema.rules.sure.kinds import surely
from tests.property.drawn_rules import Drawn, fill
from tests.unit.schema import samples

KINDS = 60
MESSAGES = 40


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_surely_good_is_good(seed: int, syntax: str) -> None:
    files = samples.descriptor_set(Drawn(seed).file(syntax, KINDS))
    draw, compiled, sure, good = Random(seed), 0, 0, 0
    for number in range(KINDS):
        kind = load(files, f"t.M{number}")
        obeys = surely(kind)
        if obeys is None:
            continue
        compiled += 1
        evaluator = Evaluator(files, kind.name)
        for _ in range(MESSAGES):
            message = fill(draw, kind.message_class())
            said = bool(obeys(kind.message_class.FromString(message.SerializeToString())))
            try:
                broken = evaluator.violations(message.SerializeToString())
            except RulesError as error:
                raise AssertionError(f"understood, and yet {error}: {kind.descriptor.full_name}") from error
            sure, good = sure + said, good + (not broken)
            assert not (said and broken), (kind.name, message, broken)
    assert compiled > KINDS // 4
    assert 0.8 * good < sure <= good, "hardly anything is left to the library that it would not refuse"
    print(compiled, sure, good)
