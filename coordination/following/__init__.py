"""A replica of a cluster that has its bucket alone: no log to ask, nothing to write."""

from coordination.following.archived import ArchivedLog, FollowOptions
from coordination.following.replica import FollowingReplica

__all__ = ["ArchivedLog", "FollowOptions", "FollowingReplica"]
