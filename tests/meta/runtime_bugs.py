"""Bugs of the queues of a pod: grants, claims, ends. Each names the test that states its rule."""

from tests.meta.bugs import Bug, Edit

RULES = "pod_rules.py::test_"


def in_runtime(name: str, module: str, old: str, new: str, *tests: str) -> Bug:
    """A bug, and the tests in tests/runtime that state the rule, without ``test_``."""
    edit = Edit(f"forge_jobs/runtime/{module}.py", old, new)
    return Bug(name, tuple(f"tests/runtime/test_{test}" for test in tests), (edit,))


_QUEUES = "queue_loops.py::test_"
_STOPPING = "stopping_a_handler.py::test_"

FAR_STORES = [
    in_runtime(
        "far store: one trip is held ahead",
        "queue/pool",
        "            horizon = self._trip.horizon(horizon)\n",
        "            horizon = max(horizon, self._trip.horizon(horizon) / 2)\n",
        "far_stores.py::test_it_is_no_more_than_two_trips_of_work",
    ),
    in_runtime(
        "far store: the trip is not covered",
        "queue/pool",
        "        self._trip.record(now - asked_at)\n",
        "",
        "far_stores.py::test_what_is_held_ahead_covers_the_trip",
    ),
    in_runtime(
        "far store: a trip is held ahead where a claim brings all",
        "queue/pool",
        "if self._has_backlog or to_keep:",
        "if True:",
        "far_stores.py::test_an_idle_pod_gets_what_comes_to_an_empty_queue",
    ),
    in_runtime(
        "far store: what covers the trip is given back at once",
        "queue/pool",
        "self._ahead_limit(0, to_keep=True)",
        "self._ahead_limit(0)",
        "far_stores.py::test_what_is_held_when_a_backlog_ends_is_run_here",
    ),
]

GRANTS = [
    in_runtime(
        "grants: an older beat raises a lowered one",
        "queue/pool",
        "if self._outbox.lower_to is not None or sent_at <= self._grant_known_at:",
        "if self._outbox.lower_to is not None:",
        f"{RULES}a_beat_from_before_a_grant_was_lowered_does_not_raise_it",
    ),
    in_runtime(
        "grants: when the store knew the lower one is forgotten",
        "queue/pool",
        "            self._outbox.lower_to = None\n"
        "        self._grant_known_at = self._services.clock.elapsed()\n",
        "            self._outbox.lower_to = None\n",
        f"{RULES}a_beat_from_before_a_grant_was_lowered_does_not_raise_it",
    ),
    in_runtime(
        "grants: one that is being lowered is raised",
        "queue/pool",
        "if self._outbox.lower_to is not None or sent_at <= self._grant_known_at:",
        "if sent_at <= self._grant_known_at:",
        f"{RULES}a_grant_that_is_being_lowered_is_raised_by_no_beat",
    ),
    in_runtime(
        "grants: given back while handlers run in it",
        "queue/pool",
        "still_needed = max(desired, self.running)",
        "still_needed = desired",
        f"{RULES}a_grant_is_given_back_when_its_handler_has_ended_and_not_before",
    ),
    in_runtime(
        "grants: kept by a pod whose lease ran out",
        "queue/pool",
        "        self.grant = 0\n        self._outbox.lower_to = None\n",
        "        self._outbox.lower_to = None\n",
        f"{RULES}a_grant_is_void_with_its_lease",
    ),
    in_runtime(
        "held: claims whose end or release is stored stay on the list",
        "queue/outbox",
        "        self._services.held.remove(self.claims_of(items))\n",
        "",
        f"{RULES}claims_given_back_are_no_longer_held",
        f"{RULES}a_claim_is_held_from_its_arrival_until_the_store_has_its_end",
    ),
    in_runtime(
        "held: a claim is let go before the store has its end",
        "queue/pool",
        "        self._outbox.end(Finalization(job.claim, transition))\n"
        "        tell(job, end, transition, seconds",
        "        self._outbox.end(Finalization(job.claim, transition))\n"
        "        services.held.remove([job.claim])\n"
        "        tell(job, end, transition, seconds",
        f"{RULES}a_claim_is_held_from_its_arrival_until_the_store_has_its_end",
    ),
    in_runtime(
        "held: claims are not listed when they arrive",
        "queue/pool",
        "            services.held.add([job.claim for job in claimed])\n",
        "            pass\n",
        f"{RULES}a_claim_is_held_from_its_arrival_until_the_store_has_its_end",
    ),
    in_runtime(
        "held: beats do not say that a handler runs",
        "queue/worker",
        "            services.held.start(run.job.claim, self.worker_id)\n",
        "",
        f"{RULES}a_claim_is_held_from_its_arrival_until_the_store_has_its_end",
    ),
]

SUPERVISOR = [
    in_runtime(
        "pool: a hint that comes during a claim is forgotten",
        "queue/pool",
        "        self._ahead.extend(claimed)\n        if demand.limit:",
        "        self._ahead.extend(claimed)\n        self._may_have_work = False\n"
        "        if demand.limit:",
        "wakeups.py::test_a_hint_that_comes_during_a_claim_is_not_lost",
    ),
    in_runtime(
        "pool: a claim without an answer is not repeated",
        "queue/pool",
        "            self._may_have_work = True\n            self._appetite.unanswered()",
        "            self._appetite.unanswered()",
        f"{_QUEUES}a_claim_that_the_store_did_not_answer_is_asked_for_again",
    ),
    in_runtime(
        "pool: claims of a lease that ran out are started",
        "queue/pool",
        "if now - asked_at >= services.claims_last or lease != services.lease:",
        "if False:",
        f"{_QUEUES}claims_of_a_lease_that_ran_out_meanwhile_are_given_back",
    ),
    in_runtime(
        "pool: the fence is waited for and not asked",
        "queue/pool",
        "return now >= self._cooling_until and not self._services.fence.must_stop(now, self.queue)",
        "return now >= self._cooling_until",
        f"{RULES}a_pod_past_its_fence_accepts_nothing_before_it_is_told",
    ),
    in_runtime(
        "pool: a paused queue goes on with what it holds",
        "queue/pool",
        "        if self.state is None or self.state.paused:\n            return False\n",
        "        if self.state is None:\n            return False\n",
        f"{_STOPPING}a_pause_lets_running_jobs_finish_and_gives_claims_back",
    ),
    in_runtime(
        "pool: a queue is not looked at after its pause",
        "queue/pool",
        "passed = self._look_at is not None and self._look_at <= now",
        "passed = False",
        f"{_QUEUES}a_queue_that_goes_on_after_a_pause_is_looked_at",
    ),
    in_runtime(
        "pool: when a cool-down ended is forgotten",
        "queue/pool",
        "else min(self._cooling_until, sent_at)",
        'else float("-inf")',
        f"{RULES}an_empty_claim_is_repeated_a_moment_after_a_cool_down_and_not_later",
    ),
    in_runtime(
        "pool: a throttled queue goes on until the next beat",
        "queue/pool",
        "            self._cooling_until = max(self._cooling_until, until)\n",
        "            pass\n",
        f"{_QUEUES}a_worker_whose_handler_was_throttled_does_not_go_on",
    ),
    in_runtime(
        "pool: claims ahead are kept however many they have become",
        "queue/pool",
        "if held > 2 * keep:",
        "if not keep and held:",
        f"{_QUEUES}claims_held_ahead_are_given_back_when_they_are_twice_too_many",
    ),
    in_runtime(
        "pool: each end asks for one more claim ahead",
        "queue/pool",
        "if limit <= 0 or (limit < len(self._ahead) and not piggyback):",
        "if limit <= 0:",
        f"{_QUEUES}while_half_of_what_is_held_ahead_is_left_no_call_is_made_for_more",
    ),
    in_runtime(
        "pool: a worker without a slot goes on",
        "queue/pool",
        "or self._outbox.is_full or len(self._workers) > self._desired:",
        "or self._outbox.is_full:",
        f"{_QUEUES}a_worker_whose_slot_was_taken_back_does_not_go_on",
    ),
    in_runtime(
        "pool: a claim that put jobs on hold counts as one that found nothing",
        "queue/pool",
        "self._fruitless = 0 if claimed or exchange.goes_on else self._fruitless + 1\n"
        "            self._may_have_work |= self._has_backlog or exchange.goes_on\n",
        "self._fruitless = 0 if claimed else self._fruitless + 1\n"
        "            self._may_have_work |= self._has_backlog\n",
        f"{_QUEUES}claims_that_put_jobs_on_hold_follow_each_other_without_a_pause",
    ),
    in_runtime(
        "pool: a worker goes on with a job that is to be cancelled",
        "queue/pool",
        "if job.cancel_requested or job.kind not in self._services.kinds or not",
        "if job.kind not in self._services.kinds or not",
        f"{_QUEUES}a_job_to_be_cancelled_is_not_what_a_worker_goes_on_with",
    ),
    in_runtime(
        "pool: a pod that drains keeps what it holds ahead",
        "queue/pool",
        "if self._draining or self._fenced or self._outbox.is_cut_off:\n            return False\n"
        "        if self.state is None",
        "if self._fenced or self._outbox.is_cut_off:\n            return False\n"
        "        if self.state is None",
        f"{RULES}a_drain_gives_back_what_is_held_ahead_at_once",
    ),
    in_runtime(
        "pool: what was hinted at during a fence is not looked at",
        "queue/pool",
        "        if self._may_have_work and self.accepts(self._services.clock.elapsed()):\n"
        "            self._outbox.wakeup.wake()\n",
        "        pass\n",
        f"{_QUEUES}work_that_was_hinted_at_during_a_fence_is_claimed_after_it",
    ),
    in_runtime(
        "capacity: each queue may use the whole of it",
        "shared/capacity",
        "left = self._most - sum(self._occupied(each) for each in self._members)",
        "left = self._most - self._occupied(member)",
        "concurrency.py::test_with_more_queues_than_that_they_take_turns",
    ),
]

_OUTAGES = "outages.py::test_"
_TROUBLE = "stopping_in_trouble.py::test_"

EXCHANGE = [
    in_runtime(
        "exchange: ends of a call without an answer are dropped",
        "queue/loop",
        "            if not ends or outbox.is_of_all(error):\n                raise\n",
        "            if not ends or outbox.is_of_all(error):\n"
        "                outbox.ends.waiting.clear()\n                raise\n",
        f"{_OUTAGES}an_end_that_cannot_be_stored_is_kept_until_the_store_is_back",
    ),
    in_runtime(
        "exchange: a guilty end takes its neighbours with it",
        "queue/outbox",
        "                    parts += _halves(part)\n",
        "                    self._outbox.let_go(map(self.claim_of, part))\n"
        "                    for item in part:\n"
        "                        del self.waiting[id(item)]\n",
        f"{RULES}of_ends_that_are_refused_together_only_the_guilty_is_lost",
    ),
    in_runtime(
        "exchange: a guilty end is not stored without its texts",
        "queue/outbox",
        "return None if bare == item else bare",
        "return None",
        f"{_OUTAGES}an_end_that_the_store_refuses_is_stored_without_its_texts",
    ),
    in_runtime(
        "exchange: results of any size travel together",
        "queue/outbox",
        "        if sum(sizes) > BATCH_BYTES:\n",
        "        if False:\n",
        f"{_QUEUES}ends_with_large_results_travel_in_several_calls",
    ),
    in_runtime(
        "exchange: jobs are started however many ends wait",
        "queue/outbox",
        "return len(self.ends.waiting) >= BACKLOG or ",
        "return ",
        f"{_QUEUES}a_worker_does_not_go_on_while_too_many_ends_wait",
    ),
    in_runtime(
        "exchange: closing leaves ends behind",
        "queue/loop",
        "while not self._gave_up and not (self._closing and self.is_idle):",
        "while not self._gave_up and not self._closing:",
        f"{_TROUBLE}an_outage_that_ends_within_the_grace_leaves_nothing_behind",
    ),
    in_runtime(
        "exchange: a closed storage keeps its claims beaten for",
        "queue/outbox",
        "        self.let_go(self.claims())\n",
        "",
        f"{RULES}an_end_that_meets_a_closed_storage_is_beaten_for_no_longer",
    ),
    in_runtime(
        "exchange: the end of a job asks for no further one",
        "queue/loop",
        "demand = pool.demand(piggyback=bool(ends))",
        "demand = pool.demand(piggyback=False)",
        f"{RULES}the_call_that_brings_an_end_asks_for_the_next_claim",
    ),
    in_runtime(
        "beats: a claim on its way is given back",
        "heartbeat/receiver",
        "            if carrier is None:\n"
        "                seen[claim] = queue.calls_begun if queue.asked_at is not None else 0\n"
        "            elif",
        "            if",
        f"{_OUTAGES}claims_on_their_way_are_not_given_back",
    ),
    in_runtime(
        "beats: a claim whose end no store takes is given back",
        "heartbeat/receiver",
        "if queue is None or claim in services.held or claim in services.given_up:",
        "if queue is None or claim in services.held:",
        "ends_that_fail.py::"
        "test_a_job_whose_end_no_store_takes_is_a_crash_and_runs_no_more_than_that",
    ),
    in_runtime(
        "beats: an older one says that such a claim is gone",
        "heartbeat/receiver",
        "if claim in listed or at >= sent_at",
        "if claim in listed",
        "ends_that_fail.py::"
        "test_a_beat_older_than_an_end_no_store_takes_does_not_make_the_job_run_again",
    ),
    in_runtime(
        "beats: handlers outlive the slots that they ran in",
        "heartbeat/receiver",
        "            self._fence(self._queues, True)\n            self._void_grants(",
        "            self._void_grants(",
        "lapsed_lease.py::test_handlers_end_with_the_slots_they_ran_in_and_their_jobs_lose_nothing",
    ),
]

_GROUPS = "tests/runtime/test_groups_of_outcomes.py::test_"

OUTCOMES = [
    in_runtime(
        "outcomes: one in a group is a failure",
        "queue/execution",
        "    error = said_by(error)\n",
        "",
        "groups_of_outcomes.py::test_one_outcome_in_task_groups_is_that_outcome",
    ),
    in_runtime(
        "outcomes: a clean-up undoes one in a group",
        "queue/injection/job_scope",
        "        said = None if error is None else said_by(error)\n",
        "        said = error\n",
        "groups_of_outcomes.py::test_a_clean_up_that_raises_does_not_undo_an_outcome_in_a_group",
    ),
    Bug(
        "outcomes: one beside an error counts",
        (f"{_GROUPS}an_outcome_beside_something_else_is_a_failure",),
        (
            Edit(
                "forge_jobs/handlers/outcomes.py",
                "all(type(each) is type(first) for each in errors)",
                "True",
            ),
        ),
    ),
    Bug(
        "outcomes: rules of retries do not look into groups",
        (f"{_GROUPS}rules_of_retries_look_into_groups",),
        (
            Edit(
                "forge_jobs/handlers/options.py",
                "        return all(isinstance(each, retried) for each in errors)\n",
                "        return False\n",
            ),
        ),
    ),
]

RUNTIME_BUGS: tuple[Bug, ...] = (*FAR_STORES, *GRANTS, *SUPERVISOR, *EXCHANGE, *OUTCOMES)
