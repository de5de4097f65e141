"""Callers enqueue in transactions of their own, and roll back."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

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
        self.roll_back(requests)
        self.look_at_jobs(everything=True)
        self.do("jobs.get", [each.id for each in requests])
        self.do("jobs.counts")
        self.put_in(requests)
        self.look_at_jobs(everything=True)
