"""What is left of messages whose fields are marked: by options of protobuf, of Floe and of Confluent."""

from __future__ import annotations

import functools
import hashlib
import hmac
from typing import Any

import pytest
from google.protobuf import message_factory

from schema import descriptors
from schema.compiler import compile_protos
from schema.redaction.marks import Action, Marks, Unreadable
from schema.redaction.messages import redactor
from schema.registry import known

SOURCE = b"""
syntax = "proto3";
package t;
import "floe/redact.proto";
import "confluent/meta.proto";
message Person {
  string name = 1 [debug_redact = true];
  string mail = 2 [(floe.redact) = HASH];
  bytes token = 3 [(floe.redact) = HASH];
  int64 salary = 4 [(floe.redact) = HASH];
  string phone = 5 [(floe.redact) = MASK];
  repeated string phones = 6 [(floe.redact) = MASK];
  string born = 7 [(confluent.field_meta) = {tags: ["PII", "DATE"]}];
  map<string, string> notes = 8 [debug_redact = true];
  optional int32 age = 9 [debug_redact = true];
  oneof how { string card = 10 [debug_redact = true]; string cash = 11; }
  Address home = 12;
  repeated Address homes = 13;
  map<string, Address> by_name = 14;
  Person boss = 15;
  Address hidden = 16 [debug_redact = true];
  string id = 17;
  Kind kind = 18 [(floe.redact) = MASK];
  Plain plain = 19;
}
enum Kind { NONE = 0; SOME = 1; }
message Address { string street = 1 [debug_redact = true]; string town = 2; Person owner = 3; }
message Plain { string text = 1; Plain more = 2; }
message Outer { Middle middle = 1; int32 n = 2; }
message Middle { repeated Address addresses = 1; }
"""
OLD = b"""
syntax = "proto2";
package old;
import "google/protobuf/descriptor.proto";
message Inner { required string text = 1 [debug_redact = true]; optional int32 n = 2; }
message Order {
  required string who = 1 [debug_redact = true];
  required Inner inner = 2 [debug_redact = true];
  optional Inner kept = 3;
  extensions 100 to 200;
}
extend Order { optional string extra = 100 [debug_redact = true]; optional Inner more = 101; }
"""
KEY = b"of hashes"


@functools.cache
def kind(message: str) -> descriptors.MessageType:
    texts = {name: (known._FOLDER / place).read_bytes() for name, place in known._PLACES.items()}
    return descriptors.load(compile_protos({"t.proto": SOURCE, "old.proto": OLD, **texts}), message)


def left(message: Any, action: Action = Action.REMOVE, tags: str = "PII", key: bytes = KEY) -> Any:
    """What is left of a message."""
    found = redactor(kind(message.DESCRIPTOR.full_name), Marks(action, frozenset(tags.split(","))), key)
    assert found is not None
    return type(message).FromString(found.redacted(message.SerializePartialToString()))


def new(message: str, **fields: Any) -> Any:
    """A message of SOURCE or OLD; all of one pool, so that one may hold another."""
    pool = kind("t.Person").descriptor.file.pool
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))(**fields)


def person(**fields: Any) -> Any:
    return new("t.Person", **fields)


def hashed(content: bytes) -> str:
    return hmac.new(KEY, content, hashlib.sha256).hexdigest()[:32]


def test_a_field_is_what_its_option_says_or_what_the_topic_does() -> None:
    given = person(
        name="Ada", mail="a@b", token=b"\x00t", salary=9, phone="1", phones=["2", ""], born="1815", age=0,
        id="7", notes={"a": "b"}, kind=1,
    )  # fmt: skip
    own = {"mail": hashed(b"a@b"), "token": bytes.fromhex(hashed(b"\x00t")), "phone": "****"}
    assert left(given) == person(**own, phones=["****", "****"], id="7")
    assert left(given, Action.MASK) == person(**own, phones=["****"] * 2, id="7", name="****", born="****")
    assert left(given, Action.HASH) == person(
        **own, phones=["****"] * 2, id="7", name=hashed(b"Ada"), born=hashed(b"1815")
    )
    assert left(given, tags="OTHER").born == "1815"


def test_what_is_not_there_stays_away() -> None:
    """Nobody learns from a mask that there was nothing, nor the other way round; presence stays."""
    assert left(person(), Action.MASK) == person()
    assert left(person(age=0), Action.MASK) == person()
    assert left(person(card=""), Action.MASK) == person(card="****")
    assert left(person(card="4")) == person()
    assert left(person(cash="5")) == person(cash="5")


def test_without_a_key_hashes_are_removed() -> None:
    """Whoever knows what may stand there could make the same hashes."""
    assert left(person(mail="a@b", id="1"), key=b"") == person(id="1")
    assert left(person(name="Ada", id="1"), Action.HASH, key=b"") == person(id="1")


def test_fields_of_fields_at_any_depth() -> None:
    address = new("t.Address", street="s", town="u", owner=person(name="n", id="o"))
    clean = new("t.Address", town="u", owner=person(id="o"))
    given = person(
        home=address,
        homes=[address, address],
        by_name={"k": address},
        boss=person(home=address),
        hidden=address,
    )
    assert left(given) == person(
        home=clean, homes=[clean, clean], by_name={"k": clean}, boss=person(home=clean)
    )


def test_marks_below_types_that_have_none_of_their_own() -> None:
    given = new("t.Outer", middle=new("t.Middle", addresses=[new("t.Address", street="s", town="u")]), n=3)
    clean = new("t.Outer", middle=new("t.Middle", addresses=[new("t.Address", town="u")]), n=3)
    assert left(given) == clean


def test_types_in_which_nothing_is_marked_are_left_alone() -> None:
    assert redactor(kind("t.Plain"), Marks(Action.REMOVE), KEY) is None
    plain = new("t.Plain", text="x")
    assert left(person(plain=plain)).plain == plain


def test_required_fields_are_there_and_say_nothing() -> None:
    inner = new("old.Inner", text="t", n=3)
    made = left(new("old.Order", who="w", inner=inner, kept=inner))
    assert (made.who, made.HasField("who"), made.HasField("inner"), made.inner.HasField("n")) == (
        "",
        True,
        True,
        False,
    )
    assert (made.kept.text, made.kept.HasField("text"), made.kept.n) == ("", True, 3)
    assert left(new("old.Order", who="w", inner=inner), Action.MASK).who == "****"


def test_extensions_and_unknown_fields_go() -> None:
    order = kind("old.Order")
    pool = kind("t.Person").descriptor.file.pool
    given = new("old.Order", who="w", inner=new("old.Inner", text="t"))
    given.Extensions[pool.FindExtensionByName("old.extra")] = "secret"
    given.Extensions[pool.FindExtensionByName("old.more")].text = "secret"
    assert b"secret" not in left(given).SerializePartialToString()
    found = redactor(order, Marks(Action.REMOVE), KEY)
    assert found is not None
    newer = given.SerializeToString() + b"\xfa\x03\x06secret"  # field 63, which this schema does not have
    assert b"secret" not in found.redacted(newer)


def test_bytes_that_are_no_message_are_told() -> None:
    found = redactor(kind("t.Person"), Marks(Action.REMOVE), KEY)
    assert found is not None
    with pytest.raises(Unreadable, match=r"no t\.Person"):
        found.redacted(b"\x0a\xff")
