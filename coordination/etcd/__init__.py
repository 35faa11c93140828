"""The log on etcd. Importing it sets gRPC's fork handlers aside."""

import os

# gRPC's handlers take down its threads around fork(), and now and then the child with them (SIGABRT or
# SIGSEGV in 2 of 100 forks measured) although it goes straight on to exec: Spark's gateway starts so. No
# process of Floe forks and goes on using gRPC. gRPC reads the variable when the first channel is made.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
