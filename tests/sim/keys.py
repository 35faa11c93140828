"""The keys that are written: a few at a time, some much hotter than others, retired after so many writes.

A key is one topic-partition. One that is retired makes room for a new one, which an administrator has made
meanwhile (clerk.py): a topic, or more partitions of one, while everything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from aiokafka import TopicPartition

HEAT = 1.5
"""Of the exponential distribution over the places of living keys, in places."""
UNSEEN_OF = 1 / 3
"""How many new assignments may include keys of any age, with writes that nobody has seen."""


class Keys:
    """`live`: those that are written; `every`: all that there ever were, in the order in which they came."""

    def __init__(self, first: Iterable[TopicPartition], live_max: int, writes_max: int) -> None:
        self.live = list(first)
        self.every = list(self.live)
        self.retired = 0
        self._live_max = live_max
        self._writes_max = writes_max
        self._writes: Counter[TopicPartition] = Counter()
        self._worn: list[TopicPartition] = []

    @property
    def topics(self) -> list[str]:
        """Of every key, sorted."""
        return sorted({key.topic for key in self.every})

    @property
    def wanted(self) -> int:
        """How many new ones there is room for."""
        return max(0, self._live_max - len(self.live)) + len(self._worn)

    def written(self, random: Random) -> TopicPartition:
        """A key to write to now; the first places are the hottest."""
        key = self.live[int(random.expovariate(HEAT / len(self.live))) % len(self.live)]
        self._writes[key] += 1
        if self._writes_max and self._writes[key] == self._writes_max:
            self._worn.append(key)
        return key

    def add(self, made: Iterable[TopicPartition]) -> None:
        """New keys: each takes the place of a worn one, or is one more."""
        for key in made:
            self.every.append(key)
            if len(self.live) < self._live_max or not self._worn:
                self.live.append(key)
            else:
                self.live[self.live.index(self._worn.pop(0))] = key
                self.retired += 1

    def some(self, random: Random, most: int) -> list[TopicPartition]:
        """Up to `most` keys to read, sorted: living ones, and at times those of any age among them."""
        known = self.every if random.random() < UNSEEN_OF else self.live
        return sorted(random.sample(known, random.randint(1, min(most, len(known)))))
