"""Callers enqueue in transactions of their own, and roll back."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.jobs import NewJob
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import queue
from tests.conformance.model.rules.unique_keys import UniqueKeys, content, key, mode, window


class Callers(UniqueKeys):
    @rule(name=queue, key=key, modes=st.lists(mode, min_size=1, max_size=3), w=window, one=content)
    def enqueue_and_roll_back(
        self, name: str, key: str, modes: list[str], w: timedelta, one: dict[str, Any]
    ) -> None:
        """Expect nothing of a call that was rolled back: no job, no content, no key, no window.

        Stores without callers' transactions do nothing here.
        """
        self._known(name)
        requests = [self.keyed(name, key, each, w, **one) for each in modes]
        requests.append(self.new_request(name, **one))
        self.roll_back("jobs.enqueue", requests)
        self.look_at_jobs(everything=True)
        self.do("jobs.get", [each.id for each in requests])
        self.do("jobs.counts")
        self.put_in(requests)
        self.look_at_jobs(everything=True)

    @rule(
        name=queue,
        how=st.sampled_from(["done", "dead"]),
        modes=st.lists(mode, min_size=1, max_size=3),
        w=window,
        one=content,
    )
    def enqueue_and_commit(
        self, name: str, how: str, modes: list[str], w: timedelta, one: dict[str, Any]
    ) -> None:
        """Meet, in callers' transactions, a waiting holder, a running one and a former follow-up.

        Then one that has expired, which a request that is dropped ends.
        """
        self.open(self._known(name))
        key, soon = self.new_id(), self.clock.now() + w
        self._commit([self.keyed(name, key, "keep-last", priority=-3, expires_at=soon)])
        self._commit([self.keyed(name, key, each, w, **one) for each in modes])
        claims = self.take(name, self.new_pod(), 1, 1)
        self._commit([self.keyed(name, key, "keep-last", payload='{"f": 1}')])
        self.end(claims, ENDINGS[how])
        self.read_and_deliver("settle")
        for each in ("keep", *modes):
            self._commit([self.keyed(name, key, each, w, **one), self.new_request(name)])
        self.look_at_jobs()
        other = self.new_id()
        self.put_in([self.keyed(name, other, "cooldown", w * 2, expires_at=soon)])
        self.clock.advance(w)
        self._commit([self.keyed(name, other, "cooldown", w * 2)])
        self.look_at_jobs()

    def _commit(self, requests: list[NewJob]) -> None:
        self.do_in_transaction("jobs.enqueue", requests)
        self.requests += [request for request in requests if request not in self.requests]
