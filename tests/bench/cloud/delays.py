"""How long an object store takes: log-normal by its median and 99th percentile, and a rare long tail.

What S3 Standard's and S3 Express' users report of small objects. A log-normal body fits both ends that are
published; the tail is what no body of that shape has: one request in ten thousand takes more than a second.
Delays are drawn by a seed and in the order of the requests: plans that are compared meet the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

TAIL_SHARE = 1e-4
TAIL_S_MIN = 1.0
TAIL_S_MEAN_ABOVE = 0.5  # of the exponential beyond it
_Z99 = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class Delay:
    """Of one kind of request, seconds until the first byte of its answer; `tail_share` of them take long."""

    p50_s: float
    p99_s: float
    tail_share: float = TAIL_SHARE

    def drawn(self, random: Random) -> float:
        """One request's; always three numbers of `random`, so that streams of draws stay in step."""
        tail, beyond, body = random.random(), random.random(), random.random()
        if tail < self.tail_share:
            return TAIL_S_MIN - TAIL_S_MEAN_ABOVE * math.log(1.0 - beyond)
        sigma = math.log(self.p99_s / self.p50_s) / _Z99
        return self.p50_s * math.exp(sigma * NormalDist().inv_cdf(min(max(body, 1e-12), 1 - 1e-12)))


@dataclass(frozen=True, slots=True)
class Profile:
    """A store: what it takes to write (PUT, POST, DELETE) and to read (GET, HEAD)."""

    write: Delay
    read: Delay

    def of(self, method: str) -> Delay:
        """By the request's HTTP method."""
        return self.read if method in ("GET", "HEAD") else self.write


STANDARD = Profile(write=Delay(0.030, 0.200), read=Delay(0.020, 0.120))
EXPRESS = Profile(write=Delay(0.005, 0.015), read=Delay(0.005, 0.015))
PROFILES = {"standard": STANDARD, "express": EXPRESS}


def draws(delay: Delay, seed: int) -> Iterator[float]:
    """The delays of one request after the other, for ever."""
    random = Random(seed)
    while True:
        yield delay.drawn(random)
