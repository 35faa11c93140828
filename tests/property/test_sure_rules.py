"""What is said of messages without protovalidate's library is what it says: random rules, random messages."""

from __future__ import annotations

from random import Random

import pytest

from schema.descriptors import load
from schema.rules.evaluation import Evaluator, RulesError
from schema.rules.sure.kinds import surely
from schema.rules.sure.signature import Signature, signing
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


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@pytest.mark.parametrize("seed", range(3))
def test_messages_of_one_signature_break_the_same_rules_in_the_same_words(seed: int, syntax: str) -> None:
    files = samples.descriptor_set(Drawn(seed).file(syntax, KINDS))
    draw, broken, signed, known = Random(seed), 0, 0, 0
    for number in range(KINDS):
        kind = load(files, f"t.M{number}")
        sign = signing(kind)
        evaluator = Evaluator(files, kind.name)
        told: dict[Signature, object] = {}
        for _ in range(MESSAGES if sign is not None else 0):
            sent = fill(draw, kind.message_class()).SerializeToString()
            found = evaluator.violations(sent)
            broken += bool(found)
            try:
                signature = sign(kind.message_class.FromString(sent)) if sign is not None else None
            except ValueError:
                continue
            if signature is None:
                continue
            assert any(signature) == bool(found), (kind.name, sent, signature, found)
            if found:
                signed += 1
                known += signature in told
                assert told.setdefault(signature, found) == found, (kind.name, sent, signature)
    assert signed > 0.3 * broken, "of hardly any bad message it is known what is wrong with it"
    assert known > 0.5 * signed, "hardly one of them is like another"
