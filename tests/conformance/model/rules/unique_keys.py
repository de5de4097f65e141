"""Keys in all modes, through the life of a holder and the follow-up."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, NewJob, Unique
from forge_jobs.model.unique.keys import REPLACEMENT_KEPT
from tests.conformance.model.endings import ENDINGS
from tests.conformance.model.program import COMMON, RARE, SECOND, queue
from tests.conformance.model.rules.lives import Lives
from tests.conformance.model.rules.workers import ending

_INSTANT = timedelta(microseconds=1)
MODES = ("keep", "replace", "error", "cooldown", "debounce", "keep-last")
mode = st.sampled_from(MODES)
contents = st.lists(st.sampled_from(["replace", "keep-last"]), min_size=2, max_size=3)
key = st.sampled_from(["a", "b"])
window = st.sampled_from([2 * SECOND, 7 * SECOND])
content = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([COMMON, RARE]),
        "payload": st.sampled_from(["{}", '{"n": 1}', '{"n": 2}', '{"n":3}']),
        "priority": st.integers(-1, 1),
        "delay": st.sampled_from([None, None, 3 * SECOND]),
        "tags": st.sampled_from([(), ("a",)]),
        "max_attempts": st.sampled_from([5, None]),
        "timeout": st.sampled_from([None, SECOND]),
        "result_ttl": st.sampled_from([None, 10 * SECOND]),
        "metadata": st.sampled_from(["{}", '{"m": "1"}']),
        "trace": st.sampled_from(["", '{"t": "1"}']),
        "fingerprint": st.sampled_from(["", "f"]),
    }
)


class UniqueKeys(Lives):
    def keyed(
        self, name: str, key: str, mode: Any, window: timedelta = SECOND, **fields: Any
    ) -> NewJob:
        """Return a request with a key, as a client makes it."""
        unique = Unique(key, mode)
        if mode in ("cooldown", "debounce"):
            at_most = window * 2 if mode == "debounce" and window > 5 * SECOND else None
            unique = Unique(key, mode, window, at_most)
        if mode == "debounce":
            fields["delay"] = window
        return self.new_request(name, unique=unique, **fields)

    @rule(name=queue, key=key, modes=st.lists(mode, min_size=1, max_size=3), w=window, one=content)
    def enqueue_keyed(
        self, name: str, key: str, modes: list[str], w: timedelta, one: dict[str, Any]
    ) -> None:
        """Enqueue, in one call, requests with one key in several modes."""
        self.put_in([self.keyed(name, key, each, w, **one) for each in modes])

    @rule(name=queue, how=ending, first=mode, then=mode, again=mode, w=window, one=content)
    def life_of_a_key(
        self,
        name: str,
        how: str,
        first: str,
        then: str,
        again: str,
        w: timedelta,
        one: dict[str, Any],
    ) -> None:
        """Meet a waiting holder, a running one, and the time after the end."""
        self.open(self._known(name))
        held = self.keyed(name, "life", first, w)
        self.put_in([held])
        self.put_in([self.keyed(name, "life", then, w, **one)])
        self.clock.advance(w)
        lease = self.new_pod()
        claims = self.take(name, lease, 100, 100)
        late = self.keyed(name, "life", again, w, payload='{"late": 1}')
        self.put_in([self.keyed(name, "life", then, w, **one), late])
        self.end(claims, ENDINGS[how])
        self.put_in([held])
        self.put_in([late])
        self.read_news()
        self.put_in([self.keyed(name, "life", again, w, payload='{"late": 2}')])
        self.clock.advance(w)
        self.put_in([self.keyed(name, "life", first, w)])

    @rule(
        name=queue,
        how=st.sampled_from(["done", "dead", "failed at once", "snoozed"]),
        w=window,
        times=st.integers(1, 2),
    )
    def each_mode_of_a_key(self, name: str, how: str, w: timedelta, times: int) -> None:
        """Expect of each mode what a waiting job, a running one, the end and the window mean."""
        self.open(self._known(name))
        modes = {each: self.new_id() for each in MODES if each != "error"}

        def ask(number: int, **more: Any) -> list[NewJob]:
            more["payload"] = f'{{"of": {number}}}'
            asked = [self.keyed(name, key, mode, w, **more) for mode, key in modes.items()]
            self.put_in(asked)
            return asked

        ask(1, tags=("a", "old"), expires_at=self.clock.now() + w)
        second, _ = ask(2), ask(3)
        self.put_in(second)
        self.do("jobs.list", JobFilter(tag="old"))
        self.do("jobs.list", JobFilter(unique_key=modes["keep-last"]))
        self.clock.advance(w)
        self.do("jobs.expire", 1_000)
        claims = self.take(name, self.new_pod(), 100, 100)
        running = [one for number in range(4, 4 + times) for one in ask(number)]
        self.end(claims, ENDINGS[how])
        self.put_in(running)
        self.read_and_deliver("settle")
        self.look_at_jobs()
        ask(6)
        self.take(name, self.new_pod(), 100, 100)

    @rule(name=queue, how=st.sampled_from(["done", "dead", "cancel", "delete"]), w=window)
    def window_of_a_key(self, name: str, how: str, w: timedelta) -> None:
        """Ask in the last instant of a window, and in the first one after the end."""
        self.open(self._known(name))
        key = self.new_id()
        opener = self.keyed(name, key, "cooldown", w, priority=-3)
        self.put_in([opener])
        if how in ENDINGS:
            self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS[how])
        else:
            self.operate(how, opener.id)
        self.put_in([self.keyed(name, key, "keep")])
        [holder] = self.world.holders(name, key)
        self.operate("delete", holder.id)
        # Removed jobs take an instant each.
        begun = self.world.windows[name, key][1]
        self.clock.advance(begun + w - _INSTANT - self.clock.now())
        self.put_in([self.keyed(name, key, "cooldown", w)])
        self.clock.advance(_INSTANT)
        self.put_in([self.keyed(name, key, "cooldown", w), opener])

    @rule(name=queue, ahead=window)
    def window_of_a_clock_that_was_ahead(self, name: str, ahead: timedelta) -> None:
        """Open a window while the clock is ahead. Once that is set back, the key is not cold."""
        self.open(self._known(name))
        key = self.new_id()
        self.clock.step_wall(ahead)
        opener = self.keyed(name, key, "cooldown", 2 * SECOND)
        self.put_in([opener])
        self.operate("cancel", opener.id)
        self.clock.step_wall(-ahead)
        for _ in range(2):
            self.put_in([self.keyed(name, key, "cooldown", 2 * SECOND)])
            self.operate("cancel", *(each.id for each in self.world.holders(name, key)))

    @rule(name=queue, modes=contents, before=st.lists(st.integers(0, 2), min_size=3, max_size=3))
    def contents_of_one_call(self, name: str, modes: list[str], before: list[int]) -> None:
        """Replace the content of a request in the call of that request, at other due times."""
        now = self.clock.now()
        for times in (before, before[::-1]):
            key, pairs = self.new_id(), zip(modes, times, strict=False)
            self.put_in(
                [self.keyed(name, key, how, run_at=now - ago * SECOND) for how, ago in pairs]
            )
        self.look_at_jobs()

    @rule(name=queue, how=st.sampled_from(["failed", "snoozed", ""]), again=mode, w=window)
    def expired_holders_of_keys(self, name: str, how: str, again: str, w: timedelta) -> None:
        """Ask for keys whose holders have expired and wait or still run, one with a follow-up."""
        self.open(self._known(name))
        keys = [self.new_id() for _ in range(3)]
        soon = self.clock.now() + w
        for key in keys[:2]:
            self.put_in([self.keyed(name, key, "keep-last", priority=-3, expires_at=soon)])
        claims = self.take(name, self.new_pod(), 1, 1)
        follow_up = self.keyed(name, keys[0], "keep-last", expires_at=soon + w)
        self.put_in([follow_up])
        if how:
            self.end(claims, ENDINGS[how])
        self.put_in([self.keyed(name, keys[2], "cooldown", w * 2, expires_at=soon)])
        child = self.new_request(name, after=(After(follow_up.id, "continue"),))
        self.put_in([child])
        for _ in range(2):
            self.clock.advance(w)
            parent = self.new_request(name)
            asked = [self.keyed(name, key, again, w * 2, payload='{"x": 1}') for key in keys]
            linked = self.new_request(name, after=(After(parent.id, "continue"),))
            self.put_in([*asked, parent, linked])
            self.put_in([self.keyed(name, key, "keep") for key in keys])
            self.look_at_jobs()
        self.read_and_deliver("settle")

    @rule(name=queue, w=window)
    def quiet_of_a_key(self, name: str, w: timedelta) -> None:
        """Ask within each quiet time until the longest wait is over, of a job and a follow-up."""
        self.open(self._known(name))
        key = self.new_id()
        for _ in range(2):
            for number in range(3):
                request = self.keyed(name, key, "debounce", w, payload=f'{{"n": {number}}}')
                self.put_in([request])
                self.look_at_jobs()
                self.clock.advance(w - SECOND)
            self.clock.advance(w)
            self.take(name, self.new_pod(), 100, 100)

    @rule(
        name=queue,
        how=st.sampled_from(["done", "dead"]),
        verb=st.sampled_from(["cancel", "delete"]),
    )
    def generations_of_follow_ups(self, name: str, how: str, verb: str) -> None:
        """Expect that each follow-up that runs holds the key, also once its own one has gone."""
        self.open(self._known(name))
        key = self.new_id()
        self.put_in([self.keyed(name, key, "keep-last", priority=-3)])
        for _ in range(3):
            claims = self.take(name, self.new_pod(), 1, 1)
            self.put_in([self.keyed(name, key, "keep-last", priority=-3)])
            self.put_in([self.keyed(name, key, "keep")])
            self.operate(verb, self.world.holders(name, key)[-1].id)
            self.put_in([self.keyed(name, key, "keep")])
            self.put_in([self.keyed(name, key, "keep-last", priority=-3)])
            self.end(claims, ENDINGS[how])
            self.read_and_deliver("settle")
            self.operate("requeue", *(each.job_id for each in claims))

    @rule(name=queue, how=st.sampled_from(["dead", "cancel"]))
    def requeue_of_a_holder_and_its_follow_up(self, name: str, how: str) -> None:
        """Requeue both in one visit, once both have ended: the first of the visit has the key."""
        self.open(self._known(name))
        key = self.new_id()
        self.put_in([self.keyed(name, key, "keep-last", priority=-9)])
        claims = self.take(name, self.new_pod(), 1, 1)
        self.put_in([self.keyed(name, key, "keep-last", priority=-9)])
        self.end(claims, ENDINGS["dead"])
        self.read_and_deliver("settle")
        if how == "cancel":
            self.operate(how, *(job.id for job in self.world.holders(name, key)))
        else:
            self.end(self.take(name, self.new_pod(), 1, 1), ENDINGS[how])
        self.operate("requeue", *(job.id for job in self.world.of_queue(name) if job.key == key))
        self.look_at_jobs()

    @rule(name=queue, less=st.sampled_from([_INSTANT, timedelta(0)]))
    def repeat_of_a_replacement(self, name: str, less: timedelta) -> None:
        """Repeat a request that gave its content to a job, at the end of the time it is known."""
        self.open(self._known(name))
        key = self.new_id()
        self.put_in([self.keyed(name, key, "replace", kind=RARE, tags=("old",))])
        given = self.keyed(name, key, "replace", payload='{"n": 1}')
        self.put_in([given])
        self.do("jobs.list", JobFilter(kinds=(RARE,)))
        self.do("jobs.list", JobFilter(tag="old"))
        self.put_in([self.keyed(name, key, "replace", payload='{"n": 2}')])
        self.clock.advance(REPLACEMENT_KEPT - less)
        self.put_in([given])
        self.look_at_jobs()

    @rule(
        name=queue,
        verb=st.sampled_from(["cancel", "delete", "requeue", "restore", "run_now"]),
        again=mode,
    )
    def operators_and_a_follow_up(self, name: str, verb: str, again: str) -> None:
        """A person acts on a holder, then on the follow-up, then on both."""
        self.open(self._known(name))
        self.put_in([self.keyed(name, "op", "keep-last")])
        claims = self.take(name, self.new_pod(), 100, 100)
        self.put_in([self.keyed(name, "op", "keep-last", payload='{"f": 1}')])
        for number in (0, -1):
            held = self.world.holders(name, "op")
            if held:
                self.operate(verb, held[number].id)
        self.end(claims, ENDINGS["dead"])
        self.read_news()
        both = [job.id for job in self.world.of_queue(name) if job.key == "op"]
        self.operate(verb, *both[-4:])
        self.put_in([self.keyed(name, "op", again)])

    def _known(self, name: str) -> str:
        self.stock(name)
        return name
