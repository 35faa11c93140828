"""`make run` and `make run-cluster`: the main job on real data, from load to proof."""
