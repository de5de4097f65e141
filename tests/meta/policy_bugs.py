"""Bugs of the policies: fence, guard, shares, retries, transitions. Each names its rule's test."""

from tests.meta.bugs import Bug, Edit


def in_policy(name: str, module: str, old: str, new: str, *tests: str) -> Bug:
    """A bug, and the tests in tests/unit that state the rule, without ``test_``."""
    edit = Edit(f"forge_jobs/{module}.py", old, new)
    return Bug(name, tuple(f"tests/unit/test_{test}" for test in tests), (edit,))


_LIVENESS = "policy/liveness"
_FENCE = "policy_liveness.py::TestFence::test_"
_GUARD = "policy_liveness.py::TestReaperGuard::test_"

LIVENESS = [
    in_policy(
        "fence: the answer to an older beat takes its renewal back",
        _LIVENESS,
        "self._renewed_at = max(self._renewed_at, sent_at)",
        "self._renewed_at = sent_at",
        f"{_FENCE}the_answer_to_an_earlier_beat_takes_nothing_back",
    ),
    in_policy(
        "fence: it falls at the end of the lease, without a margin",
        _LIVENESS,
        "self._allowed = (lease - margin).total_seconds()",
        "self._allowed = lease.total_seconds()",
        f"{_FENCE}it_falls_at_the_lease_less_the_margin_after_registration",
    ),
    in_policy(
        "fence: a closed one opens again with a beat",
        _LIVENESS,
        '        self._allowed = float("-inf")\n',
        '        self._renewed_at = float("-inf")\n',
        "policy_liveness.py::test_a_closed_fence_stays_closed",
    ),
    in_policy(
        "guard: trusts itself at once",
        _LIVENESS,
        "if self._last is None or has_stepped",
        "if has_stepped or self._last is not None and has_stepped",
        f"{_GUARD}it_waits_for_one_full_lease_after_the_start",
    ),
    in_policy(
        "guard: a suspend between two passes is none",
        _LIVENESS,
        "return passed > self._longest_gap or abs",
        "return abs",
        f"{_GUARD}a_gap_between_passes_starts_the_lease_again",
    ),
    in_policy(
        "guard: only a step forward of the wall clock is one",
        _LIVENESS,
        "abs(wall_passed - passed) > self._largest_jump",
        "wall_passed - passed > self._largest_jump",
        f"{_GUARD}a_step_of_the_wall_clock_starts_the_lease_again",
    ),
    in_policy(
        "guard: a slow answer of the store is a step",
        _LIVENESS,
        "moved = max(least - before[1], before[0] - greatest)",
        "moved = max(greatest - before[0], before[1] - least)",
        f"{_GUARD}a_slow_answer_of_the_store_is_no_step",
    ),
    in_policy(
        "guard: a disturbance is no reason to look for leases dated ahead",
        _LIVENESS,
        "elapsed\n            self.must_look = True\n",
        "elapsed\n",
        f"{_GUARD}it_says_when_something_may_be_dated_ahead",
    ),
    in_policy(
        "guard: starting over is forgotten",
        _LIVENESS,
        "        self._last = None\n\n    def _note_heard(",
        "        pass\n\n    def _note_heard(",
        f"{_GUARD}it_can_be_told_to_start_over",
    ),
]

_SHARES = "policy/slots/shares"
_PLAN = "policy/slots/plan"
_MOVES = "policy/slots/moves"
_OF_MANY = "policy_shares.py::TestEqualSharesOfManyQueues::test_"
_OF_ONE = "policy_slot_plan.py::TestPlanAllocation::test_"
_LIMITED = "policy_slot_plan.py::TestPodsThatRunOnlySoMany::test_"
_STARVED = "policy_slot_plan.py::TestKindsThatOnlyPodsWithoutSlotsKnow::test_"

SLOTS = [
    in_policy(
        "shares: remainders are not levelled over the queues",
        _SHARES,
        "    _level([split for split in splits if split.favoured], held)\n",
        "",
        "policy_shares.py::TestEqualSharesOfManyQueues",
    ),
    in_policy(
        "shares: a remainder does not stay where it is",
        _SHARES,
        "        split.keep(current.get(split.queue, {}) if current else {}, held)\n",
        "        pass\n",
        f"{_OF_MANY}one_more_pod_takes_its_part_and_moves_no_other",
    ),
    in_policy(
        "shares: all remainders go to one pod",
        _SHARES,
        "return ((self._seeds[pod] ^ self._seed) * _MIX) & _MASK",
        "return self._seeds[pod]",
        "policy_shares.py::TestEqualShares::test_the_remainder_goes_to_other_pods_for_other_queues",
    ),
    in_policy(
        "shares: one remainder too few",
        _SHARES,
        "missing = self.remainder - len(self.favoured)",
        "missing = self.remainder - len(self.favoured) - 1",
        "policy_shares.py::TestEqualShares::test_they_add_up_and_differ_by_at_most_one",
    ),
    in_policy(
        "grants: raised before others gave theirs back",
        _PLAN,
        "free = allocation.max_workers - sum(grants.values())",
        "free = allocation.max_workers",
        f"{_OF_ONE}a_newcomer_gets_no_slot_before_the_others_gave_one_back",
    ),
    in_policy(
        "grants: the first newcomer gets all that is free",
        _PLAN,
        "for at_most in (1, allocation.max_workers):",
        "for at_most in (allocation.max_workers,):",
        f"{_OF_ONE}every_newcomer_gets_a_first_slot_before_any_gets_its_second",
    ),
    in_policy(
        "grants: the coordinator lowers one by itself",
        _PLAN,
        "slots = {pod: Slots(wanted[pod], grants[pod])",
        "slots = {pod: Slots(wanted[pod], min(wanted[pod], grants[pod]))",
        f"{_OF_ONE}lowering_the_maximum_lowers_targets_and_no_grant",
    ),
    in_policy(
        "targets: a draining pod keeps its own",
        _PLAN,
        "for pod in sorted(allocation.pods) if pod not in allocation.draining]",
        "for pod in sorted(allocation.pods)]",
        f"{_OF_ONE}a_pod_that_drains_is_to_have_none",
    ),
    in_policy(
        "targets: a pod that cannot be served yet is written again and again",
        _PLAN,
        "    if slots == dict(allocation.pods):\n        return None\n",
        "",
        f"{_OF_ONE}what_must_wait_for_others_is_written_once",
    ),
    in_policy(
        "limits: each queue counts the pod's room alone",
        _PLAN,
        "        fit_into_rooms(targets, current, rooms)\n",
        "        for queue in targets:\n"
        "            one = {queue: targets[queue]}\n"
        "            fit_into_rooms(one, current, Rooms(self._limits, one))\n",
        f"{_LIMITED}the_limit_is_one_for_all_queues",
    ),
    in_policy(
        "limits: slots that one pod cannot use go to none",
        _MOVES,
        "            _hand_out(freed[queue], targets[queue], current[queue], rooms)\n",
        "            pass\n",
        f"{_LIMITED}what_one_cannot_use_goes_to_the_other",
    ),
    in_policy(
        "limits: a pod with many queues loses the last slot of one",
        _MOVES,
        "more = ranked[: max(left, len(alone))]",
        "more = ranked[: max(left, 0)]",
        f"{_LIMITED}with_fewer_than_its_queues_it_keeps_the_last_slot_of_each",
    ),
    in_policy(
        "limits: a grant does not wait for what the pod gives back",
        _PLAN,
        "more = min(goals[pod] - has, free, rooms.of(pod))",
        "more = min(goals[pod] - has, free)",
        f"{_LIMITED}a_grant_waits_until_the_pod_has_given_another_one_back",
    ),
    in_policy(
        "kinds: the slot of a protected kind is taken",
        _MOVES,
        "            self._protected.append(pods)\n",
        "            pass\n",
        f"{_STARVED}of_two_kinds_and_one_slot_the_first_gets_it",
        f"{_STARVED}every_kind_has_a_slot_as_far_as_there_are_any_and_the_plan_is_stable",
    ),
    in_policy(
        "kinds: one slot moves and no more",
        _MOVES,
        "table.slots_of(knowers) < min(wanted, max_workers)",
        "table.slots_of(knowers) < min(wanted, 1)",
        f"{_STARVED}as_many_move_as_its_jobs_need",
    ),
    in_policy(
        "kinds: a slot that is not given back yet serves nobody",
        _PLAN,
        "(serving if slots.target or slots.grant else idle)",
        "(serving if slots.target else idle)",
        "policy_slot_plan.py::TestUnservedKinds::"
        "test_a_slot_that_is_about_to_come_or_not_yet_given_back_counts",
    ),
]

_BACKOFF = "policy/backoff"
_TRANSITIONS = "policy/transitions"
_COOLDOWNS = "policy/cooldowns"
_STALE = "policy_transitions.py::TestStaleClaims::test_"
_FAILURE = "policy_transitions.py::TestFailure::test_"
_HANDED_BACK = "policy_transitions.py::TestHandedBackAndCounted::test_"

RETRIES = [
    in_policy(
        "backoff: a late attempt overflows",
        _BACKOFF,
        ">= math.log(cap / base):",
        ">= math.inf:",
        "policy_backoff.py::test_a_delay_is_from_zero_to_the_cap_for_any_attempt",
    ),
    in_policy(
        "backoff: one doubling too many",
        _BACKOFF,
        "return min(base * factor ** (attempt - 1), cap)",
        "return min(base * factor**attempt, cap)",
        "policy_backoff.py::test_exponential_doubles_from_the_base_up_to_the_cap",
    ),
    in_policy(
        "backoff: equal jitter instead of full jitter",
        _BACKOFF,
        "return min(ceiling * max(draw(rng), 0.0), ceiling)",
        "return min(ceiling / 2 + ceiling / 2 * max(draw(rng), 0.0), ceiling)",
        "policy_backoff.py::test_jitter_draws_evenly_from_zero_to_the_ceiling",
    ),
    in_policy(
        "backoff: the list of delays begins again",
        _BACKOFF,
        "policy.delays[min(attempt, len(policy.delays)) - 1]",
        "policy.delays[(attempt - 1) % len(policy.delays)]",
        "policy_backoff.py::test_the_last_of_a_list_of_delays_repeats",
    ),
    in_policy(
        "backoff: a policy's endless delay is taken",
        _BACKOFF,
        "and 0 <= answer < math.inf:",
        "and 0 <= answer:",
        "policy_backoff.py::TestCallablePolicies::"
        "test_nonsense_is_replaced_by_the_default_policy_and_logged",
    ),
    in_policy(
        "backoff: a delay below zero is taken",
        _BACKOFF,
        "return min(max(delay, _ZERO), LONGEST_DELAY)",
        "return min(delay, LONGEST_DELAY)",
        "policy_backoff.py::test_a_requested_delay_is_bounded_at_both_ends",
    ),
    in_policy(
        "crashes: the pause does not grow",
        _BACKOFF,
        "_exponential(pause, 2.0, LONGEST_CRASH_PAUSE, crashes - 1)",
        "_exponential(pause, 2.0, LONGEST_CRASH_PAUSE, 1)",
        f"{_STALE}from_the_second_crash_on_it_waits_twice_as_long_each_time",
    ),
    in_policy(
        "crashes: the first one costs the job its place",
        _TRANSITIONS,
        "delay = None if crashes == 1 else crash_delay(crashes, pause)",
        "delay = crash_delay(crashes, pause)",
        f"{_STALE}a_first_crash_uses_one_attempt_and_the_job_keeps_its_place",
    ),
    in_policy(
        "crashes: one more than allowed",
        _TRANSITIONS,
        "if crashes >= max_crashes:",
        "if crashes > max_crashes:",
        f"{_STALE}the_last_crash_allowed_makes_it_dead_with_that_reason",
    ),
    in_policy(
        "crashes: a claim that never started counts as one",
        _TRANSITIONS,
        "counts = stale.started or stale.crashes == 0",
        "counts = True",
        f"{_STALE}a_further_claim_that_never_started_costs_nothing",
    ),
    in_policy(
        "crashes: no attempt is used up by one",
        _TRANSITIONS,
        "stale.attempt >= stale.max_attempts",
        "stale.attempt > stale.max_attempts",
        f"{_STALE}a_first_crash_on_the_last_attempt_makes_it_dead",
    ),
    in_policy(
        "attempts: one more than allowed",
        _TRANSITIONS,
        "job.attempt >= job.max_attempts",
        "job.attempt > job.max_attempts",
        f"{_FAILURE}the_last_attempt_makes_it_dead_with_the_same_cause",
    ),
    in_policy(
        "attempts: a final error is retried",
        _TRANSITIONS,
        "if used_up or not end.retryable:",
        "if used_up:",
        f"{_FAILURE}an_error_that_is_final_makes_it_dead_at_once",
    ),
    in_policy(
        "attempts: what the handler asked for is drawn by the backoff",
        _TRANSITIONS,
        "    if end.delay is not None:\n        delay = bounded_delay(end.delay)\n    else:\n",
        "    if True:\n",
        f"{_FAILURE}a_delay_the_handler_chose_replaces_the_backoff",
    ),
    in_policy(
        "hand-backs: one more than max_snoozes",
        _TRANSITIONS,
        "if job.snoozes < rules.max_snoozes:",
        "if job.snoozes <= rules.max_snoozes:",
        f"{_HANDED_BACK}the_one_after_the_handlers_max_snoozes_is_dead_and_says_so",
    ),
    in_policy(
        "hand-backs: the budget of time has no end",
        _TRANSITIONS,
        "if job.snoozed_since is None or job.run_at - job.snoozed_since < rules.snooze_budget:",
        "if True:",
        f"{_HANDED_BACK}without_one_the_first_that_is_due_after_the_budget_is_dead",
    ),
    in_policy(
        "hand-backs: a snooze for no time is a busy loop",
        _TRANSITIONS,
        "    if snoozes < _FREE_SNOOZES:\n        return timedelta(0)\n",
        "    return timedelta(0)\n",
        "policy_transitions.py::"
        "test_a_job_that_snoozes_for_no_time_is_slowed_down_to_once_a_second",
    ),
    in_policy(
        "hand-backs: a wait for a limit counts as a snooze",
        _TRANSITIONS,
        "        hand_back=True,\n        rate_limit=end.rate_limit,\n",
        "        hand_back=True,\n        count_snooze=True,\n        rate_limit=end.rate_limit,\n",
        "policy_transitions.py::"
        "test_a_wait_for_a_limit_counts_toward_nothing_and_cools_nothing_down",
    ),
    in_policy(
        "hand-backs: an interrupted job uses an attempt",
        _TRANSITIONS,
        "status=JobStatus.PENDING, cause=end.cause, delay=None, hand_back=True, error=end.error",
        "status=JobStatus.PENDING, cause=end.cause, delay=None, error=end.error",
        "policy_transitions.py::test_an_interrupted_attempt_is_handed_back_also_the_last_one",
    ),
    in_policy(
        "cool-downs: the last snooze of a job cools nothing down",
        _TRANSITIONS,
        "cause=end.cause, error=spent, cooldown=cooldown)",
        "cause=end.cause, error=spent)",
        "policy_transitions.py::"
        "test_a_throttled_job_cools_its_queue_down_also_with_its_last_snooze",
    ),
    in_policy(
        "cool-downs: the level is never forgotten",
        _COOLDOWNS,
        "if ended_for is None or ended_for >= policy.quiet:",
        "if ended_for is None:",
        "policy_cooldowns.py::test_the_level_is_forgotten_after_exactly_the_quiet_time",
    ),
    in_policy(
        "cool-downs: retry_after goes beyond the cap",
        _COOLDOWNS,
        "min(max(retry_after, SHORTEST_COOLDOWN), policy.cap)",
        "max(retry_after, SHORTEST_COOLDOWN)",
        "policy_cooldowns.py::test_retry_after_is_honoured_within_its_bounds",
    ),
    in_policy(
        "cool-downs: an upstream that asks for no time is asked again at once",
        _COOLDOWNS,
        "min(max(retry_after, SHORTEST_COOLDOWN), policy.cap)",
        "min(retry_after, policy.cap)",
        "policy_cooldowns.py::test_retry_after_is_honoured_within_its_bounds",
    ),
    in_policy(
        "edges: a value of a later version runs the child",
        "policy/dependencies",
        '"hold" if rule in HOLDING else "cancel"',
        '"hold" if rule in HOLDING else "settle"',
        "policy_dependencies.py::test_the_edge_decides_what_a_parent_without_success_means",
    ),
]

POLICY_BUGS: tuple[Bug, ...] = (*LIVENESS, *SLOTS, *RETRIES)
