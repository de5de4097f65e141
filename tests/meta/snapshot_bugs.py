"""Bugs in the reader of snapshots, in what pods tell for that, and in what is read from them."""

from tests.meta.bugs import Bug, Edit

_TESTS = "tests/problems/test_"


def _bug(name: str, module: str, before: str, after: str, test: str) -> Bug:
    return Bug(
        f"snapshot: {name}",
        (f"{_TESTS}{test}",),
        (Edit(f"forge_jobs/{module}.py", before, after),),
    )


_STORE = "forge_jobs/operating/snapshots/store.py"
_CRASHES = "tests/conformance/test_looks.py::test_crashes_are_looked_for_where_one_was_of_late"
_POOLS = ("tests/backends/test_pool_sizes.py",)

SNAPSHOT_BUGS = (
    Bug(
        "snapshot: a pool in use for a moment is used up",
        ("tests/problems/test_store.py",),
        (Edit(_STORE, "len(waits) > 1 and waits[-1] > waits[0]", "True"),),
    ),
    Bug(
        "snapshot: rare calls make a store slow by one",
        ("tests/problems/test_store.py",),
        (Edit(_STORE, "MANY_CALLS = 20", "MANY_CALLS = 1"),),
    ),
    Bug(
        "snapshot: a store without a bound is full",
        ("tests/problems/test_store.py",),
        (Edit(_STORE, "_FULL = 0.9", "_FULL = 0.0"),),
    ),
    _bug(
        "a pod that drains serves its queues",
        "operating/snapshots/queues",
        "if is_live(pod) and not pod.draining:",
        "if is_live(pod):",
        "queues.py::test_pods_that_drain_do_not_serve",
    ),
    _bug(
        "a queue is unserved since the first pod left",
        "policy/judgement/since",
        "or found[name][0] < at:",
        "or found[name][0] > at:",
        "queues.py::test_a_queue_whose_pods_have_stopped",
    ),
    _bug(
        "a cool-down begins with the look",
        "policy/cooldowns",
        "return min(now, now + queue.cooldown_remaining - length)",
        "return now",
        "queues.py::test_a_queue_that_cools_down",
    ),
    _bug(
        "none leads where no pod is",
        "operating/snapshots/fleet",
        "if not started or (",
        "if (",
        "fleet.py::test_nobody_leads_where_no_pod_is",
    ),
    _bug(
        "the leader's lease ran out just now",
        "storage/sql/cron/store",
        "ended_for=ended_for,",
        "ended_for=timedelta(0),",
        "fleet.py::test_nobody_leads_after_the_lease_of_the_last_one_ran_out",
    ),
    _bug(
        "a pod that has started again and again flaps for ever",
        "operating/snapshots/fleet",
        "and event.at > now - _STARTS_WITHIN",
        "",
        "fleet.py::test_a_pod_that_starts_again_and_again",
    ),
    _bug(
        "a schedule broke when that last fired",
        "operating/snapshots/fleet",
        "return at or schedule.last_fired_at or now",
        "return schedule.last_fired_at or now",
        "fleet.py::test_a_schedule_that_an_error_disabled",
    ),
    _bug(
        "a pod polls since the first time",
        "operating/snapshots/fleet",
        "            was_well.add(minute.host_id)\n",
        "            continue\n",
        "fleet.py::test_a_pod_that_hears_no_wake_ups",
    ),
    _bug(
        "a pod leaves without a word",
        "runtime/pod/stopping",
        "pod.events.record(EventKind.POD_STOPPED, detail=pod.note)",
        "pod.events.record(EventKind.POD_STOPPED)",
        "real_pods.py::test_since_when_a_queue_is_unserved_is_what_its_pod_said_as_it_left",
    ),
    _bug(
        "a parent that was requeued holds its children",
        "operating/snapshots/jobs",
        "parent.status not in ACTIVE | {JobStatus.DONE}",
        "parent.status is not JobStatus.DONE",
        "jobs.py::test_children_behind_a_parent_that_died",
    ),
    _bug(
        "a kind is unknown since the newest job of that kind",
        "operating/snapshots/jobs",
        "since=min(times)",
        "since=max(times)",
        "jobs.py::test_jobs_of_a_kind_that_no_pod_knows",
    ),
    _bug(
        "crashes count for ever",
        "operating/snapshots/jobs",
        "and error.at > now - CRASHED_WITHIN",
        "",
        "jobs.py::test_processes_die_with_jobs_of_one_kind",
    ),
    _bug(
        "every run has been asked to stop",
        "storage/history/looks",
        "if each.cancel_requested]",
        "]",
        "jobs.py::test_a_handler_that_goes_on_after_a_cancel",
    ),
    _bug(
        "the last wish to cancel counts",
        "operating/snapshots/jobs",
        "cancel_requested_at=min(",
        "cancel_requested_at=max(",
        "jobs.py::test_a_handler_that_goes_on_after_a_cancel",
    ),
    Bug(
        "place: jobs of one instant come before, whatever their ids",
        (
            "tests/conformance/test_place.py::test_the_place_of_a_job_is_how_many_are_claimed_before",
        ),
        (
            Edit(
                "forge_jobs/storage/sql/jobs/read.py",
                'jobs.c.run_at == _at, jobs.c.id < bindparam("job")',
                "jobs.c.run_at == _at",
            ),
        ),
    ),
    Bug(
        "place: a priority counts whole",
        (
            "tests/conformance/test_place.py::test_the_place_of_a_job_is_how_many_are_claimed_before",
        ),
        (
            Edit(
                "forge_jobs/storage/redis/lua/jobs/read/place.lua",
                "elseif priority == job.priority then",
                "elseif false then",
            ),
        ),
        "redis",
    ),
    Bug(
        "forecast: every slot is free",
        ("tests/unit/test_policy_forecast.py::test_nine_of_ten_jobs_start_in_the_span",),
        (
            Edit(
                "forge_jobs/policy/judgement/forecast.py",
                "max(slots - load.running, 0)",
                "slots",
            ),
        ),
    ),
    _bug(
        "a burst began with the day",
        "operating/snapshots/errors",
        "if burst[0].at - count.at > _LATELY:",
        "if False:",
        "jobs.py::test_failures_of_one_sort_come_in_a_burst",
    ),
    _bug(
        "a burst lasts for a day",
        "operating/snapshots/errors",
        "if count.at > now - _LATELY]",
        "]",
        "jobs.py::test_failures_of_one_sort_come_in_a_burst",
    ),
    _bug(
        "arrivals are claims",
        "clients/forecasts",
        "(Cause.ENQUEUED, *_RETRIES))",
        '("claimed",))',
        "forecast.py::test_the_load_of_a_queue_is_measured",
    ),
    _bug(
        "a minute that is as deep as the one before ends no growth",
        "policy/judgement/growth",
        "_due(after) > _due(before)",
        "_due(after) >= _due(before)",
        "series.py::test_a_backlog_that_grows_for_ten_minutes",
    ),
    _bug(
        "an objective burns since now",
        "policy/judgement/objectives",
        "since, end = min(since, end), end - MINUTE",
        "end = end - MINUTE",
        "series.py::test_an_objective_whose_budget_burns",
    ),
    _bug(
        "jobs that have not started are not late",
        "policy/judgement/objectives",
        "return max(1, round(due * (1 - within / oldest_for)))",
        "return 0",
        "series.py::test_an_objective_of_a_queue_that_stands_still",
    ),
    _bug(
        "few runs say what is usual",
        "policy/judgement/long_runs",
        "sum(runs.counts.values()) < FEWEST_RUNS",
        "sum(runs.counts.values()) < 1",
        "series.py::test_a_run_that_takes_ten_times_as_long_as_others",
    ),
    _bug(
        "a job for later has waited for its limit all the time",
        "operating/snapshots/jobs",
        "oldest_since=max(min(each), now - len(each) / refill[scope] * MINUTE)",
        "oldest_since=min(each)",
        "series.py::test_jobs_that_wait_for_a_rate_limit",
    ),
    _bug(
        "a clock that was right in between was off all the time",
        "operating/snapshots/fleet",
        "            was_well.add(minute.host_id)",
        "            pass",
        "fleet.py::test_a_clock_that_is_off",
    ),
    _bug(
        "a blocked loop is told by none",
        "runtime/heartbeat/watchdog",
        "if self._reported == self._has_told:",
        "if True:",
        "real_pods.py::test_a_blocked_event_loop_is_seen_from_elsewhere_with_its_place",
    ),
    _bug(
        "a loop that turns again stays blocked",
        "runtime/heartbeat/watchdog",
        "now - timedelta(seconds=lag) if blocked else None",
        "now - timedelta(seconds=lag)",
        "real_pods.py::test_a_blocked_event_loop_is_seen_from_elsewhere_with_its_place",
    ),
    _bug(
        "an hour that ends in the split counts twice",
        "operating/snapshots/objectives",
        "SeriesAsk(since=split - MONTH, until=split,",
        "SeriesAsk(since=split - MONTH, until=now,",
        "objectives.py::test_the_share_met_the_budget_and_the_burn",
    ),
    _bug(
        "standings show queues that are closed to the reader",
        "operating/snapshots/objectives",
        " if self.actor.sees(each.name)]",
        "]",
        "objectives.py::test_five_calls_are_enough_for_any_number_of_queues",
    ),
    _bug(
        "pods are wanted for what waits now, whatever waited lately",
        "operating/snapshots/pods_wanted",
        "peak = max(peak, step.depth.due)",
        "peak = 0",
        "pods_wanted.py::test_what_waited_lately_keeps_the_pods",
    ),
    _bug(
        "pods are wanted for the load of hours",
        "operating/snapshots/pods_wanted",
        "if step.at < until - MEASURED:",
        "if step.at < until - 9 * MEASURED:",
        "pods_wanted.py::test_what_waited_lately_keeps_the_pods",
    ),
    _bug(
        "the queue's own objective stands for the one asked for",
        "operating/snapshots/outlook",
        "aim = objective or states[name].settings.aim",
        "aim = states[name].settings.aim or objective",
        "pods_wanted.py::test_every_surface_has_the_same_number_of_pods",
    ),
    Bug(
        "snapshot: connections are counted after the pass has given back its own",
        _POOLS,
        (
            Edit(
                "forge_jobs/runtime/passes/gauges.py",
                "meter.measure(running, health)",
                "meter.measure(running, storage.health())",
            ),
        ),
        "redis",
    ),
    Bug(
        "snapshot: a Redis server's connections in use are not counted",
        _POOLS,
        (
            Edit(
                "forge_jobs/storage/redis/driver/connections.py",
                "return self._size if self._room.locked() else self._lent",
                "return 0",
            ),
        ),
        "redis",
    ),
    Bug(
        "snapshot: the minute in which a pod begins has no waits for a connection",
        ("tests/problems/test_store.py",),
        (
            Edit(
                "forge_jobs/operating/snapshots/store.py",
                "each.minute + MINUTE > since",
                "each.minute >= since",
            ),
        ),
    ),
    Bug(
        "snapshot: a transaction that is open for long is not looked for",
        ("tests/problems/test_store_drills.py::test_a_transaction_that_nobody_ends",),
        (
            Edit(
                "forge_jobs/storage/sql/postgres/reporting.py",
                "oldest_transaction=open_transactions(tx).oldest",
                "oldest_transaction=None",
            ),
        ),
        "postgres",
    ),
    Bug(
        "snapshot: every queue is searched for crashes",
        (_CRASHES,),
        (
            Edit(
                "forge_jobs/storage/sql/jobs/looks/calls.py",
                "asked = structs.replace(asked, crashed=tuple(crashed))",
                "del crashed",
            ),
        ),
        "sqlite",
    ),
    Bug(
        "snapshot: on Redis a crash of this minute is not looked for",
        (_CRASHES,),
        (
            Edit(
                "forge_jobs/storage/redis/jobs/looks/calls.py",
                "crashes_since(now), now + MINUTE",
                "crashes_since(now), now - MINUTE",
            ),
        ),
        "redis",
    ),
)
