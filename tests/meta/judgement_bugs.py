"""Bugs of the judgement of queues: forecasts, desired pods, objectives."""

from tests.meta.bugs import Bug, Edit
from tests.meta.policy_bugs import in_policy

_WHAT_IF, _WAITING = "policy/judgement/what_if", "policy/judgement/waiting"
_PODS, _OBJECTIVES = "policy/judgement/desired_pods", "policy/judgement/objectives"
_PERCENTILES = "policy/percentiles"
_SIMULATED = "policy_what_if.py::test_forecasts_are_within_a_third_and_nothing_clears_that_grows"
_OBJECTIVE = "policy_objectives.py::test_"
_WANT = "policy_desired_pods.py::test_"

FORECASTS = [
    in_policy(
        "what if: the balance is called to the last percent",
        _WHAT_IF,
        "margin = max(_TENTH, _BUCKETS + _ERRORS * error)",
        "margin = 0.0",
        "policy_what_if.py::test_within_a_tenth_nothing_is_called",
    ),
    in_policy(
        "what if: few measurements are as good as many",
        _WHAT_IF,
        "margin = max(_TENTH, _BUCKETS + _ERRORS * error)",
        "margin = _TENTH",
        "policy_what_if.py::test_few_measurements_widen_what_is_too_close",
    ),
    in_policy(
        "what if: a backlog clears as if nothing arrived",
        _WHAT_IF,
        "(workers / runs.mean - rate) if runs.mean > 0",
        "(workers / runs.mean) if runs.mean > 0",
        _SIMULATED,
    ),
    in_policy(
        "what if: a growing queue clears",
        _WHAT_IF,
        "    if use > 1:\n        return _grows",
        "    if use > 1.4:\n        return _grows",
        _SIMULATED,
    ),
    in_policy(
        "what if: a backlog grows by what arrives",
        _WHAT_IF,
        "_grows(load, (rate - workers / runs.mean) * 60, use)",
        "_grows(load, rate * 60, use)",
        _SIMULATED,
    ),
    in_policy(
        "what if: free workers do not count",
        _WHAT_IF,
        "ahead = load.waiting + load.running - workers",
        "ahead = load.waiting",
        "policy_what_if.py::test_what_waits_for_a_free_worker_alone_clears_at_once",
    ),
    in_policy(
        "what if: the span knows nothing of the measurement",
        _WHAT_IF,
        "spread = math.sqrt(passage + measured)",
        "spread = math.sqrt(passage) / 4",
        _SIMULATED,
    ),
    in_policy(
        "what if: the factor of the arrivals is dropped",
        _WHAT_IF,
        "rate = load.rate * arrivals",
        "rate = load.rate",
        "policy_what_if.py::test_arrivals_are_a_factor",
    ),
    in_policy(
        "delay: run times that differ wait no longer than constant ones",
        _WAITING,
        "/ (workers - load) * (1 + runs.scv) / 2",
        "/ (workers - load) / 2",
        "policy_what_if.py::test_one_worker_waits_as_pollaczek_and_khinchine_say",
    ),
    in_policy(
        "delay: Erlang's B stands for his C",
        _WAITING,
        "probability = blocked / (1 - load / workers * (1 - blocked))",
        "probability = blocked",
        "policy_what_if.py::test_a_table_of_erlang_c",
    ),
    in_policy(
        "moments: the middle of a bucket is the lower edge",
        _PERCENTILES,
        "    return _BOUNDS[min(index, _BUCKETS) - 1] * math.sqrt(_RATIO)",
        "    return _BOUNDS[min(index, _BUCKETS) - 1]",
        "policy_percentiles.py::test_a_percentile_is_within_five_percent_of_the_nearest_rank",
    ),
]

PODS = [
    in_policy(
        "desired pods: no dead band",
        _PODS,
        "wanted = min(max(pods, few), many)",
        "wanted = few",
        f"{_WANT}more_are_wanted_at_once_and_fewer_only_beyond_the_dead_band",
        f"{_WANT}at_a_steady_load_pods_do_not_flap_and_the_objective_holds",
    ),
    in_policy(
        "desired pods: pods never go",
        _PODS,
        "wanted = min(max(pods, few), many)",
        "wanted = max(pods, few)",
        f"{_WANT}in_a_burst_the_objective_holds",
    ),
    in_policy(
        "desired pods: what waits is not looked at",
        _PODS,
        "math.floor((rate + waiting / horizon) * runs.mean)",
        "0",
        f"{_WANT}in_a_burst_the_objective_holds",
    ),
    in_policy(
        "desired pods: what waited lately is forgotten",
        _PODS,
        "peak = max(load.waiting, load.peak)",
        "peak = load.waiting",
        f"{_WANT}what_waited_a_while_ago_keeps_pods_and_wants_none",
    ),
    in_policy(
        "desired pods: the time that a pod needs to start is not known",
        _PODS,
        "max(objective.within / 2, starts_in)",
        "(objective.within / 2)",
        f"{_WANT}no_pod_helps_before_it_has_started",
    ),
    in_policy(
        "desired pods: the objective is not looked at",
        _PODS,
        "workers >= least and wait.share_within(within) >= objective.share",
        "workers >= least",
        f"{_WANT}a_tighter_objective_wants_more",
    ),
    in_policy(
        "desired pods: more pods than max_workers can use",
        _PODS,
        "if wanted > usable:",
        "if False:",
        f"{_WANT}max_workers_and_highest_hold_back",
        f"{_WANT}the_answer_is_stable_and_within_its_bounds",
    ),
]

OBJECTIVES = [
    in_policy(
        "objective: jobs that never start are not late",
        _OBJECTIVES,
        "total = started + overdue",
        "total = started",
        f"{_OBJECTIVE}jobs_that_have_not_started_are_late",
    ),
    in_policy(
        "objective: the budget is of the last hour",
        _OBJECTIVES,
        "budget_left=1 - burn(MONTH)",
        "budget_left=1 - burn(HOUR)",
        f"{_OBJECTIVE}the_budget_is_what_may_be_late",
    ),
    in_policy(
        "objective: what burned an hour ago still burns",
        _OBJECTIVES,
        "min(self.burn_short, self.burn_long)",
        "max(self.burn_short, self.burn_long)",
        f"{_OBJECTIVE}it_burns_while_both_windows_say_so",
    ),
    in_policy(
        "objective: a window takes a whole hour that it cuts",
        _OBJECTIVES,
        "max(end - max(part.start, now - window), timedelta(0)) / (end - part.start)",
        "1.0 if end > now - window else 0.0",
        f"{_OBJECTIVE}a_window_cuts_an_hour_by_its_part",
    ),
    in_policy(
        "objective: the minute that lasts counts by half",
        _OBJECTIVES,
        "end = min(part.start + part.length, now)",
        "end = part.start + part.length",
        f"{_OBJECTIVE}the_share_of_each_window_is_of_the_jobs_that_started_in_it",
        f"{_OBJECTIVE}the_minute_that_lasts_counts_whole",
    ),
    in_policy(
        "objective: a bucket that is cut counts whole",
        _PERCENTILES,
        "return within + in_cut * (seconds - low) / (_BOUNDS[cut] - low)",
        "return within + in_cut",
        f"{_OBJECTIVE}a_cut_bucket_counts_by_its_part",
    ),
    in_policy(
        "objective: all jobs are an objective",
        "model/objectives/__init__",
        "if not 0 < self.share < 1:",
        "if not 0 < self.share <= 1:",
        f"{_OBJECTIVE}all_jobs_and_none_are_no_objective",
    ),
]

OBJECTIVES += [
    in_policy(
        "roll-up: a minute before the newest with counts is behind",
        "policy/judgement/growth",
        "        if each.counts:\n            break",
        "        if each.counts:\n            continue",
        "policy_growth.py::test_minutes_are_behind_from_the_first_without_counts_after_the_newest_with",
    ),
    in_policy(
        "objective: two spellings are two settings",
        "model/queues",
        'structs.force_setattr(settings, "objective", spelled)',
        "assert spelled",
        "queue_settings.py::test_an_objective_has_one_spelling",
    ),
]

_PROBLEMS = "policy/judgement/problems"
_JUDGING = f"{_PROBLEMS}/judging"
_INSTANT = "policy_problems.py::test_a_problem_holds_from_its_instant_on_and_not_before"
_HEALTHY = "policy_problems.py::test_a_healthy_installation_has_no_problem"
_CAUSE = "policy_problems.py::test_a_cause_"

PROBLEMS = [
    in_policy(
        "problems: they hold an instant late",
        _JUDGING,
        "if seen.now >= finding.since + rule.after",
        "if seen.now > finding.since + rule.after",
        _INSTANT,
    ),
    in_policy(
        "problems: a rolling deploy is one",
        _JUDGING,
        "if seen.now >= finding.since + rule.after",
        "if seen.now >= finding.since",
        _INSTANT,
        _HEALTHY,
    ),
    in_policy(
        "problems: what follows from a cause is listed too",
        _JUDGING,
        "        if not any(\n",
        "        if True or not any(\n",
        f"{_CAUSE}stands_for_what_follows_from_it",
    ),
    in_policy(
        "problems: a cause in one queue explains all queues",
        _JUDGING,
        'for queue in (problem.queue, "")',
        "for queue in {queue for _, queue in causes}",
        f"{_CAUSE}explains_its_own_queue_alone",
    ),
    in_policy(
        "problems: a store without a leader explains nothing",
        _JUDGING,
        'for queue in (problem.queue, "")',
        'for queue in (problem.queue or "-",)',
        "policy_problems.py::test_without_a_leader_slots_and_schedules_are_no_problem_of_their_own",
    ),
    in_policy(
        "problems: the fewest jobs come first",
        _JUDGING,
        "                -problem.jobs,\n",
        "                problem.jobs,\n",
        "policy_problems.py::test_the_worst_comes_first",
    ),
    in_policy(
        "problems: the newest comes first",
        _JUDGING,
        "                problem.since,\n",
        "",
        "policy_problems.py::test_the_worst_comes_first",
    ),
    in_policy(
        "problems: an empty queue without a pod is one",
        f"{_PROBLEMS}/queues",
        "queue.unserved_since is None or not queue.due or queue.pods",
        "queue.unserved_since is None or queue.pods",
        _HEALTHY,
    ),
    in_policy(
        "problems: jobs wait since before they were due",
        f"{_PROBLEMS}/queues",
        "    return max(each for each in (since, oldest_due_at) if each is not None)",
        "    return min(each for each in (since, oldest_due_at) if each is not None)",
        "policy_problems.py::test_jobs_that_came_after_the_cause_wait_since_they_are_due",
    ),
    in_policy(
        "problems: more slots are offered where some are not granted",
        f"{_PROBLEMS}/queues",
        "is_full = queue.granted >= queue.max_workers",
        "is_full = True",
        "policy_problems.py::test_more_slots_are_offered_only_when_all_are_granted",
    ),
    in_policy(
        "problems: the usual failures are a burst",
        f"{_PROBLEMS}/jobs",
        "max(FEWEST_FAILURES, BURST * group.usual)",
        "FEWEST_FAILURES",
        _HEALTHY,
    ),
    in_policy(
        "problems: a short run of a quick kind is a long one",
        "policy/judgement/long_runs",
        "return max(LONG * usual, SHORTEST)",
        "return LONG * usual",
        _HEALTHY,
    ),
    in_policy(
        "problems: a drain is stuck within its grace",
        f"{_PROBLEMS}/fleet",
        "since=pod.draining_since + pod.grace,",
        "since=pod.draining_since,",
        _INSTANT,
    ),
    in_policy(
        "problems: a slash in a name leads to another page",
        f"{_PROBLEMS}/problem",
        "{path_part(name)}",
        "{quote(name)}",
        "policy_problems.py::test_names_are_quoted_in_commands_and_pages",
    ),
    in_policy(
        "problems: a name is not quoted for the shell",
        "policy/remedies",
        'command_line("cron trigger", name)',
        'f"forge-jobs cron trigger {name}"',
        "policy_problems.py::test_names_are_quoted_in_commands_and_pages",
    ),
]

_SINCE = ("tests/problems/test_since.py",)
_QUEUES = ("tests/problems/test_queues.py",)
_COOLDOWNS = "forge_jobs/policy/cooldowns.py"

SINCE = [
    Bug(
        "since: the end of a parent is not looked at",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/judgement/since.py",
                "since = min(ends, default=None)",
                "since = told.since",
            ),
        ),
    ),
    Bug(
        "since: a cancel began with the run",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/judgement/since.py",
                "since = min((at for at in asked",
                "since = min((at for at in ()",
            ),
        ),
    ),
    Bug(
        "since: a hand-back is no begin",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/judgement/since.py",
                "    elif told.reason in BY_JOB:",
                "    elif False:",
            ),
        ),
    ),
    Bug(
        "since: a stop of the last pod is no begin",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/judgement/since.py",
                "told.reason in BY_FLEET and (left",
                "False and (left",
            ),
        ),
    ),
    Bug(
        "since: a job waits for a pod before its time",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/judgement/since.py",
                "since = max(left[0], job.due_at)",
                "since = left[0]",
            ),
        ),
    ),
    Bug(
        "since: a cool-down has no begin",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/admission.py",
                "since=began and max(began, job.due_at)",
                "since=None",
            ),
        ),
    ),
    Bug(
        "since: a long cool-down begins when it is looked at",
        _QUEUES,
        (Edit(_COOLDOWNS, "return min(began, each.at + each.length)", "return began"),),
    ),
    Bug(
        "since: a cool-down of before dates the next",
        _QUEUES,
        (
            Edit(
                _COOLDOWNS,
                "            break\n    return began",
                "            continue\n    return began",
            ),
        ),
    ),
    Bug(
        "since: a lost lease is no begin",
        _SINCE,
        (
            Edit(
                "forge_jobs/policy/slots/reasons.py",
                "max(begun, around.now - around.leader.ended_for)",
                "begun",
            ),
        ),
    ),
    Bug(
        "since: pods without slots have no begin",
        _SINCE,
        (Edit("forge_jobs/policy/slots/reasons.py", "        since=begun,\n", ""),),
    ),
]

JUDGEMENT_BUGS: tuple[Bug, ...] = (*FORECASTS, *PODS, *OBJECTIVES, *PROBLEMS, *SINCE)
