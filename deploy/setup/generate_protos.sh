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
protoc coordination/etcd/proto/kv.proto coordination/etcd/proto/rpc.proto
protoc schema/proto/quarantine.proto
protoc schema/proto/audit.proto
protoc schema/proto/understood.proto
