"""Generated protobuf messages of the chunk format. Edit the .proto, then generate again."""
