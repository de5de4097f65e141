"""Sequences under random calls, one after the other."""

from typing import Literal

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.line_walks import LineWalk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("policy", ["wait", "skip", "stop"])
async def test_no_order_of_calls_frees_two_jobs_of_a_key(
    storage: Storage, policy: Literal["wait", "skip", "stop"]
) -> None:
    for seed in range(18, 22):
        await LineWalk(storage, policy, seed, most=6 + 6 * (seed % 2)).run()


@pytest.mark.parametrize("policy", ["wait", "skip", "stop"])
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.long)])
async def test_no_order_of_calls_with_named_parents_frees_two_jobs_or_makes_a_circle(
    storage: Storage, policy: Literal["wait", "skip", "stop"], seeds: range
) -> None:
    for seed in seeds:
        await LineWalk(storage, policy, seed, most=6, names=True).run()
