"""Noise as machines make it: with a memory, with stalls, with a drift. Every stream is a function of its seed."""

from __future__ import annotations

import math
import random

from flatout.measure.statistics import Pair

A_FIRST = (True, False, False, True)  # A B, B A, B A, A B: the order A B B A, B A A B


class Noise:
    """Log noise of successive segments: AR(1), now and then a stall, and a straight drift."""

    def __init__(self, seed, sigma=0.01, memory=0.5, stalls=0.03, drift=0.0, fall_at=None, tails=4):
        self.draw = random.Random(seed)
        self.sigma, self.memory, self.stalls, self.drift, self.fall_at, self.tails = (
            sigma,
            memory,
            stalls,
            drift,
            fall_at,
            tails,
        )
        self.last = self.draw.gauss(0, sigma)
        self.count = 0

    def __call__(self):
        # Student's t with few degrees of freedom, scaled to sigma.
        chi = sum(self.draw.gauss(0, 1) ** 2 for _ in range(self.tails)) / self.tails
        shock = self.draw.gauss(0, 1) / math.sqrt(chi) * math.sqrt((self.tails - 2) / self.tails)
        self.last = self.memory * self.last + math.sqrt(1 - self.memory**2) * self.sigma * shock
        stall = -abs(self.draw.gauss(0, 5 * self.sigma)) if self.draw.random() < self.stalls else 0.0
        fallen = -0.15 if self.fall_at is not None and self.count >= self.fall_at else 0.0
        value = self.last + stall + self.drift * self.count + fallen
        self.count += 1
        return value


def pairs_of(noise, ratio, count):
    made = []
    for index in range(count):
        a_first = A_FIRST[index % 4]
        first, second = math.exp(noise()), math.exp(noise())
        a, b = (first, second) if a_first else (second, first)
        made.append(Pair(1000 * a, 1000 * ratio * b, a_first))
    return made
