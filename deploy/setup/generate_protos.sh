#!/bin/sh
# Generates every protobuf module that is committed next to its .proto. Run from anywhere after `make setup`.
set -eu
cd "$(dirname "$0")/../.."
protoc() {
    .venv/bin/python -m grpc_tools.protoc -I. --plugin=protoc-gen-mypy=.venv/bin/protoc-gen-mypy \
        --python_out=. --mypy_out=quiet:. "$@"
}
protoc coordination/proto/log.proto coordination/proto/snapshot.proto
protoc objectstore/proto/chunk.proto objectstore/proto/segment.proto
protoc coordination/etcd/proto/kv.proto
protoc --plugin=protoc-gen-mypy_grpc=.venv/bin/protoc-gen-mypy_grpc --grpc_python_out=. --mypy_grpc_out=quiet:. \
    coordination/etcd/proto/rpc.proto
