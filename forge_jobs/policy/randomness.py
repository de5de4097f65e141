"""Where decisions get their randomness from: always from the caller."""

import random
from collections.abc import Callable

Randomness = random.Random | Callable[[], float]
"""A generator, or a callable that returns numbers from 0 to below 1."""


def draw(randomness: Randomness) -> float:
    """A number from 0 to below 1."""
    if isinstance(randomness, random.Random):
        return randomness.random()
    return randomness()
