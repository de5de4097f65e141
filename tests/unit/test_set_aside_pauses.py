"""Pauses before items that were set aside are sent again."""

from types import SimpleNamespace
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import StorageRefused
from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Claim
from forge_jobs.runtime.queue.outbox import Outbox


def test_pauses_grow_up_to_a_bound_that_a_lock_and_a_refusal_have_each() -> None:
    services: Any = SimpleNamespace(
        clock=ManualClock(), rng=SimpleNamespace(uniform=lambda low, high: high)
    )
    outbox = Outbox("default", services)
    aside, way = outbox.aside, outbox.releases
    for error in (None, StorageRefused("a trigger")):
        aside.take(way, [Claim("default", new_job_id(), 1, new_host_id())], error)
    pauses = []
    for _ in range(12):
        pauses.append([entry.due - services.clock.elapsed() for entry in aside._entries])
        for entry in aside._entries:
            aside._put_off(entry)
    locked, refused = zip(*pauses, strict=True)
    assert locked[:7] == pytest.approx((0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0))
    assert refused[8:] == pytest.approx((12.8, 25.6, 30.0, 30.0))
