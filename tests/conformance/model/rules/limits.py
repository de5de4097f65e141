"""Jobs of a key run together up to a limit, which is declared, set and taken away."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.conformance.model.program import SECOND, queue
from tests.conformance.model.rules.producers import Producers

_NAMES = ("hosts", "tenants")
name_of_limit = st.sampled_from(_NAMES)
key_of_limit = st.sampled_from(["", "a", "b"])
most = st.integers(1, 3)


class Limits(Producers):
    @rule(
        name=queue,
        limit=name_of_limit,
        key=key_of_limit,
        count=st.integers(1, 4),
        priority=st.integers(-1, 1),
        delay=st.sampled_from([None, None, None, 5 * SECOND]),
    )
    def enqueue_jobs_of_a_key(
        self, name: str, limit: str, key: str, count: int, priority: int, delay: object
    ) -> None:
        fields = {"limit_name": limit, "limit_key": key, "priority": priority, "delay": delay}
        self.put_in([self.new_request(name, **fields) for _ in range(count)])

    @rule(name=queue, limit=name_of_limit, at_most=most)
    def deploy_limit(self, name: str, limit: str, at_most: int) -> None:
        self.do("config.ensure_limits", name, {limit: at_most})

    @rule(name=queue, limit=name_of_limit, at_most=most)
    def set_limit(self, name: str, limit: str, at_most: int) -> None:
        self.do("config.set_limit", name, limit, at_most)

    @rule(name=queue, limit=name_of_limit)
    def delete_limit(self, name: str, limit: str) -> None:
        self.do("config.delete_limit", name, limit)

    @rule()
    def look_at_limits(self) -> None:
        self.do("config.limits")
