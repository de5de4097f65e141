"""Jobs come in: alone, in batches, twice, under one key, after others."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, NewJob, Unique
from tests.conformance.model.program import (
    COMMON,
    ODD_KIND,
    RARE,
    SECOND,
    Program,
    few,
    index,
    queue,
)

_PAYLOADS = ("{}", '{"a": [1,  2.50]}', '{"b": "\\u00e9 é 𝄞 \\\\ \'"}', '{"n": 12345678901234567}')
_MANY_TIMES_NONE: list[Any] = [None, None, None]

options = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([COMMON, COMMON, COMMON, RARE, ODD_KIND]),
        "payload": st.sampled_from(_PAYLOADS),
        "priority": st.integers(-1, 1),
        "delay": st.sampled_from([*_MANY_TIMES_NONE, 5 * SECOND]),
        "tags": st.sampled_from([(), ("a",), ('a"b', "é")]),
        "result_ttl": st.sampled_from([*_MANY_TIMES_NONE, 10 * SECOND]),
        "max_attempts": st.sampled_from([5, None]),
        "fingerprint": st.sampled_from(["", "f"]),
    }
)
key = st.sampled_from([*_MANY_TIMES_NONE, "a", "b"])
on_failure = st.sampled_from(["cancel", "continue", "hold", "note"])


class Producers(Program):
    def new_request(self, name: str, **fields: Any) -> NewJob:
        base = {"id": JobId(self.new_id()), "queue": name, "kind": COMMON, "payload": "{}"}
        return NewJob(**(base | fields))

    def put_in(self, requests: list[NewJob]) -> Any:
        answer = self.do("jobs.enqueue", requests)
        self.requests += [request for request in requests if request not in self.requests]
        return answer

    def stock(self, name: str) -> None:
        """Something to claim, or a rare order would be tried on nothing."""
        self.put_in([self.new_request(name, priority=-1)])
        self.open(name)

    def open(self, name: str) -> None:
        """Neither a pause nor a cool-down keeps the queue's jobs back."""
        queue = self.world.queues[name]
        if queue.paused_since:
            self.do("config.set_paused", name, False)
        if queue.cooldown_until and queue.cooldown_until > self.clock.now():
            self.do("config.clear_cooldown", name)

    @rule(
        name=queue,
        keys=st.lists(key, min_size=1, max_size=3),
        fields=options,
        expires_in=st.sampled_from([*_MANY_TIMES_NONE, 20 * SECOND]),
    )
    def enqueue(
        self,
        name: str,
        keys: list[str | None],
        fields: dict[str, Any],
        expires_in: timedelta | None,
    ) -> None:
        expires_at = self.clock.now() + expires_in if expires_in else None
        self.put_in(
            [
                self.new_request(
                    name, **fields, expires_at=expires_at, unique=Unique(key) if key else None
                )
                for key in keys
            ]
        )

    @rule(name=queue, due_in=st.integers(-5, 5))
    def enqueue_for_a_time(self, name: str, due_in: int) -> None:
        self.put_in([self.new_request(name, run_at=self.clock.now() + due_in * SECOND)])

    @rule(first=queue, second=queue)
    def enqueue_to_both_queues_or_fail(self, first: str, second: str) -> None:
        """Expect that the first is stored only when no job holds the key of the second."""
        insisting = Unique("a", "error")
        self.put_in([self.new_request(first), self.new_request(second, unique=insisting)])

    @precondition(lambda self: self.requests)
    @rule(which=few)
    def enqueue_again(self, which: list[int]) -> None:
        """Repeat an enqueue: the reply was lost, or the job was deleted since and is new."""
        again = [self.pick(self.requests, number) for number in which]
        self.put_in([each for each in again if not each.after and not self._is_gone(each)])

    def _is_gone(self, request: NewJob) -> bool:
        """Return whether a job of a sequence was removed. Others may still wait for the end."""
        return request.sequence is not None and request.id not in self.world.jobs

    @precondition(lambda self: self.requests)
    @rule(which=index)
    def enqueue_other_content_under_an_id(self, which: int) -> None:
        known = self.pick(self.requests, which)
        if known.id in self.world.jobs:
            other = NewJob(id=known.id, queue=known.queue, kind="tests.other", payload="{}")
            self.do("jobs.enqueue", [other])

    @precondition(lambda self: self.requests)
    @rule(name=queue, parents=few, fails=on_failure, fields=options, key=key)
    def enqueue_after(
        self, name: str, parents: list[int], fails: Any, fields: dict[str, Any], key: str | None
    ) -> None:
        """Enqueue a child of known jobs and of a new one in the same call, in either queue."""
        with_it = self.new_request("q", unique=Unique(key) if key else None)
        known = {self.pick(self.requests, number).id for number in parents}
        alone = self.world.jobs.keys() - self.world.members.keys()
        after = [After(each, fails) for each in sorted(known & alone)]
        child = self.new_request(name, **fields, after=(After(with_it.id, fails), *after))
        self.put_in([with_it, child])

    @precondition(lambda self: self.requests)
    @rule(which=index, parents=few, fails=on_failure)
    def await_also(self, which: int, parents: list[int], fails: Any) -> None:
        """Let a job wait for further ones, which wait for none themselves: there is no circle.

        One of a sequence may come to wait later.
        """
        child = self.pick(self.requests, which).id
        found = {self.pick(self.requests, number).id for number in parents} - {child}
        jobs = self.world.jobs
        found -= self.world.members.keys()
        free = [each for each in sorted(found) if each not in jobs or not jobs[each].edges]
        self.do("jobs.await_also", child, [After(each, fails) for each in free])

    @rule(name=queue)
    def enqueue_after_nobody(self, name: str) -> None:
        stranger = After(JobId(self.new_id()))
        self.do("jobs.enqueue", [self.new_request(name, after=(stranger,))])
