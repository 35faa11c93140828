"""What a new message would do to the columns of a table is said before it is done."""

from iceberg.compatibility import NAMED_MAX, changes
from schema.compiler import compile_protos


def source(text: str) -> bytes:
    return compile_protos({"m.proto": f'syntax = "proto3"; package p; {text}'.encode()})


def told(*texts: str, message: str = "p.M") -> list[str]:
    """What the last of these does to the columns of the ones before it."""
    *earlier, last = [source(text) for text in texts]
    return changes([(each, "p.M") for each in earlier], last, message, key=False)


def test_what_keeps_its_column_is_no_change() -> None:
    assert told("message M { int32 a = 1; string b = 2; }", "message M { int64 b = 1; string a = 2; }") == []
    assert told("message M { int32 a = 1; }", "message M { string x = 2; }") == []
    assert told("message M { int32 a = 1; }", "message M { string b = 1; }") == [], "no name is lost"


def test_a_column_that_loses_its_name_is_told() -> None:
    assert told("message M { int32 a = 1; }", "message M { repeated string a = 1; }") == [
        "column `a` (int) would be called `a__15`, and `a` be a new column (list<string>)"
    ]
    assert told("message M { int32 a = 1; }", "message M { int32 a = 2; }") == [
        "column `a` (int) would be called `a__15`, and `a` be a new column (int)"
    ], "another number is another field"
    inner = "message I { map<string, int32> m = 1; } message M { repeated I i = 1; }"
    assert told(inner, inner.replace("<string", "<int64")) == [
        "column `i.m` (map<string, int>) would be called `i.m__17`, "
        "and `i.m` be a new column (map<long, int>)"
    ]


def test_another_message_is_told_where_it_takes_a_name() -> None:
    text = "message M { int32 a = 1; } message N { string b = 1; } message O { string a = 3; }"
    assert told(text, text, message="p.N") == [], "its columns are its own"
    assert told(text, text, message="p.O") == [
        "column `a` (int) would be called `a__15`, and `a` be a new column (string)"
    ]


def test_going_back_is_a_change_of_names_too() -> None:
    first, second = "message M { int32 a = 1; }", "message M { string a = 1; }"
    assert told(first, second, first) == [
        "column `a` (string) would be called `a__16`, and `a` be what is `a__15` now (int)"
    ]


def test_many_changes_are_told_in_short() -> None:
    numbers = range(1, NAMED_MAX + 6)
    first = f"message M {{ {' '.join(f'int32 f{n} = {n};' for n in numbers)} }}"
    found = told(first, first.replace("int32", "string"))
    assert len(found) == NAMED_MAX + 1
    assert found[-1] == "and 5 more"
