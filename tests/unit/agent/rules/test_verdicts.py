"""Which verdicts are remembered, and how many."""

from __future__ import annotations

from agent.rules import verdicts
from agent.rules.messages import Bad, Findings
from agent.rules.verdicts import VERDICT_CHARS_MAX, Verdicts
from schema.rules.ruled import Signed

ONE = ("month", "int32.gt", "must be greater than 0")


def signed(place: int, signature: tuple[bool, ...] = (True,)) -> Signed:
    return Signed(place, "value", b"digest", signature)


def found(*violations: tuple[str, str, str]) -> Findings:
    return Findings(bad=[Bad(0, "value", "why", violations)])


def test_who_obeys_is_not_remembered_for_the_library_alone_may_say_so() -> None:
    known = Verdicts()
    known.learn([signed(0)], Findings(records=1), 16)
    known.learn([signed(0)], found(), 16)
    assert known.findings([signed(0)], 10) is None


def test_a_record_that_may_break_more_than_was_told_is_not_remembered() -> None:
    known = Verdicts()
    known.learn([signed(0)], found(ONE, ONE), 2)
    assert known.findings([signed(0)], 10) is None
    known.learn([signed(0)], found(ONE), 2)
    assert known.findings([signed(0)], 10) is not None


def test_a_long_text_is_not_kept() -> None:
    known = Verdicts()
    known.learn([signed(0)], found(("f", "r", "t" * VERDICT_CHARS_MAX)), 16)
    assert len(known) == 0


def test_one_that_is_unknown_leaves_all_to_the_library() -> None:
    known = Verdicts()
    known.learn([signed(0)], found(ONE), 16)
    assert known.findings([signed(0), signed(1, (False,))], 10) is None


def test_the_oldest_goes_first() -> None:
    known = Verdicts()
    for each in range(verdicts.VERDICTS_MAX + 1):
        known.learn([signed(0, tuple(map(bool, map(int, f"{each:b}"))))], found(ONE), 16)
    assert len(known) == verdicts.VERDICTS_MAX
    assert known.findings([signed(0, (False,))], 10) is None
    assert known.findings([signed(0, (True,))], 10) is not None


def test_findings_are_in_the_records_order_whatever_their_roles() -> None:
    known = Verdicts()
    key = Signed(0, "key", b"digest", (True,))
    known.learn([key], Findings(bad=[Bad(0, "key", "why", [ONE])]), 16)
    known.learn([signed(0)], found(ONE), 16)
    told = known.findings([signed(1), signed(2), key._replace(place=1)], 10)
    assert told is not None
    assert [(each.index, each.role) for each in told.bad] == [(1, "value"), (1, "key"), (2, "value")]
    assert (told.bad_records, told.broken) == (2, {("value", "int32.gt"): 2, ("key", "int32.gt"): 1})
