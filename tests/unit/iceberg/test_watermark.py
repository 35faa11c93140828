"""Watermarks: their text, their order, what lies between two."""

from __future__ import annotations

import pytest

from iceberg.spark.watermark import JobError, NotSoFar, OtherTopic, Watermark

ID, OTHER = "0" * 32, "1" * 32


def test_text_and_back() -> None:
    for offsets in ((), (0,), (3, 0, 1 << 60)):
        assert Watermark.parse(str(Watermark(ID, offsets))) == Watermark(ID, offsets)
    for text in ("", ID, f"{ID}:-1", f"{ID}:1,", f"{ID}:1.5", "abc:1", f"{ID.replace('0', 'g')}:1"):
        with pytest.raises(JobError, match="watermark"):
            Watermark.parse(text)


def test_what_lies_between_two() -> None:
    since = Watermark(ID, (3, 5))
    assert list(since.ranges(Watermark(ID, (3, 7, 2)))) == [(1, 5, 7), (2, 0, 2)]
    assert list(since.ranges(Watermark(ID, (1,)))) == []
    assert Watermark(ID, (9, 6, 9)).limited(since, 2) == Watermark(ID, (5, 6, 2))
    assert since.raised((4, 1, 2)) == Watermark(ID, (4, 5, 2))


def test_a_watermark_is_one_of_its_topic_and_not_beyond_it() -> None:
    Watermark(ID, (3,)).check("c.n.t", "t", Watermark(ID, (3, 1)))
    Watermark(ID, (3, 0)).check("c.n.t", "t", Watermark(ID, (3,)))
    with pytest.raises(OtherTopic, match=rf"c\.n\.t is that of topic 't' with id {ID}"):
        Watermark(OTHER).check("c.n.t", "t", Watermark(ID))
    with pytest.raises(NotSoFar, match=r"partition 1 of table c\.n\.t goes up to offset 0"):
        Watermark(ID, (3, 1)).check("c.n.t", "t", Watermark(ID, (3,)))
