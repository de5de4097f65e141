"""Keys of limits with shares take turns, in a queue of their own.

The order of the keys is compared where the contract gives one: each call has a time of its own, and
takes one job. Elsewhere a claim takes all that is due.
"""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId, WorkerId
from forge_jobs.model.jobs import Claim, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MAX_WORKERS_LIMIT
from forge_jobs.model.transitions import Demand
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import COMMON, KINDS, SECOND, SHARED
from tests.conformance.model.rules.lives import Lives

_INSTANT = timedelta(microseconds=1)
_NAMES = ("even", "heavy")
name_of_limit = st.sampled_from(_NAMES)
share = st.integers(1, 3)
most = st.sampled_from([1, 2, MAX_WORKERS_LIMIT])
tenant = st.tuples(name_of_limit, st.integers(1, 5))
deed = st.sampled_from(["claim", "claim", "oldest", "newest", "tenant", "more"])


class Shares(Lives):
    def take_of_keys(self, lease: PodLease, limit: int) -> list[Claim]:
        """Claim with workers of one name: which of them takes which job is left open."""
        workers = (WorkerId("w"),) * limit
        asked = Demand(worker_ids=workers, limit=limit, kinds=frozenset(KINDS))
        return self._hold(self.do("jobs.exchange", SHARED, [], asked, lease).claimed)

    def pod_of_keys(self) -> PodLease:
        return self._admit(HostId(self.new_id()), (SHARED,), KINDS)

    @rule(even=most, heavy=most, of_even=st.none() | share, of_heavy=st.none() | share)
    def deploy_shares(
        self, even: int, heavy: int, of_even: int | None, of_heavy: int | None
    ) -> None:
        given = {"even": of_even, "heavy": of_heavy}
        shares = {name: number for name, number in given.items() if number is not None}
        self.do("config.ensure_limits", SHARED, {"even": even, "heavy": heavy}, shares)

    @rule(name=name_of_limit, at_most=most, of=st.none() | share)
    def set_share(self, name: str, at_most: int, of: int | None) -> None:
        self.do("config.set_limit", SHARED, name, at_most, of)

    @rule(name=name_of_limit)
    def delete_shares(self, name: str) -> None:
        self.do("config.delete_limit", SHARED, name)

    @rule(
        name=st.sampled_from(["", *_NAMES]),
        key=st.sampled_from(["a", "b"]),
        count=st.integers(1, 4),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([None, None, None, 5 * SECOND]),
    )
    def enqueue_of_a_key(
        self, name: str, key: str, count: int, priority: int, delay: object
    ) -> None:
        fields = {"limit_name": name, "limit_key": key if name else "", "priority": priority}
        requests = [self.new_request(SHARED, **fields, delay=delay) for _ in range(count)]
        self.put_in(requests)

    @rule(how=st.sampled_from(["", *sorted(ENDINGS)]))
    def claim_of_all_keys(self, how: str) -> None:
        """Expect all that is due, as many of each key as may run."""
        if SHARED in self.world.queues:
            self.open(SHARED)
            claims = self.take_of_keys(self.pod_of_keys(), 100)
            if how:
                self.end(claims, ENDINGS[how])

    @rule(
        tenants=st.lists(tenant, min_size=2, max_size=4),
        shares=st.tuples(share, share),
        bounds=st.tuples(most, most),
        deeds=st.lists(deed, min_size=4, max_size=14),
    )
    def keys_take_turns(
        self,
        tenants: list[tuple[str, int]],
        shares: tuple[int, int],
        bounds: tuple[int, int],
        deeds: list[str],
    ) -> None:
        """Claim one job at a time, end some, and let further ones come.

        Keys that one claim has served have their turns at the same time, and no order.
        """
        for limit in zip(_NAMES, bounds, shares, strict=True):
            self.do("config.set_limit", SHARED, *limit)
        self.open(SHARED)
        self._clear_keys()
        lease = self.pod_of_keys()
        running: list[Claim] = []
        keys = [self._enqueue_tenant(*each) for each in tenants]
        for does in deeds:
            self.clock.advance(_INSTANT)
            if does in ("oldest", "newest"):
                if running:
                    self.end([running.pop(0 if does == "oldest" else -1)], ENDINGS["done"])
            elif does == "tenant":
                keys.append(self._enqueue_tenant("even", 1))
            elif does == "more":
                self._enqueue_tenant(*keys[0])
            else:
                running += self.take_of_keys(lease, 1)
        self.end(running, ENDINGS["done"])

    def _enqueue_tenant(self, name: str, count: int, key: str = "") -> tuple[str, int, str]:
        key = key or self.new_id()
        self.clock.advance(_INSTANT)
        fields: dict[str, Any] = {"limit_name": name, "limit_key": key, "kind": COMMON}
        self.put_in([self.new_request(SHARED, **fields) for _ in range(count)])
        return name, count, key

    def _clear_keys(self) -> None:
        """No job of the queue is left."""
        running = [job for job in self.world.of_queue(SHARED) if self._runs(job.status)]
        self.end([job.claim for job in running], ENDINGS["done"])
        self.do("jobs.delete", JobFilter(queues=(SHARED,)), limit=1_000)

    @staticmethod
    def _runs(status: JobStatus) -> bool:
        return status is JobStatus.IN_PROGRESS
