"""Bugs of cron plans, lanes, claims ahead and percentiles. Each names the test of its rule."""

from tests.meta.bugs import Bug
from tests.meta.policy_bugs import in_policy

_CRON = "policy/cron"
_PLANS = "policy_cron_plans.py::TestPlanFiring::test_"
_CHANGES = "policy_cron.py::TestClockChanges::test_"

CRON = [
    in_policy(
        "cron: latest drops what is late",
        _CRON,
        'fires = spec.catch_up == "latest" or now - newest <= ON_TIME',
        "fires = now - newest <= ON_TIME",
        f"{_PLANS}latest_fires_the_newest_alone",
    ),
    in_policy(
        "cron: skip drops what is a little late",
        _CRON,
        "or now - newest <= ON_TIME",
        "or now == newest",
        f"{_PLANS}skip_fires_what_is_a_little_late_and_drops_what_is_later",
    ),
    in_policy(
        "cron: latest fires the oldest",
        _CRON,
        "newest = _newest(cron, first, now)",
        "newest = first",
        f"{_PLANS}latest_fires_the_newest_alone",
    ),
    in_policy(
        "cron: all loses the occurrence at the edge of its window",
        _CRON,
        "cron.next_after(begin - timedelta(microseconds=1))",
        "cron.next_after(begin)",
        f"{_PLANS}all_fires_those_within_the_window_oldest_first",
    ),
    in_policy(
        "cron: all loses what one plan cannot hold",
        _CRON,
        "return FiringPlan(fired, skipped, upcoming, _jittered(spec, fired, rng))",
        "return FiringPlan(fired, skipped, cron.next_after(now), _jittered(spec, fired, rng))",
        f"{_PLANS}all_goes_on_with_the_next_plan_and_loses_nothing",
    ),
    in_policy(
        "cron: a paused schedule fires",
        _CRON,
        "if schedule.paused or first is None or first > now:",
        "if first is None or first > now:",
        f"{_PLANS}a_paused_schedule_and_one_without_occurrences_plan_nothing",
    ),
    in_policy(
        "cron: jitter moves the schedule itself",
        _CRON,
        "        cron.next_after(now),\n        _jittered(spec, occurrences, rng),\n",
        "        cron.next_after(now + spec.jitter),\n        _jittered(spec, occurrences, rng),\n",
        f"{_PLANS}jitter_delays_the_job_and_not_its_occurrence",
    ),
    in_policy(
        "cron: a doubled time fires twice",
        _CRON,
        "            while found.fold and not self._every_hour:\n"
        "                found = times.get_next(datetime)\n",
        "",
        f"{_CHANGES}a_doubled_time_fires_the_first_time_only",
    ),
    in_policy(
        "cron: every minute rests in the second of a doubled hour",
        _CRON,
        "        if self._every_hour:\n            again",
        "        if not self._every_hour:\n            again",
        "policy_cron.py::test_a_starred_minute_runs_in_both_passes_although_its_next_date_is_far",
    ),
    in_policy(
        "cron: an interval begins with its process",
        _CRON,
        "return EPOCH + ((instant - EPOCH) // self._length + 1) * self._length",
        "return instant + self._length",
        "policy_cron.py::TestNextAfter::test_an_interval_is_aligned_to_the_epoch",
    ),
]

_LANES = "lanes"
_AHEAD = "policy/claim_ahead"
_PERCENTILES = "policy/percentiles"
_BATCHING = "lanes.py::TestBatching::test_"

MEASURES = [
    in_policy(
        "lane: a second call goes out beside the first",
        _LANES,
        "        self._waiting.append(entry)\n        if self._task is None:\n",
        "        self._waiting.append(entry)\n        if self._task is None or self._waiting:\n",
        f"{_BATCHING}never_has_two_calls_in_flight",
    ),
    in_policy(
        "lane: the neighbours of a guilty item share its error",
        _LANES,
        "if len(part) > 1 and not _concerns_all(error):",
        "if False:",
        "lanes.py::TestGuiltyItems::"
        "test_every_innocent_gets_its_result_and_every_guilty_its_own_error",
    ),
    in_policy(
        "lane: an outage is searched for among the items",
        _LANES,
        "    return isinstance(error, CONCERNS_ALL) and not isinstance(error, _AGAIN)\n",
        "    return False\n",
        "lanes.py::TestGuiltyItems::"
        "test_a_trouble_of_the_whole_store_is_not_searched_for_among_the_items",
    ),
    in_policy(
        "lane: a call that the store did not answer is not repeated",
        _LANES,
        "                if now >= deadline:\n                    raise\n",
        "                raise\n",
        "lanes.py::TestOutages::test_unavailable_is_repeated_and_nobody_notices",
    ),
    in_policy(
        "lane: a flush forgets the call in flight",
        _LANES,
        "        if self._settled < self._accepted:\n            done",
        "        if self._waiting:\n            done",
        "lanes.py::TestFlush::test_flush_waits_for_the_call_under_way",
    ),
    in_policy(
        "lane: a locked item is not sent again",
        _LANES,
        "            return await self._submit_again(item, error)\n",
        "            raise error\n",
        "lanes.py::TestLocked::test_a_locked_item_is_found_and_sent_again_while_others_go_on",
    ),
    in_policy(
        "claim ahead: the free workers' claims are not counted",
        _AHEAD,
        "room = max(MAX_CLAIMS_PER_CALL - max(free, 0), 0)",
        "room = MAX_CLAIMS_PER_CALL",
        "policy_claim_ahead.py::test_with_the_free_workers_it_stays_within_one_call",
    ),
    in_policy(
        "claim ahead: without a pace as many as a call may hold",
        _AHEAD,
        "    if mean_seconds is None or math.isnan(mean_seconds) or workers < 1:\n",
        "    if mean_seconds is None:\n        return MAX_CLAIMS_PER_CALL - free\n"
        "    if mean_seconds < 0:\n",
        "policy_claim_ahead.py::test_nothing_is_held_while_the_pace_is_unknown",
    ),
    in_policy(
        "claim ahead: old runs weigh as much as new ones",
        _AHEAD,
        "weight = 0.5 ** (passed / _HALF_LIFE)",
        "weight = 1.0",
        "policy_claim_ahead.py::test_jobs_that_take_longer_now_are_soon_what_counts",
    ),
    in_policy(
        "claim ahead: the longest call is the trip",
        _AHEAD,
        "2 * min(*self._calls, _LONGEST_TRIP)",
        "2 * min(max(self._calls), _LONGEST_TRIP)",
        "policy_claim_ahead.py::test_calls_that_waited_or_brought_much_make_no_store_far",
    ),
    in_policy(
        "claim ahead: held ahead though it is turned off",
        _AHEAD,
        "self._two > claim_ahead > _ZERO",
        "self._two > claim_ahead",
        "policy_claim_ahead.py::test_a_horizon_of_zero_stays_zero_however_far_the_store_is",
    ),
    in_policy(
        "percentiles: the rank is rounded down",
        _PERCENTILES,
        "rank = max(math.ceil(q * total), 1)",
        "rank = max(math.floor(q * total), 1)",
        "policy_percentiles.py::test_a_percentile_is_within_five_percent_of_the_nearest_rank",
    ),
    in_policy(
        "percentiles: adding replaces",
        _PERCENTILES,
        "counts[index] = counts.get(index, 0) + count",
        "counts[index] = count",
        "policy_percentiles.py::test_adding_gives_the_same_in_any_order_and_grouping",
    ),
    in_policy(
        "bursts: each one waits for its interval",
        "policy/bursts",
        "self._ahead = at_once * every",
        "self._ahead = every",
        "policy_bursts.py::test_after_a_long_pause_a_burst_waits_for_nothing",
    ),
    in_policy(
        "bursts: a long pause is paid back without end",
        "policy/bursts",
        "max(self._paid_until, now) + self._every",
        "max(self._paid_until, 0.0) + self._every",
        "policy_bursts.py::test_no_window_holds_more_than_a_burst_and_one_per_interval",
    ),
]

LANE_BUGS: tuple[Bug, ...] = (*CRON, *MEASURES)
