"""The compiler of `.proto` sources and the descriptor sets it makes."""

import pytest

from schema import descriptors
from schema.compiler import FILES_MAX, CompileError, compile_protos
from schema.descriptors import DescriptorError
from tests.unit.schema import samples


def test_a_set_holds_its_imports_and_can_be_loaded() -> None:
    compiled = compile_protos(
        {
            "shop/order.proto": b'syntax = "proto3"; package shop; import "shop/item.proto";'
            b' import "google/protobuf/timestamp.proto";'
            b" message Order { Item item = 1; google.protobuf.Timestamp at = 2; message Line { } }",
            "shop/item.proto": b'syntax = "proto3"; package shop; message Item { string name = 1; }',
        }
    )
    assert descriptors.message_names(compiled) == [
        "shop.Item",
        "google.protobuf.Timestamp",
        "shop.Order",
        "shop.Order.Line",
    ]
    order = descriptors.load(compiled, "shop.Order")
    assert (order.indexes, order.has_submessages, order.has_required) == ((0,), True, False)
    assert descriptors.load(compiled, "shop.Order.Line").indexes == (0, 0)


def test_an_error_names_file_line_and_reason() -> None:
    with pytest.raises(CompileError) as caught:
        compile_protos({"a/b.proto": b'syntax = "proto3";\nmessage M {\n  int33 x = 1;\n}\n'})
    problem = caught.value.problems[0]
    assert (problem.file, problem.line, problem.column) == ("a/b.proto", 3, 3)
    assert problem.reason == '"int33" is not defined.'
    assert str(caught.value).startswith("a/b.proto:3:3: ")


def test_a_missing_import_is_named() -> None:
    with pytest.raises(CompileError, match=r"x\.proto:2:1: Import \"y\.proto\" was not found"):
        compile_protos({"x.proto": b'syntax = "proto3";\nimport "y.proto";'})


@pytest.mark.parametrize(
    "name", ["/etc/a.proto", "../a.proto", "a.txt", "-I.proto", "a//b.proto", "a\\b.proto"]
)
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(CompileError, match="relative import path"):
        compile_protos({name: b""})


def test_limits_are_named() -> None:
    with pytest.raises(CompileError, match="the limit is 256"):
        compile_protos({f"{number}.proto": b"" for number in range(FILES_MAX + 1)})
    with pytest.raises(CompileError, match="no source file"):
        compile_protos({})


def test_a_set_that_is_no_set_is_refused() -> None:
    with pytest.raises(DescriptorError, match="not a serialized"):
        descriptors.load(b"\xff\xff", "a.B")
    with pytest.raises(DescriptorError, match="no file"):
        descriptors.load(b"", "a.B")
    with pytest.raises(DescriptorError, match="the limit is"):
        descriptors.load(bytes(descriptors.DESCRIPTOR_SET_BYTES_MAX + 1), "a.B")


def test_a_set_that_lacks_an_import_says_how_to_make_it_whole() -> None:
    from google.protobuf import descriptor_pb2

    whole = descriptor_pb2.FileDescriptorSet.FromString(samples.descriptor_set(samples.ZOO))
    partial = descriptor_pb2.FileDescriptorSet(file=[file for file in whole.file if file.package == "zoo"])
    with pytest.raises(DescriptorError, match=r"any\.proto.*--include_imports"):
        descriptors.load(partial.SerializeToString(), "zoo.All")


def test_an_unknown_message_gets_the_nearest_name() -> None:
    with pytest.raises(DescriptorError, match=r"did you mean 'nyc\.Flight'"):
        descriptors.load(samples.descriptor_set(samples.FLIGHTS), "nyc.Flights")
