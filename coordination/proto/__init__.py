"""Generated protobuf messages of the log and of snapshots. Edit the .proto, then generate again."""
