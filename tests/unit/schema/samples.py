"""Messages that the tests and benches of schema/ and iceberg/ share."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from schema import descriptors
from schema.compiler import compile_protos
from schema.registry.known import imported_by

FLIGHTS = b"""
syntax = "proto3";
package nyc;
message Flight {
  int32 year = 1;
  int32 month = 2;
  int32 day = 3;
  optional int32 dep_time = 4;
  int32 sched_dep_time = 5;
  optional double dep_delay = 6;
  optional int32 arr_time = 7;
  int32 sched_arr_time = 8;
  optional double arr_delay = 9;
  string carrier = 10;
  int32 flight = 11;
  optional string tailnum = 12;
  string origin = 13;
  string dest = 14;
  optional double air_time = 15;
  double distance = 16;
  int32 hour = 17;
  int32 minute = 18;
  string time_hour = 19;
}
"""

ZOO = b"""
syntax = "proto3";
package zoo;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Colour { NONE = 0; RED = 1; BLUE = 2; }
message Leaf { string name = 1; repeated int64 numbers = 2; Colour colour = 3; }
message Node { string label = 1; Node left = 2; repeated Node others = 3; }
message All {
  double f_double = 1; float f_float = 2; int32 f_int32 = 3; int64 f_int64 = 4;
  uint32 f_uint32 = 5; uint64 f_uint64 = 6; sint32 f_sint32 = 7; sint64 f_sint64 = 8;
  fixed32 f_fixed32 = 9; fixed64 f_fixed64 = 10; sfixed32 f_sfixed32 = 11; sfixed64 f_sfixed64 = 12;
  bool f_bool = 13; string f_string = 14; bytes f_bytes = 15; Colour f_enum = 16;
  optional int32 o_int32 = 17; optional string o_string = 18; optional uint64 o_uint64 = 19;
  Leaf leaf = 20; repeated Leaf leaves = 21; map<string, Leaf> by_name = 22;
  map<int32, string> by_number = 23;
  map<string, Colour> colours_by_name = 24;
  repeated Colour colours = 25; repeated uint64 many_uint64 = 26; repeated string many_string = 27;
  oneof choice { int64 c_int64 = 28; string c_string = 29; Leaf c_leaf = 30; Colour c_enum = 31; }
  google.protobuf.Timestamp at = 32; google.protobuf.Duration took = 33;
  repeated google.protobuf.Timestamp times = 34; repeated google.protobuf.Duration spans = 35;
  google.protobuf.Int64Value w_int64 = 36; google.protobuf.UInt64Value w_uint64 = 37;
  google.protobuf.StringValue w_string = 38; google.protobuf.BoolValue w_bool = 39;
  google.protobuf.DoubleValue w_double = 40; google.protobuf.BytesValue w_bytes = 41;
  google.protobuf.UInt32Value w_uint32 = 42; repeated google.protobuf.StringValue w_strings = 43;
  Node tree = 44; google.protobuf.Any any = 45; google.protobuf.Empty nothing = 46;
  map<string, google.protobuf.Timestamp> times_by_name = 47;
}
"""

LEGACY = b"""
syntax = "proto2";
package legacy;
enum Size { SMALL = 1; LARGE = 2; }
message Part { required int32 code = 1; optional string note = 2; }
message Order {
  required int64 id = 1;
  optional Size size = 2;
  repeated Part parts = 3;
  repeated int32 packed_numbers = 4 [packed = true];
  extensions 100 to 200;
}
message Bag { repeated group Extra = 5 { optional fixed64 stamp = 1; } optional string label = 6; }
"""


RULED_FLIGHTS = (
    FLIGHTS.replace(b"package nyc;", b'package nyc;\nimport "buf/validate/validate.proto";')
    .replace(b"month = 2;", b"month = 2 [(buf.validate.field).int32 = { gte: 1, lte: 12 }];")
    .replace(b"origin = 13;", b"origin = 13 [(buf.validate.field).string.len = 3];")
    .replace(b"distance = 16;", b"distance = 16 [(buf.validate.field).double.gte = 0];")
    .replace(
        b"message Flight {",
        b"""message Flight {
  option (buf.validate.message).cel = {
    id: "flight.route", message: "origin and dest must differ", expression: "this.origin != this.dest"
  };""",
    )
)
"""Flights with three standard rules and one in CEL."""

COSTLY = b"""
syntax = "proto3";
package costly;
import "buf/validate/validate.proto";
message Costly {
  repeated int32 numbers = 1 [(buf.validate.field).repeated.items.cel = {
    id: "costly.all", message: "cannot be",
    expression: "[0,1,2,3,4,5,6,7,8,9].all(x, [0,1,2,3,4,5,6,7,8,9].all(y, "
      "[0,1,2,3,4,5,6,7,8,9].all(z, x + y + z >= 0)))"
  }];
}
"""
"""Each number costs a thousand steps, about 0.3 ms: CEL itself ends, a message has any number of numbers."""


def ruled(body: str, name: str = "t.M") -> descriptors.MessageType:
    """A message of package t with rules, in a file of its own."""
    head = 'syntax = "proto3"; package t; import "buf/validate/validate.proto";\n'
    return message_type((head + body).encode(), name)


@dataclass(frozen=True)
class Bound:
    """A schema as the replicated state holds it."""

    descriptor_set: bytes
    message: str
    schema_id: int = 1
    topic: str = "topic"
    role: int = 0
    framing: int = 0
    tombstones: bool = False
    subject: str = ""
    naming: int = 0


@functools.cache
def descriptor_set(source: bytes) -> bytes:
    """The compiled form of one source."""
    files = {"sample.proto": source}
    return compile_protos(files, imported_by(files))


def message_type(source: bytes, name: str) -> descriptors.MessageType:
    """A message of one source, ready to parse."""
    return descriptors.load(descriptor_set(source), name)


def bound(source: bytes, name: str, **fields: object) -> Bound:
    """A binding to a message of one source."""
    return Bound(descriptor_set(source), name, **fields)  # type: ignore[arg-type]  # the dataclass refuses unknown names
